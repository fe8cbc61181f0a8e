package policyfile

import "go.yaml.in/yaml/v4"

const (
	mostRepeated = 300_000 // nodes that aliases may repeat in all: a file must not be a bomb
	mostDepth    = 64
)

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

// of returns the size of a node that stands so deep. After the first mistake it counts no
// more.
func (s *sizer) of(n *yaml.Node, above int) (z size) {
	switch {
	case !s.ok:
		return z
	case n.Kind == yaml.AliasNode:
		return s.alias(n, above)
	case above >= mostDepth:
		s.fail(n, "this stands %d levels deep; %d are the most", above+1, mostDepth)
		return z
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
