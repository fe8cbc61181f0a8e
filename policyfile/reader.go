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
)

// A reader reads one file and collects its mistakes.
type reader struct {
	file  string
	lines []sourceLine
	errs  Errors
	noted map[mistake]bool

	wildcards []wildcard // that keys have named since the row began
	sifted    int        // how many parts around this one look at some answers only
}

// A mistake is what makes two errors the same one: an alias repeats those of its anchor.
type mistake struct {
	line, column int
	text         string
}

// newReader returns a reader of a text.
func newReader(file string, text []byte) *reader {
	return &reader{file: file, lines: splitLines(string(bytes.TrimPrefix(text, []byte("\ufeff")))), noted: make(map[mistake]bool)}
}

// parse returns the file's root; ok is false if it is no YAML, or too large.
func (r *reader) parse(text []byte) (root *yaml.Node, ok bool) {
	if len(text) > mostBytes {
		r.failAt(1, 1, "the file has %d bytes; %d are the most", len(text), mostBytes)
		return nil, false
	}
	if !r.checkEncoding(text) {
		return nil, false
	}
	var doc yaml.Node
	if err := yaml.Load(bytes.TrimPrefix(text, []byte("\ufeff")), &doc); err != nil {
		r.failYAML(err)
		return nil, false
	}
	if len(doc.Content) != 1 || isEmpty(doc.Content[0]) {
		r.failAt(1, 1, "%s", emptyFile)
		return nil, false
	}
	return doc.Content[0], r.checkSize(doc.Content[0])
}

const emptyFile = `the file is empty; it begins with "version: 1"`

// isEmpty reports whether a node is nothing at all.
func isEmpty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 }

// follow returns what a node stands for: the anchor's node for an alias.
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

// failIn notes a mistake so many bytes into the text of a node, if the text stands in the
// file as it is: without escapes, and in one line.
func (r *reader) failIn(n *yaml.Node, offset int, format string, args ...any) {
	column := n.Column
	if n.Line <= len(r.lines) && n.Kind == yaml.ScalarNode {
		before, first := n.Value[:min(offset, len(n.Value))], n.Column
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			first++
		}
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

// kindOf says what a node is, as people say it.
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

// clipTo shortens a text to so many characters.
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
