package match

import (
	"net/http"
	"slices"
	"strings"
)

// An Index finds all patterns that match a request without trying each: the host's labels
// lead down one tree, from the right, and the path's segments down a second tree. The cost
// of a request grows with the patterns that it matches, in part or in full, and not with
// the rest. An Index never changes and is safe for concurrent use.
//
// A host that a pattern names in full is looked up at once: most requests go to such a
// host.
type Index struct {
	everywhere gates // of the patterns without a host
	hosts      hostNode
	named      map[string][]gates // the tree's gates for the hosts that are named in full
}

// A hostNode stands for the labels that lead to it.
type hostNode struct {
	literal map[string]*hostNode
	wild    *hostNode
	exact   gates // of the hosts that end here
	below   gates // of "*.": one or more labels follow
}

// A gate is the port and method that a request must have to be looked up in a tree of paths.
type gate struct {
	port   string // or "" for any port
	method string // or "" for any method
}

// gates are few: one for each pair of port and method in the patterns of one host.
type gates []gatePaths

type gatePaths struct {
	gate
	paths *pathNode
}

// A pathNode stands for the segments that lead to it. Its lists hold positions
// of patterns.
type pathNode struct {
	literal map[string]*pathNode
	few     []childPath // the first of them: to compare takes less than to hash
	wild    *pathNode
	ends    [endSubtree + 1][]int32 // by how the pattern ends here
}

// A childPath is a node with the segment that leads to it.
type childPath struct {
	seg  string
	node *pathNode
}

// fewChildren is how many nodes are compared before the rest are looked up.
const fewChildren = 4

// NewIndex returns an index of ps; Match answers with positions in it. A nil pattern matches nothing.
func NewIndex(ps []*Pattern) *Index {
	x := &Index{named: make(map[string][]gates)}

	// Grow the trees: from the host's labels to its gates, through one gate, and along the path's segments.
	made := make(map[madeGate]*pathNode)
	for i, p := range ps {
		if p == nil {
			continue
		}

		n := x.gates(p).grow(gate{p.port, p.method}, made)
		for _, s := range p.segs {
			n = n.grow(s)
		}

		n.ends[p.end] = append(n.ends[p.end], int32(i))
	}

	// Walk the tree of hosts, now that it is whole, once for each host that a pattern names in full.
	for _, p := range ps {
		if p == nil {
			continue
		}
		if host := p.fullHost(); host != "" {
			x.named[host] = x.gatesOf(nil, host)
		}
	}

	return x
}

// gates returns the gates of the pattern's host.
func (x *Index) gates(p *Pattern) *gates {
	if len(p.labels) == 0 {
		return &x.everywhere
	}
	n := &x.hosts
	for _, l := range p.labels {
		n = n.grow(l)
	}
	if p.deep {
		return &n.below
	}
	return &n.exact
}

// grow returns the node to which a label leads, made if need be.
func (n *hostNode) grow(l part) *hostNode {
	if l.wild {
		if n.wild == nil {
			n.wild = &hostNode{}
		}
		return n.wild
	}
	if n.literal == nil {
		n.literal = make(map[string]*hostNode)
	}
	return grow(n.literal, l.text)
}

// grow returns the node to which a segment leads, made if need be.
func (n *pathNode) grow(s part) *pathNode {
	if s.wild {
		if n.wild == nil {
			n.wild = &pathNode{}
		}
		return n.wild
	}

	if n.literal == nil {
		n.literal = make(map[string]*pathNode)
	}

	// The first children are in the list, too, if this is a new one.
	known := len(n.literal)
	c := grow(n.literal, s.text)
	if len(n.literal) > known && known < fewChildren {
		n.few = append(n.few, childPath{s.text, c})
	}

	return c
}

// A madeGate is a gate of some hosts, while an index is made.
type madeGate struct {
	of *gates
	gate
}

// grow returns the paths behind a gate, made if need be.
func (g *gates) grow(k gate, made map[madeGate]*pathNode) *pathNode {
	n := made[madeGate{g, k}]
	if n == nil {
		n = new(pathNode)
		*g, made[madeGate{g, k}] = append(*g, gatePaths{k, n}), n
	}
	return n
}

// grow returns the node at k, made if need be.
func grow[N any](m map[string]*N, k string) *N {
	if m[k] == nil {
		m[k] = new(N)
	}
	return m[k]
}

// Match appends to dst the positions of all patterns that match r, ascending. A path that
// hides dot segments, such as "/x/%2e%2e/send", matches the patterns of the path as written
// and the patterns of "/send", which is the path on servers that decode first. Match
// allocates only if dst has no room, the URL is very long, or its path hides dot segments.
func (x *Index) Match(dst []int32, r *http.Request) []int32 {
	var segs [16]string
	t, host := look(r, segs[:0])
	n := len(dst)
	dst = x.matchTarget(dst, &t, host)

	// Both paths count, because nobody knows which of them the server sees.
	hidden := t.hidesDots()
	if hidden {
		dst = x.matchTarget(dst, lookDecoded(r), host)
	}

	// The trees answer in no order. A pattern may match both paths, and counts once.
	if len(dst)-n > 1 {
		slices.Sort(dst[n:])
	}
	if hidden {
		dst = dst[:n+len(slices.Compact(dst[n:]))]
	}

	return dst
}

// matchTarget appends the positions of the patterns that match a target, in any order.
func (x *Index) matchTarget(dst []int32, t *target, host string) []int32 {
	if known, ok := x.named[host]; ok {
		return matchAll(dst, t, known)
	}
	return x.matchUnnamed(dst, t, host)
}

// matchUnnamed is matchTarget for a host that no pattern names in full, or not as the request
// writes it.
func (x *Index) matchUnnamed(dst []int32, t *target, host string) []int32 {
	var few [8]gates
	return matchAll(dst, t, x.gatesOf(few[:0], host))
}

// matchAll appends the positions of the patterns behind gates that match a target.
func matchAll(dst []int32, t *target, all []gates) []int32 {
	for _, g := range all {
		dst = g.match(dst, t)
	}
	return dst
}

// gatesOf appends to dst the gates of all patterns that a host matches.
func (x *Index) gatesOf(dst []gates, host string) []gates {
	var labels [8]string
	return x.hosts.gatesOf(x.everywhere.appendTo(dst), splitHost(labels[:0], host))
}

// appendTo appends gates, if there are any.
func (g gates) appendTo(dst []gates) []gates {
	if len(g) == 0 {
		return dst
	}
	return append(dst, g)
}

// gatesOf appends to dst the gates of the patterns below the node that match the remaining labels of a host,
// the last label first.
func (n *hostNode) gatesOf(dst []gates, labels []string) []gates {
	if len(labels) == 0 {
		return n.exact.appendTo(dst)
	}

	// A label is left, so "*." matches. Then both the label itself and a wildcard may lead on.
	dst = n.below.appendTo(dst)
	if c := n.child(labels[0]); c != nil {
		dst = c.gatesOf(dst, labels[1:])
	}
	if n.wild != nil {
		dst = n.wild.gatesOf(dst, labels[1:])
	}
	return dst
}

// child returns the node to which a label leads, in upper or lower case, or nil if there is none.
func (n *hostNode) child(label string) *hostNode {
	if !hasUpper(label) {
		return n.literal[label]
	}
	var buf [64]byte // a label has at most 63 bytes
	return n.literal[string(appendLower(buf[:0], label))]
}

// match looks behind every gate that the request passes.
func (g gates) match(dst []int32, t *target) []int32 {
	for i := range g {
		if g[i].lets(t) {
			dst = g[i].paths.match(dst, t, t.segs)
		}
	}
	return dst
}

// lets reports whether a request passes. GET lets HEAD pass.
func (g *gate) lets(t *target) bool {
	if g.port != "" && g.port != t.port {
		return false
	}
	return g.method == "" || g.method == t.method || g.method == http.MethodGet && t.method == http.MethodHead
}

// match appends the positions of the patterns below the node that match a target, of which segs are the
// remaining segments.
func (n *pathNode) match(dst []int32, t *target, segs []string) []int32 {
	// The path ends here. With a slash at its end it matches "{$}" and subtrees, and otherwise the node alone.
	if len(segs) == 0 {
		if !t.slash {
			return append(dst, n.ends[endHere]...)
		}
		dst = append(dst, n.ends[endSlash]...)
		return append(dst, n.ends[endSubtree]...)
	}

	// The path goes on, so a subtree matches. Then both the segment itself and a wildcard may lead on.
	dst = append(dst, n.ends[endSubtree]...)
	if c := n.child(t, segs[0]); c != nil {
		dst = c.match(dst, t, segs[1:])
	}
	if n.wild != nil {
		dst = n.wild.match(dst, t, segs[1:])
	}

	return dst
}

// child returns the node to which a segment of a target leads, or nil if there is none.
func (n *pathNode) child(t *target, seg string) *pathNode {
	if t.escaped && strings.IndexByte(seg, '%') >= 0 {
		return n.escapedChild(seg)
	}

	// To compare a few children takes less than to hash the segment.
	for i := range n.few {
		if n.few[i].seg == seg {
			return n.few[i].node
		}
	}
	if len(n.literal) == len(n.few) {
		return nil
	}
	return n.literal[seg]
}

// escapedChild is child for a percent-encoded segment: patterns have segments unescaped.
func (n *pathNode) escapedChild(seg string) *pathNode {
	var buf [128]byte
	return n.literal[string(appendPlain(buf[:0], seg))]
}
