package policyfile

import (
	"slices"
	"strings"
)

// The bounds of a file, for the reference.
const (
	MostBytes    = mostBytes
	MostText     = mostText
	MostDepth    = mostDepth
	MostRepeated = mostRepeated
)

// A Key is a key of a mapping in a file, for the reference.
type Key struct {
	Name, Form, Doc, Usual string
	Required               bool
}

// A Mapping is a mapping of a file with the keys that it may have.
type Mapping struct {
	Name string
	Keys []Key
}

// Mappings returns the mappings of a file, without the options of presets.
func Mappings() []Mapping {
	return []Mapping{
		{"The file", keysOf(documentFields.heads())},
		{"A policy", keysOf(policy.heads())},
		{"headroom", keysOf(headroom.heads())},
		{"A penalty", kindsOf(penaltyKinds())},
		{"codes", keysOf(codes.heads())},
		{"text", keysOf(texts.heads())},
		{"printed", keysOf(printed.heads())},
		{"as", keysOf(dialect.heads())},
		{"headers", keysOf(headers.heads())},
		{"ratelimit", keysOf(rateLimit.heads())},
		{"A when", keysOf(conditions("penalty", penalties).heads())},
		{"A quota", kindsOf(quotaKinds())},
		{"A settle", kindsOf(settleKinds)},
		{"amount", keysOf(amount.heads())},
		{"A test", keysOf(test.heads())},
		{"An expectation", keysOf(expectation.heads())},
		{"An answer", keysOf(answer.heads())},
	}
}

func keysOf(heads []fieldHead) (all []Key) {
	for _, h := range heads {
		all = append(all, Key{h.name, h.form, h.doc, h.usual, h.required})
	}
	return all
}

// A PresetDoc is a preset for readers, with its options.
type PresetDoc struct {
	Name, Doc string
	Options   []Key
}

// PresetDocs returns the presets by name.
func PresetDocs() (all []PresetDoc) {
	for _, o := range append(slices.Clone(packagePresets), catalogPresets()...) {
		all = append(all, PresetDoc{o.name, o.doc, keysOf(o.keys)})
	}
	slices.SortFunc(all, func(a, b PresetDoc) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func kindsOf[T any](options []option[T]) (all []Key) {
	for _, o := range options {
		k := Key{Name: o.name, Form: o.form, Doc: o.doc}
		if o.alone != nil {
			k.Form = "nothing, or " + o.form
		}
		all = append(all, k)
	}
	return all
}

// A CatalogFile is a file of the catalog, for its page and for tests.
type CatalogFile struct {
	Name, Title, Chinese, About, Counted, Date, Host, Account string

	Address bool
	Plans   []string
	Numbers []CatalogNumber
	Sources []string
	Notes   []string
	Rows    []CatalogRow
	Tests   []string // the sources of its tests, "" where a test has none
	File    *File    // with zero options, for File.Check
}

// A CatalogNumber is an option that is a number. Usual is its default, or 0.
type CatalogNumber struct {
	Name, Doc string
	Usual     int
}

// A CatalogRow is what a file of the catalog says of a row beside its policy.
type CatalogRow struct{ Counted, Closed, Source string }

// ReadCatalog reads a file of the catalog, and all its mistakes.
func ReadCatalog(name string, text []byte) (f CatalogFile, err error) {
	t, err := readTable(name, text)
	if err != nil {
		return f, err
	}
	d, r, err := t.document(PresetOptions{})
	if err != nil {
		return f, err
	}
	r.checkTests(&d)
	if err := r.errs.sorted(); err != nil {
		return f, err
	}

	h := t.head
	f = CatalogFile{
		Name: name, Title: h.title, Chinese: h.chinese, About: h.about, Counted: h.counted, Date: h.date, Host: h.host,
		Account: h.account, Address: h.address, Sources: h.sources, Notes: h.notes,
		File: &File{name: name + ".yaml", text: text, Policies: d.policies()},
	}
	for _, p := range h.plans {
		f.Plans = append(f.Plans, p.name)
	}
	for _, n := range h.numbers {
		f.Numbers = append(f.Numbers, CatalogNumber{n.name, n.doc, n.usual})
	}
	for _, row := range t.rows {
		f.Rows = append(f.Rows, CatalogRow{row.counted, row.closed, row.source})
	}
	for _, test := range d.tests {
		f.File.Tests = append(f.File.Tests, test.Test)
	}

	root, _ := newReader(name, text).parse(text)
	for _, n := range memberOf(root, "tests").Content {
		f.Tests = append(f.Tests, textOf(n, "source"))
	}
	return f, nil
}
