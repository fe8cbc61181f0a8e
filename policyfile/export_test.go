package policyfile

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
