package policyfile

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
)

// The catalog is the presets that need no code: each is a policy file with a head and with a
// source for each row.

//go:embed catalog/*.yaml
var catalogFiles embed.FS

// PresetOptions are the options of a preset of the catalog. A preset has some of them: the page
// of the preset says which. The zero value works for each preset: it is one account behind one
// address, with the limits of the smallest plan.
type PresetOptions struct {
	// Account is the id of the account that the limits belong to, not a secret. Defaults to
	// "": all programs that share the store are one account, or are told apart as the
	// preset's page says.
	Account string

	// Caller returns the account that a request is for, in a program that calls for several
	// accounts. It replaces Account. Defaults to nil: all requests are for Account.
	Caller func(*http.Request) (account string)

	// Address is any name for the address that the requests come from. All programs
	// behind the same gateway or NAT use the same. Defaults to "": all programs that
	// share the store are behind one address.
	Address string

	// Host is a pattern of the API's hosts, in place of the default for a fake or a
	// proxy. Defaults to the hosts of the preset.
	Host string

	// Plan is the plan that the account has bought. Defaults to "": the first plan of the page.
	Plan string

	// Numbers replace numbers of the plan, by the names on the page. A number must be positive.
	// Defaults to nil: the plan's own numbers.
	Numbers map[string]int
}

// Preset returns the rows of a preset of the catalog, for [throttle.Config]:
//
//	policies, err := policyfile.Preset("edgar", policyfile.PresetOptions{Address: "office"})
//
// The rows are plain values: change them, leave some out, append your own. Preset
// returns an error for a name that is not in the catalog, and for options that the preset does not
// have. With zero options each name of [CatalogPresets] has rows.
func Preset(name string, o PresetOptions) ([]throttle.Policy, error) {
	for _, t := range catalog() {
		if t.name != name {
			continue
		}

		rows, err := t.policies(o)
		if err != nil {
			return nil, fmt.Errorf("policyfile: preset %s: %w", name, err)
		}

		return rows, nil
	}

	names := CatalogPresets()
	return nil, fmt.Errorf("policyfile: the catalog has no preset %q%s; it has %s", clip(name), didYouMean(name, names), strings.Join(names, ", "))
}

// CatalogPresets returns the sorted names of the presets that are files. A policy file uses them by
// name like the presets that are packages, and a Go program by [Preset].
func CatalogPresets() (names []string) {
	for _, t := range catalog() {
		names = append(names, t.name)
	}
	return names
}

// A catalogTable is one file of the catalog.
type catalogTable struct {
	name string
	head catalogHead
	text []byte
	rows []catalogRow
}

// A catalogRow describes a row for the page, beside its policy.
type catalogRow struct {
	source  string // official, observed or inferred, the month, links
	counted string // the scope of a budget, as in "user, project"
	closed  string // which answers close it, and for how long
}

// catalog returns the files of the catalog, in the order of their names.
var catalog = sync.OnceValue(func() []catalogTable { return readCatalog(catalogFiles) })

// readCatalog reads the files of the catalog. It leaves out a file that cannot be read, and a test
// reports why.
func readCatalog(files fs.FS) (tables []catalogTable) {
	paths, _ := fs.Glob(files, "catalog/*.yaml") // fails only for a malformed pattern
	for _, file := range paths {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			continue
		}
		if t, err := readTable(strings.TrimSuffix(path.Base(file), ".yaml"), text); err == nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// readTable reads the head of a file of the catalog, and what its rows say for the documentation. The
// error is [Errors] for a text that is no YAML, or has no valid head. The policies are not read: see
// document.
func readTable(name string, text []byte) (catalogTable, error) {
	t := catalogTable{name: name, text: text}
	r := newReader(name+".yaml", text)
	file, ok := r.parse(text)
	if !ok {
		return t, r.errs.sorted()
	}

	head := memberOf(file, "preset")
	if head == nil {
		r.fail(file, "a file of the catalog has a head, \"preset\"")
		return t, r.errs.sorted()
	}

	t.head, _ = catalogHeadFields.read(r, head) // r.errs has its mistakes
	if rows := memberOf(file, "policies"); rows != nil {
		for _, n := range rows.Content {
			t.rows = append(t.rows, catalogRow{textOf(n, "source"), textOf(n, "counted"), textOf(n, "closed")})
		}
	}

	return t, r.errs.sorted()
}

// policies returns the preset's rows with some options, or an error about the options.
func (t *catalogTable) policies(o PresetOptions) ([]throttle.Policy, error) {
	d, _, err := t.document(o)

	// A mistake comes from an option, because a test proves that the files have none. Leave out the
	// mistake's place: the caller does not see the file.
	if mistakes := Mistakes(err); len(mistakes) > 0 {
		return nil, errors.New(mistakes[0].Text)
	}
	if err != nil {
		return nil, err
	}
	return d.policies(), nil
}

// document reads the file, with the values of the options in place of their names, and returns the
// reader that has read it, for further checks. It reads the file anew each time, because penalties may
// count answers, and each transport needs penalties of its own. For wrong options r is nil, and for
// mistakes that show in the filled-in file the error is [Errors].
func (t *catalogTable) document(o PresetOptions) (d document, r *reader, err error) {
	values, err := t.head.values(o)
	if err != nil {
		return d, nil, err
	}

	r = newReader(t.name+".yaml", t.text)
	file, ok := r.parse(t.text)
	if !ok {
		return d, r, r.errs.sorted()
	}

	r.ids = map[string]keyFunc{"account": o.Caller, "address": always(o.Address)}

	// Without a Caller all requests have the same account.
	if o.Caller == nil {
		r.ids["account"] = always(o.Account)
	}

	// Drop the members for the documentation alone: catalogFields does not know them.
	dropMember(file, "preset")
	for _, section := range []string{"policies", "tests"} {
		list := memberOf(file, section)
		if list == nil {
			continue
		}

		for _, item := range list.Content {
			for _, name := range []string{"source", "counted", "closed"} {
				dropMember(item, name)
			}
		}
	}

	// Fill in before the fields are read, so that a filled-in number is checked like a written number.
	fill(file, values)

	d, _ = catalogFields.read(r, file) // r.errs has its mistakes
	r.checkPolicies(&d)
	return d, r, r.errs.sorted()
}

// catalogFields are the fields of a file of the catalog, without its head.
var catalogFields = record[document]{name: "a file of the catalog", fields: []field[document]{versionField, policiesField, testsField}}

// always returns the key of an id that all requests have.
func always(id string) keyFunc { return func(*http.Request) string { return id } }

// placeholderOption is an option that a file of the catalog names: ${per-second}.
var placeholderOption = regexp.MustCompile(`\$\{([a-z0-9-]+)\}`)

// fill replaces the names of options by their values, in a node and all nodes below it. A text that
// names an option without a value becomes "unlimited": the option is a number, and the text a limit.
func fill(n *yaml.Node, values map[string]string) {
	for _, part := range n.Content {
		fill(part, values)
	}

	if n.Kind != yaml.ScalarNode {
		return
	}

	unknown := false
	text := placeholderOption.ReplaceAllStringFunc(n.Value, func(written string) string {
		name := written[len("${") : len(written)-len("}")]
		unknown = unknown || values[name] == ""
		return values[name]
	})
	if unknown {
		text = "unlimited"
	}
	n.Value = text
}

// memberOf returns the value of a mapping's member. It returns nil if n is no mapping, or has no member
// of that name.
func memberOf(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Kind == yaml.MappingNode && n.Content[i].Value == name {
			return follow(n.Content[i+1])
		}
	}
	return nil
}

// dropMember takes a member out of a mapping. It does nothing if n is no mapping, or has no such member.
func dropMember(n *yaml.Node, name string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Kind == yaml.MappingNode && n.Content[i].Value == name {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// textOf returns the text of a mapping's member, or "" if it has no member of that name.
func textOf(n *yaml.Node, name string) string {
	if v := memberOf(n, name); v != nil {
		return v.Value
	}
	return ""
}

// A catalogHead describes the platform and the options of a file of the catalog.
type catalogHead struct {
	title, chinese string // of the platform
	about          string // its purpose, for the list of presets
	counted        string // the scope of its budgets, for that list
	date           string // the month in which its sources were read: "2026-11"
	host           string // the default of PresetOptions.Host
	account        string // the meaning of Account, or "" if the preset has no Account
	address        bool   // the preset has an Address
	plans          []catalogPlan
	numbers        []catalogNumber
	sources        []string // addresses, in the order of [1], [2] …
	notes          []string // for "What to set"
}

// A catalogPlan is one plan, and its numbers. A number of 0 is not known.
type catalogPlan struct {
	name    string
	numbers map[string]int
}

// A catalogNumber is an option of the preset, and the unit that it counts. The numbers of plans
// need no default.
type catalogNumber struct {
	name, doc string
	usual     int // its default, or 0 without a default: without any other number the limit is unlimited
}

var catalogHeadFields = record[catalogHead]{name: "the head", fields: []field[catalogHead]{
	must(member("title", "of the platform", label, func(h *catalogHead, v string) { h.title = v })),
	must(member("chinese", "its name in Chinese", label, func(h *catalogHead, v string) { h.chinese = v })),
	must(member("about", "what the preset is for", label, func(h *catalogHead, v string) { h.about = v })),
	must(member("counted", "per what its limits are counted", label, func(h *catalogHead, v string) { h.counted = v })),
	must(member("date", "when its sources were read", label, func(h *catalogHead, v string) { h.date = v })),
	must(member("host", "a pattern of the hosts", label, func(h *catalogHead, v string) { h.host = v })),
	member("account", "what the account is", label, func(h *catalogHead, v string) { h.account = v }),
	member("address", "rows count by the address", yes, func(h *catalogHead, v bool) { h.address = v }),
	member("plans", "what plans allow; the first is the default", list(catalogPlanFields.shape()), func(h *catalogHead, v []catalogPlan) { h.plans = v }),
	member("numbers", "what else may be told", list(catalogNumberFields.shape()), func(h *catalogHead, v []catalogNumber) { h.numbers = v }),
	must(member("sources", "addresses of pages", some(label), func(h *catalogHead, v []string) { h.sources = v })),
	must(member("notes", "what to set", some(text), func(h *catalogHead, v []string) { h.notes = v })),
}}

var catalogPlanFields = record[catalogPlan]{name: "a plan", fields: []field[catalogPlan]{
	must(member("name", "of the plan", label, func(p *catalogPlan, v string) { p.name = v })),
	must(member("numbers", "of the plan", table(number(0)), func(p *catalogPlan, v map[string]int) { p.numbers = v })),
}}

var catalogNumberFields = record[catalogNumber]{name: "a number", fields: []field[catalogNumber]{
	must(member("name", "of the option", label, func(o *catalogNumber, v string) { o.name = v })),
	must(member("doc", "what it counts", label, func(o *catalogNumber, v string) { o.doc = v })),
	member("default", "its default", number(1), func(o *catalogNumber, v int) { o.usual = v }),
}}

// values returns, by the names of the options, the texts that replace the names in the file. A number
// that neither o, nor the plan, nor a default states has no text. The error names all options that are
// wrong, or that the preset does not have.
func (h *catalogHead) values(o PresetOptions) (map[string]string, error) {
	var errs []error

	// check notes an option that the program has set, if the preset does not have it.
	check := func(option string, has, set bool) {
		if set && !has {
			errs = append(errs, fmt.Errorf("it has no %s", option))
		}
	}

	check("Account", h.account != "", o.Account != "")
	check("Caller", h.account != "", o.Caller != nil)
	check("Address", h.address, o.Address != "")

	plan, err := h.plan(o.Plan)
	errs = append(errs, err)
	values := map[string]string{"host": h.host}
	if o.Host != "" {
		values["host"] = o.Host
	}

	for _, n := range h.numbers {
		// The option outranks the number of the plan, which outranks the default.
		value := n.usual
		if planned := plan.numbers[n.name]; planned > 0 {
			value = planned
		}

		if own, ok := o.Numbers[n.name]; ok {
			value = own
			if own <= 0 {
				errs = append(errs, fmt.Errorf("the number %s is %d: it must be above 0", n.name, own))
			}
		}

		if value > 0 {
			values[n.name] = strconv.Itoa(value)
		}
	}

	for name := range o.Numbers {
		if !slices.ContainsFunc(h.numbers, func(n catalogNumber) bool { return n.name == name }) {
			errs = append(errs, fmt.Errorf("it has no number %q", clip(name)))
		}
	}

	return values, errors.Join(errs...)
}

// plan returns the plan with a name, or the first plan for the name "". For the name "" a preset without
// plans has a plan without numbers. A name that no plan has is an error.
func (h *catalogHead) plan(name string) (catalogPlan, error) {
	var names []string
	for _, p := range h.plans {
		if p.name == name || name == "" {
			return p, nil
		}
		names = append(names, p.name)
	}

	switch {
	case name == "":
		return catalogPlan{}, nil
	case names == nil:
		return catalogPlan{}, errors.New("it has no Plan")
	}

	return catalogPlan{}, fmt.Errorf("it has no plan %q%s; it has %s", clip(name), didYouMean(name, names), strings.Join(names, ", "))
}

// fileOptions are the options that a user's file gives to a preset of the catalog. shadow means that
// the rows only count.
type fileOptions struct {
	PresetOptions
	shadow bool
}

// catalogPresets are the presets of the catalog, as a file names them.
func catalogPresets() (all []option[presetRows]) {
	for _, t := range catalog() {
		all = append(all, t.option())
	}
	return all
}

// option returns the preset as an option that a file can name.
func (t *catalogTable) option() option[presetRows] {
	options := record[fileOptions]{name: "preset " + t.name, fields: t.fields()}
	rowsWith := func(o fileOptions) (presetRows, error) {
		rows, err := t.policies(o.PresetOptions)
		for i := range rows {
			rows[i].Shadow = rows[i].Shadow || o.shadow
		}
		return rows, err
	}

	return option[presetRows]{
		name: t.name, doc: t.head.doc(), keys: options.heads(), schema: options.schema,
		alone: func() presetRows {
			rows, _ := rowsWith(fileOptions{}) // zero options are never wrong
			return rows
		},
		read: func(r *reader, n *yaml.Node) (presetRows, bool) {
			o, ok := options.read(r, n)
			if !ok {
				return nil, false
			}

			rows, err := rowsWith(o)
			if err != nil {
				r.fail(n, "%v", err)
			}
			return rows, err == nil
		},
	}
}

// doc describes the preset for readers.
func (h *catalogHead) doc() string {
	about := h.about
	if !strings.HasPrefix(about, h.chinese) {
		about = h.title + ", " + about
	}
	return presetDoc(about, h.counted)
}

// fields returns the options that a file can give: shadow, host, and the preset's own options.
func (t *catalogTable) fields() []field[fileOptions] {
	all := []field[fileOptions]{
		member("shadow", "all rows count and report, and never hold or refuse", yes, func(o *fileOptions, v bool) { o.shadow = v }),
	}
	if len(t.head.plans) > 0 {
		var plans []word[string]
		for _, p := range t.head.plans {
			plans = append(plans, word[string]{p.name, p.name})
		}
		all = append(all, member("plan", "what the account has bought", oneOf(plans...), func(o *fileOptions, v string) { o.Plan = v }))
	}

	for _, n := range t.head.numbers {
		all = append(all, member(n.name, n.doc, number(1), func(o *fileOptions, v int) {
			if o.Numbers == nil {
				o.Numbers = make(map[string]int)
			}
			o.Numbers[n.name] = v
		}))
	}

	if t.head.account != "" {
		all = append(all,
			member("account", t.head.account, label, func(o *fileOptions, v string) { o.Account = v }),
			callerID("account", func(o *fileOptions, v keyFunc) { o.Caller = v }))
	}

	if t.head.address {
		all = append(all, member("address", "a name for the address that requests leave from", label, func(o *fileOptions, v string) { o.Address = v }))
	}

	return append(all, host[fileOptions]())
}
