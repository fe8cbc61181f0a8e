package policyfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// parse returns the root of a file's text. ok is false, and a mistake is noted, if the text is no YAML in UTF-8,
// has an odd character, is empty, is too large, or has parts that stand too deep in each other.
func (r *reader) parse(text []byte) (file *yaml.Node, ok bool) {
	if len(text) > mostBytes {
		r.failAt(1, 1, "the file has %d bytes; %d are the most", len(text), mostBytes)
		return nil, false
	}

	if !r.checkEncoding(text) {
		return nil, false
	}

	// A byte order mark may stand at the beginning.
	var doc yaml.Node
	if err := yaml.Load(bytes.TrimPrefix(text, []byte("\ufeff")), &doc); err != nil {
		r.failYAML(err)
		return nil, false
	}

	if len(doc.Content) != 1 || isEmpty(doc.Content[0]) {
		r.failAt(1, 1, "%s", emptyFile)
		return nil, false
	}

	// Aliases can make a small text very large, so the size is checked after parsing.
	return doc.Content[0], r.checkSize(doc.Content[0])
}

// checkEncoding returns false, and notes the first mistake, if a text is not in UTF-8, or has a character
// that no editor shows as it is: YAML takes some of these for the end of a line.
func (r *reader) checkEncoding(text []byte) bool {
	if name := otherEncoding(text); name != "" {
		r.lines = nil // the text has no lines in UTF-8
		r.failAt(1, 1, "the file is written in %s: save it as UTF-8", name)
		return false
	}
	for i := range r.lines {
		if column, what := oddCharacter(r.lines[i].text); what != "" {
			r.failAt(i+1, column, "%s", what)
			return false
		}
	}
	return true
}

// otherEncoding returns the name of a text's encoding if it has two or four bytes for each
// character, and "" otherwise.
func otherEncoding(text []byte) string {
	const most = 64 // bytes are enough to tell
	head := text[:min(len(text), most)]
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return "UTF-16"

	// Text in UTF-16 or UTF-32 has a zero byte in at least every second place.
	case len(head) > 3 && 2*bytes.Count(head, []byte{0}) >= len(head)-1:
		return "UTF-16 or UTF-32"
	}
	return ""
}

// oddCharacter returns the column of the first character of a line that must not stand in a file, and
// the text of the mistake, or "" without such a character.
func oddCharacter(line string) (column int, what string) {
	for i, c := range line {
		column++
		switch {
		// A byte that is not UTF-8 comes as RuneError, which a text may also have as a character.
		case c == utf8.RuneError && !strings.HasPrefix(line[i:], string(utf8.RuneError)):
			return column, fmt.Sprintf("the byte 0x%02X is not UTF-8: save the file as UTF-8", line[i])
		case c < ' ' && c != '\t', c >= 0x7f && c <= 0x9f:
			return column, fmt.Sprintf("the control character U+%04X stands here: take it out", c)
		case c == '\u2028', c == '\u2029':
			return column, fmt.Sprintf("the line separator U+%04X stands here: begin a new line instead", c)
		case c == '\ufeff', c == 0xfffe, c == 0xffff, c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069:
			return column, fmt.Sprintf("the invisible character U+%04X stands here: take it out", c)
		}
	}

	return 0, ""
}

const mostRepeated = 300_000 // nodes that aliases may repeat in all: a file must not be a bomb

// A size is how many nodes there are to read in a node, and in how many levels, with all that aliases repeat.
type size struct{ nodes, depth int }

// A sizer counts the nodes of a file. What an anchor holds is counted once.
type sizer struct {
	reader   *reader
	anchors  map[*yaml.Node]size // of the anchors counted so far
	open     map[*yaml.Node]bool // anchors that are being counted
	repeated int                 // nodes that aliases have repeated so far
	ok       bool                // no alias and no depth was a mistake: otherwise nothing more is counted
}

// checkSize returns false, and notes a mistake, if aliases and merge keys repeat too much of a file, or
// if parts stand too deep in each other: it bounds the time in which a file is read. It also notes the
// tags that have no meaning.
func (r *reader) checkSize(file *yaml.Node) bool {
	s := &sizer{reader: r, anchors: make(map[*yaml.Node]size), open: make(map[*yaml.Node]bool), ok: true}
	s.of(file, 0)
	return s.ok
}

// of returns the size of a node that stands below a number of levels, and notes mistakes. Once s.ok is
// false, the size has no meaning.
func (s *sizer) of(n *yaml.Node, above int) (z size) {
	switch {
	case !s.ok:
		return z
	case n.Kind == yaml.AliasNode:
		return s.alias(n, above)
	case above >= mostDepth:
		s.fail(n, "this stands %d levels deep; %d are the most", above+1, mostDepth)
		return z
	}

	// Remember the size of an anchor for its aliases. An alias of an open anchor would repeat itself.
	if n.Anchor != "" {
		s.open[n] = true
		defer func() {
			s.anchors[n] = z
			delete(s.open, n)
		}()
	}

	// A tag would change the type of a value. Only !!str may stand, because the values of a file are read as texts. The
	// tag "!" comes without a style.
	otherTag := n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str"
	if otherTag || n.Tag == "!" {
		s.reader.fail(n, "the tag %q has no meaning here: leave it out", clip(n.Tag))
	}

	z.nodes = 1
	for _, part := range n.Content {
		p := s.of(part, above+1)

		// Bound the sum: nested aliases would multiply it.
		z.nodes, z.depth = min(z.nodes+p.nodes, 2*mostRepeated), max(z.depth, p.depth)
	}

	z.depth++ // the node itself
	return z
}

// alias returns the size of the anchor that an alias repeats. It notes an alias that repeats itself or
// too much, or whose parts stand too deep.
func (s *sizer) alias(n *yaml.Node, above int) size {
	if s.open[n.Alias] {
		s.fail(n, "%q stands in what it repeats", "*"+clip(n.Value))
		return size{}
	}

	// Aliases count as if their text were written out.
	z := s.anchors[n.Alias]
	s.repeated += z.nodes
	switch {
	case s.repeated > mostRepeated:
		s.fail(n, "with %q the file is too large: aliases repeat more than %d values", "*"+clip(n.Value), mostRepeated)
	case above+z.depth > mostDepth:
		s.fail(n, "what %q repeats stands %d levels deep; %d are the most", "*"+clip(n.Value), above+z.depth, mostDepth)
	}

	return z
}

// fail notes a mistake at a node, after which nothing more is counted.
func (s *sizer) fail(n *yaml.Node, format string, args ...any) {
	s.reader.fail(n, format, args...)
	s.ok = false
}

const (
	mostBytes = 1 << 20 // of a file
	mostText  = 1 << 14 // of one value
	mostDepth = 64      // of parts that stand in each other
)

// A reader reads one file and collects its mistakes.
type reader struct {
	file  string
	lines []sourceLine
	errs  Errors
	noted map[mistake]bool

	wildcards []wildcard // that keys, shares, costs and weights have named since the row or the preset began
	routes    *routes    // of the row, or nil outside of rows
	sifted    int        // how many parts around this one look at some answers only

	ids map[string]keyFunc // of the caller, for rows of the catalog; nil in a user's file
}

// A mistake identifies an error: an alias repeats the errors of its anchor.
type mistake struct {
	line, column int
	text         string
}

// A wildcard is a name that a key or a cost expects in the pattern of its policy.
type wildcard struct {
	name   string
	at     *yaml.Node
	offset int
}

func newReader(file string, text []byte) *reader {
	return &reader{file: file, lines: splitLines(string(bytes.TrimPrefix(text, []byte("\ufeff")))), noted: make(map[mistake]bool)}
}

// isEmpty reports whether a node is nothing at all.
func isEmpty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 }

// follow returns the anchor's node for an alias, and any other node itself.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// fail notes a mistake at a node.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.failAt(n.Line, n.Column, format, args...)
}

// failIn notes a mistake offset bytes into the text of a node. If the text up to there does not stand in
// the file as it is, in one line, the mistake stands at the beginning of the node.
func (r *reader) failIn(n *yaml.Node, offset int, format string, args ...any) {
	column := n.Column
	if n.Line <= len(r.lines) && n.Kind == yaml.ScalarNode {
		before := n.Value[:min(offset, len(n.Value))]

		// In quotes the text begins one character later.
		first := n.Column
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			first++
		}

		// Escapes and folded lines move the place, so compare the text with the line.
		line := &r.lines[n.Line-1]
		if before != "" && strings.HasPrefix(line.text[line.at(first):], before) {
			column = first + utf8.RuneCountInString(before)
		}
	}
	r.failAt(n.Line, column, format, args...)
}

// failAt notes a mistake at a place, once, with the line of the place. A place behind the end of the
// file, or in its empty last line, becomes the end of the line before. Line 0 stands for the whole file.
func (r *reader) failAt(line, column int, format string, args ...any) {
	const most = 600 // characters: the text may repeat long values
	e := &Error{File: r.file, Line: line, Column: column, Text: strings.Map(printable, clipTo(fmt.Sprintf(format, args...), most))}

	if line > 0 && len(r.lines) > 0 {
		// YAML reports the end of a file behind the last line. Point behind the last character instead.
		for e.Line > len(r.lines) || e.Line > 1 && e.Line == len(r.lines) && r.lines[e.Line-1].text == "" {
			e.Line = min(e.Line-1, len(r.lines))
			e.Column = utf8.RuneCountInString(r.lines[e.Line-1].text) + 1
		}
		e.Source, e.skipped, e.cut = r.lines[e.Line-1].window(e.Column)
	}

	if m := (mistake{e.Line, e.Column, e.Text}); !r.noted[m] {
		r.noted[m] = true
		r.errs = append(r.errs, e)
	}
}

// kindOf returns what an error calls a node: the everyday name of its kind, or its value in quotes.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 2 && n.Content[0].Kind == yaml.MappingNode:
		return "a mapping in a mapping (a template of another program has to be filled in first)"
	case n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 2 && isEmpty(n.Content[1]):
		return fmt.Sprintf("a mapping (in YAML a value that begins with a brace needs quotes: \"{%s}\")", clip(n.Content[0].Value))
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	}

	return fmt.Sprintf("%q", clip(n.Value))
}

// clip shortens a text that an error repeats to 60 characters.
func clip(text string) string { return clipTo(text, 60) }

// clipTo cuts a text off behind most characters, and appends "…" to a text that it has cut.
func clipTo(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// A document is the root of a file.
type document struct {
	version int
	tables  []presetTable
	rows    []row
	tunnels []tunnelHost
	tests   []placedTest
}

// A tunnelHost is a host to which a proxy carries tunnels of TLS, and where the host stands.
type tunnelHost struct {
	host string
	at   *yaml.Node
}

// tunnelHosts is the shape of a tunnelHost.
var tunnelHosts = defined("tunnel", shape[tunnelHost]{form: tunnelName.form, schema: tunnelName.schema, read: func(r *reader, n *yaml.Node) (tunnelHost, bool) {
	host, ok := tunnelName.read(r, n)
	return tunnelHost{host, follow(n)}, ok
}})

// tunnelName is a host, with a port unless the port is 443.
var tunnelName = scalar(`a host such as "api.example.com" or "api.example.com:8443"`, anyText, func(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, "/@?#*{}% \t") {
		return s, fmt.Errorf("%q is not a host: write it without a scheme, a path and wildcards, such as api.example.com", clip(s))
	}
	return s, nil
})

// checkTunnels notes the hosts of tunnels to which a proxy would carry no tunnel. After any mistake in
// the file it checks nothing.
func (r *reader) checkTunnels(d *document) {
	// With a mistake elsewhere rows may be missing from the table.
	if len(d.tunnels) == 0 || len(r.errs) > 0 {
		return
	}

	// List all hosts as tunnels: then Blind refuses only tunnels of which a policy must see the requests.
	table := proxy.NewTable(d.policies(), d.hosts()...)
	for _, t := range d.tunnels {
		policy, why := table.Blind(t.host)
		switch {
		case !table.Has(t.host):
			r.fail(t.at, "no policy names the host %q, so no tunnel leads there", clip(t.host))
		case why != "":
			r.fail(t.at, "policy %q: %s: a tunnel to %q would be refused", clip(policy), why, clip(t.host))
		}
	}
}

// hosts returns the hosts to which tunnels of TLS are carried.
func (d *document) hosts() (all []string) {
	for _, t := range d.tunnels {
		all = append(all, t.host)
	}
	return all
}

// runbooks returns the addresses of the policies that have one.
func (d *document) runbooks() map[string]string {
	all := make(map[string]string)
	for i := range d.rows {
		if address := d.rows[i].runbook; address != "" {
			all[d.rows[i].Name] = address
		}
	}
	return all
}

// A presetTable is the rows of a preset and where it is named.
type presetTable struct {
	rows      presetRows
	at        *yaml.Node
	wildcards []wildcard // that its keys and costs name
}

// policies returns the rows that requests match.
func (d *document) policies() (all []throttle.Policy) {
	for _, t := range d.tables {
		all = append(all, t.rows...)
	}
	for _, p := range d.rows {
		if !p.named {
			all = append(all, p.Policy)
		}
	}
	return all
}

// named returns the rows that are used by name only.
func (d *document) named() (all []throttle.Policy) {
	for _, p := range d.rows {
		if p.named {
			all = append(all, p.Policy)
		}
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
	versionField,
	partly("presets", "tables of the library: names of packages, or of files of the catalog; options have the names of the Go fields in lower case with hyphens", list(defined("preset", placed(presets))), func(d *document, v []presetTable) { d.tables = v }),
	policiesField,
	partly("tunnels", "hosts to which throttle proxy carries tunnels of TLS: their limits count connections, and the requests inside are neither counted nor held; without the list the proxy refuses such tunnels", list(tunnelHosts), func(d *document, v []tunnelHost) { d.tunnels = v }),
	testsField,
}}

// The fields that files of the catalog have, too.
var (
	versionField  = must(member("version", "the version of this form; a program refuses a version that it does not know", number(1), func(d *document, v int) { d.version = v }))
	policiesField = partly("policies", "rows of your own", list(policyRow), func(d *document, v []row) { d.rows = v })
	testsField    = partly("tests", "requests, and which policies they must match", list(defined("test", test.shape())), func(d *document, v []placedTest) { d.tests = v })
)

// placed returns the shape of a preset that knows its place.
func placed(of shape[presetRows]) shape[presetTable] {
	return shape[presetTable]{form: of.form, schema: of.schema, read: func(r *reader, n *yaml.Node) (presetTable, bool) {
		r.wildcards = nil
		rows, ok := of.read(r, n)
		return presetTable{rows, follow(n), r.wildcards}, ok
	}}
}

// Schema returns the JSON Schema (2020-12) of a file, for editors. The schema accepts every file
// that Parse accepts, and files with mistakes that only Parse can find, such as a malformed limit.
func Schema() []byte {
	s := root.schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "policies of throttle"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return append(text, '\n')
}

// A record is a mapping whose keys are known.
type record[S any] struct {
	name    string // "a policy", for errors
	fields  []field[S]
	ignored string                                                    // keys with this prefix only hold anchors. "" means no such keys
	check   func(r *reader, n *yaml.Node, members []keyed, v *S) bool // called after all fields, even if some have mistakes; may be nil
}

// A fieldHead is the part of a field that readers see.
type fieldHead struct {
	name, doc string
	form      string // a valid value
	usual     string // what counts if the field is missing, or "" if the field is required or doc says it
	required  bool
}

// A field is one key of a record.
type field[S any] struct {
	fieldHead
	advice string // the text behind the name of a missing required field
	read   func(r *reader, n *yaml.Node, to *S) bool
	schema func() schema
}

// member returns the field whose value set puts into the record.
func member[S, T any](name, doc string, of shape[T], set func(*S, T)) field[S] {
	return field[S]{
		fieldHead: fieldHead{name: name, doc: doc, form: of.form}, schema: of.schema,
		read: func(r *reader, n *yaml.Node, to *S) bool {
			v, ok := of.read(r, n)
			if ok {
				set(to, v)
			}
			return ok
		},
	}
}

// partly is member for a value that is set even after a mistake, so that later checks can find more
// mistakes in the parts that could be read.
func partly[S, T any](name, doc string, of shape[T], set func(*S, T)) field[S] {
	return field[S]{
		fieldHead: fieldHead{name: name, doc: doc, form: of.form}, schema: of.schema,
		read: func(r *reader, n *yaml.Node, to *S) bool {
			v, ok := of.read(r, n)
			set(to, v)
			return ok
		},
	}
}

// usually returns the field with the words for what counts if the field is missing.
func (f field[S]) usually(usual string) field[S] {
	f.usual = usual
	return f
}

// must returns the field as a required field.
func must[S any](f field[S]) field[S] {
	f.required = true
	return f
}

// mustSay is must with advice: the mistake of a missing field says what to write.
func mustSay[S any](f field[S], advice string) field[S] {
	f.required, f.advice = true, ": "+advice
	return f
}

func (d record[S]) shape() shape[S] { return shape[S]{form: d.name, read: d.read, schema: d.schema} }

// read reads a mapping with the record's fields. ok is false after a mistake: then v has the fields
// without mistakes, and what partly has set.
func (d record[S]) read(r *reader, n *yaml.Node) (v S, ok bool) {
	n = follow(n)
	members, isMapping, ok := r.members(n, d.name)
	if !isMapping {
		return v, false
	}

	seen := make(map[string]bool)
	hints := "" // names of fields, in quotes, that misspelt fields may have meant
	for _, m := range members {
		// Keys with the ignored prefix only hold anchors.
		if d.ignored != "" && strings.HasPrefix(m.name, d.ignored) {
			continue
		}

		i := slices.IndexFunc(d.fields, func(f field[S]) bool { return f.name == m.name })
		if i < 0 {
			hint := d.hint(m.name)
			r.fail(m.key, "%s has no field %q%s; it has %s", d.name, clip(m.name), hint, strings.Join(d.names(), ", "))
			hints += hint
			ok = false
			continue
		}

		seen[m.name] = true
		ok = d.fields[i].read(r, m.value, &v) && ok
	}

	for _, f := range d.fields {
		// A misspelt field is not missing: one mistake is enough.
		if f.required && !seen[f.name] && !strings.Contains(hints, strconv.Quote(f.name)) {
			r.fail(n, "%s needs a field %q%s", d.name, f.name, f.advice)
			ok = false
		}
	}

	if d.check != nil {
		ok = d.check(r, n, members, &v) && ok
	}

	return v, ok
}

// heads returns the part of the fields that readers see.
func (d record[S]) heads() (all []fieldHead) {
	for _, f := range d.fields {
		all = append(all, f.fieldHead)
	}
	return all
}

// hint returns a hint to what is wrong with an unknown name: a space, or the spelling. Without a guess it
// returns "".
func (d record[S]) hint(name string) string {
	return cmp.Or(oddSpace(name), missingSpace(name), didYouMean(name, d.names()))
}

func (d record[S]) names() (names []string) {
	for _, f := range d.fields {
		names = append(names, f.name)
	}
	return names
}

// schema returns the JSON schema of a mapping with the record's fields.
func (d record[S]) schema() schema {
	properties, required := schema{}, []any{}
	for _, f := range d.fields {
		// Several fields may share a schema, so a copy gets the description.
		property := maps.Clone(f.schema())
		property["description"] = f.doc
		if f.usual != "" {
			property["description"] = f.doc + "; default: " + f.usual
		}
		properties[f.name] = property
		if f.required {
			required = append(required, f.name)
		}
	}

	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}

	return s
}
