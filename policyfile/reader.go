package policyfile

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	mostNodes = 100_000 // what aliases repeat counts again: a file must not be a bomb
	mostDepth = 64
	mostBytes = 1 << 20
)

// A reader reads one file and collects its mistakes.
type reader struct {
	file    string
	lines   []string
	errs    Errors
	visited int
	depth   int
}

// parse returns the file's root; ok is false if it is no YAML, or too large.
func (r *reader) parse(text []byte) (root *yaml.Node, ok bool) {
	r.lines = strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n")
	if len(text) > mostBytes {
		r.failAt(0, 0, "the file has %d bytes; %d are the most", len(text), mostBytes)
		return nil, false
	}
	var doc yaml.Node
	if err := yaml.Load(text, &doc); err != nil {
		r.failYAML(err)
		return nil, false
	}
	if len(doc.Content) != 1 {
		r.failAt(0, 0, "the file is empty; it begins with \"version: 1\"")
		return nil, false
	}
	return doc.Content[0], true
}

// failYAML notes what the YAML library found.
func (r *reader) failYAML(err error) {
	var all *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case errors.As(err, &all):
		for _, e := range all.Errors {
			r.failLoad(e)
		}
	case errors.As(err, &one):
		r.failLoad(one)
	default:
		r.failAt(0, 0, "%v", err)
	}
}

func (r *reader) failLoad(e *yaml.LoadError) {
	text := strings.TrimPrefix(e.Message, "yaml: ")
	switch {
	case strings.Contains(text, "no documents"):
		text = "the file is empty; it begins with \"version: 1\""
	case strings.Contains(text, "multiple"):
		text = "the file has several documents; one is read"
	case e.ContextMsg != "":
		text = e.ContextMsg + ": " + text
	}
	r.failAt(e.Mark.Line, e.Mark.Column, "%s", text)
}

// enter follows an alias and counts the node; ok is false if the file is too large or
// too deep with all that its aliases repeat. Each enter that is ok needs a leave.
func (r *reader) enter(n *yaml.Node) (at *yaml.Node, ok bool) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.visited++
	r.depth++
	switch {
	case r.visited == mostNodes || r.visited < mostNodes && r.depth == mostDepth:
		r.fail(n, "the file is too large or too deep, with all that its aliases repeat")
		r.visited = mostNodes + 1 // nothing more is read
		fallthrough
	case r.visited > mostNodes:
		r.depth--
		return n, false
	}
	return n, true
}

func (r *reader) leave() { r.depth-- }

// fail notes a mistake at a node.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.failIn(n, 0, format, args...)
}

// failIn notes a mistake so many bytes into the text of a node.
func (r *reader) failIn(n *yaml.Node, offset int, format string, args ...any) {
	column := n.Column
	if quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0; offset > 0 && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		column += len([]rune(n.Value[:min(offset, len(n.Value))]))
		if quoted {
			column++
		}
	}
	r.failAt(n.Line, column, format, args...)
}

func (r *reader) failAt(line, column int, format string, args ...any) {
	e := &Error{File: r.file, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
	if line > 0 && line <= len(r.lines) {
		e.Source = strings.TrimSuffix(r.lines[line-1], "\r")
	}
	r.errs = append(r.errs, e)
}

// kindOf says what a node is, as people say it.
func kindOf(n *yaml.Node) string {
	switch {
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
func clip(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
