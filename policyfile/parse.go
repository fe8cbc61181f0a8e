package policyfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// parse returns the file's root; ok is false if it is no YAML, or too large.
func (r *reader) parse(text []byte) (root *yaml.Node, ok bool) {
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

// checkEncoding sees to it that a text is UTF-8 without characters that no editor shows
// as they are: YAML takes some of them for the end of a line.
func (r *reader) checkEncoding(text []byte) bool {
	if name := otherEncoding(text); name != "" {
		r.lines = nil // there are none in UTF-8
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
// character.
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

// oddCharacter returns the first character of a line that must not stand in a file; "" if
// there is none.
func oddCharacter(line string) (column int, what string) {
	for i, c := range line {
		column++
		switch {
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

// A size is how much there is to read of a node, with all that aliases repeat.
type size struct{ nodes, depth int }

// A sizer counts the nodes of a file. What an anchor holds is counted once.
type sizer struct {
	reader   *reader
	anchors  map[*yaml.Node]size
	open     map[*yaml.Node]bool // anchors that are being counted
	repeated int
	ok       bool
}

// checkSize sees to it that all of a file can be read in a moment: it bounds what aliases
// and merge keys repeat, and how deep parts stand in each other.
func (r *reader) checkSize(root *yaml.Node) bool {
	s := &sizer{reader: r, anchors: make(map[*yaml.Node]size), open: make(map[*yaml.Node]bool), ok: true}
	s.of(root, 0)
	return s.ok
}

// of returns the size of a node that stands below as many levels as above says. After the
// first mistake it returns 0.
func (s *sizer) of(n *yaml.Node, above int) (z size) {
	switch {
	case !s.ok:
		return z
	case n.Kind == yaml.AliasNode:
		return s.alias(n, above)
	case above >= mostDepth:
		s.fail(n, "this stands %d levels deep; %d are the most", above+1, mostDepth)
		return z

	// Remember the size of the anchor for its aliases. While it is open, an alias would repeat itself.
	case n.Anchor != "":
		s.open[n] = true
		defer func() {
			s.anchors[n] = z
			delete(s.open, n)
		}()
	}

	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" || n.Tag == "!" {
		s.reader.fail(n, "the tag %q has no meaning here: leave it out", clip(n.Tag))
	}

	z.nodes = 1
	for _, part := range n.Content {
		p := s.of(part, above+1)

		// Bound the sum: nested aliases would multiply it.
		z.nodes, z.depth = min(z.nodes+p.nodes, 2*mostRepeated), max(z.depth, p.depth)
	}

	z.depth++
	return z
}

// alias returns the size of the anchor that an alias repeats.
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

func (s *sizer) fail(n *yaml.Node, format string, args ...any) {
	s.reader.fail(n, format, args...)
	s.ok = false
}
