package policyfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

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

	wildcards []wildcard // that keys have named since the row began
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

// newReader returns a reader of a text.
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

// failIn notes a mistake offset bytes into the text of a node, if the text stands in the file
// without escapes, in one line.
func (r *reader) failIn(n *yaml.Node, offset int, format string, args ...any) {
	column := n.Column
	if n.Line <= len(r.lines) && n.Kind == yaml.ScalarNode {
		before, first := n.Value[:min(offset, len(n.Value))], n.Column

		// In quotes the text begins one character later.
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			first++
		}

		// Escapes and folded lines move the place: point into the text only if it stands there as it is.
		line := &r.lines[n.Line-1]
		if before != "" && strings.HasPrefix(line.text[line.at(first):], before) {
			column = first + utf8.RuneCountInString(before)
		}
	}
	r.failAt(n.Line, column, format, args...)
}

// failAt notes a mistake at a place. A place behind the file's last character is there.
func (r *reader) failAt(line, column int, format string, args ...any) {
	const most = 600 // characters, also if values are long
	e := &Error{File: r.file, Line: line, Column: column, Text: strings.Map(printable, clipTo(fmt.Sprintf(format, args...), most))}

	if line > 0 && len(r.lines) > 0 {
		// YAML reports the end of a file behind the last line. Point to the last character instead.
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

// kindOf returns the everyday name of a node's kind.
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

// clip shortens a text that an error repeats.
func clip(text string) string { return clipTo(text, 60) }

// clipTo shortens a text to most characters.
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
