package policyfile

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A File is what a file says. It does not change.
type File struct {
	// Policies are the rows of its presets, then its own, for
	// [throttle.Config] or [throttle.Transport.SetPolicies].
	Policies []throttle.Policy

	// Tests are what its author expects of them: see [File.Check].
	Tests []Test

	name  string
	text  []byte
	holds map[string]hold
	lines map[string]int

	tables int // how many rows are of presets
}

// Version is the version of the form that this package reads.
const Version = 1

// Parse reads a file. Name stands in errors, which are [Errors]: all mistakes at once, in
// the order of the file. A file that parses is one whose policies [throttle.New] takes.
func Parse(name string, text []byte) (*File, error) {
	r := newReader(name, text)
	n, ok := r.parse(text)
	if !ok || !r.checkVersion(n) {
		return nil, r.errs.sorted()
	}
	v, _ := root.read(r, n)
	r.checkPolicies(&v)
	r.checkTests(&v)
	if err := r.errs.sorted(); err != nil {
		return nil, err
	}
	if _, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: v.policies()}); err != nil {
		r.failAt(1, 1, "%v", err) // what has no place of its own
		return nil, r.errs.sorted()
	}
	f := &File{name: name, text: text, holds: v.holds(), lines: v.lines(), Policies: v.policies()}
	f.tables = len(f.Policies) - len(v.rows)
	for _, t := range v.tests {
		f.Tests = append(f.Tests, t.Test)
	}
	return f, nil
}

// Load reads the file at a path.
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return Parse(path, text)
}

// Line returns the line in which a policy stands, or the preset that it is of; 0 if there
// is none of that name.
func (f *File) Line(policy string) int { return f.lines[policy] }

// Own returns the rows that are the file's own, and not a preset's.
func (f *File) Own() []throttle.Policy { return f.Policies[f.tables:] }

// A document is the root of a file.
type document struct {
	version int
	tables  []presetTable
	rows    []row
	tests   []placedTest
}

// A presetTable is the rows of a preset and where it is named.
type presetTable struct {
	rows      presetRows
	at        *yaml.Node
	wildcards []wildcard // that its keys and costs name
}

// policies returns all rows.
func (d *document) policies() (all []throttle.Policy) {
	for _, t := range d.tables {
		all = append(all, t.rows...)
	}
	for _, p := range d.rows {
		all = append(all, p.Policy)
	}
	return all
}

// lines returns where each policy stands.
func (d *document) lines() map[string]int {
	all := make(map[string]int)
	for _, t := range d.tables {
		for _, p := range t.rows {
			all[p.Name] = t.at.Line
		}
	}
	for _, p := range d.rows {
		all[p.Name] = p.at.Line
	}
	return all
}

// root is the shape of a file.
var root = shape[document]{read: documentFields.read, schema: func() schema {
	s := documentFields.schema()
	s["patternProperties"] = schema{"^x-": true}
	defs := schema{}
	for name, of := range definitions {
		defs[name] = of()
	}
	s["$defs"] = defs
	return s
}}

var documentFields = record[document]{name: "the file", ignored: "x-", fields: []field[document]{
	must(member("version", "of this form", number(1), func(d *document, v int) { d.version = v })),
	partly("presets", "the tables of providers that the library knows", list(defined("preset", placed(presets))), func(d *document, v []presetTable) { d.tables = v }),
	partly("policies", "rows of your own", list(policyRow), func(d *document, v []row) { d.rows = v }),
	partly("tests", "requests, and which policies they must match", list(defined("test", test.shape())), func(d *document, v []placedTest) { d.tests = v }),
}}

// placed returns the shape of a preset that knows its place.
func placed(of shape[presetRows]) shape[presetTable] {
	return shape[presetTable]{schema: of.schema, read: func(r *reader, n *yaml.Node) (presetTable, bool) {
		r.wildcards = nil
		rows, ok := of.read(r, n)
		return presetTable{rows, follow(n), r.wildcards}, ok
	}}
}

// checkVersion reports whether the file is of the version that this package reads. One of
// another version is looked at no further: what it says may mean something else.
func (r *reader) checkVersion(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(n, "a file is a mapping that begins with \"version: %d\", and not %s%s", Version, kindOf(n), missingSpace(n.Value))
		return false
	}
	switch key, value := n.Content[0], n.Content[1]; {
	case key.Value != "version":
		r.fail(key, "a file begins with \"version: %d\"", Version)
	case value.Value != fmt.Sprint(Version):
		r.fail(value, "the version is %s; this program reads version %d", kindOf(value), Version)
	default:
		return true
	}
	return false
}
