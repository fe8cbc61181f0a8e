package match

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An Index finds all patterns that match a request without trying each: the host's labels,
// the last label first, lead down one tree, and the path's segments lead down a second tree.
// The time that a request takes grows with the patterns that it matches, in part or in full,
// and not with the rest. An Index never changes and is safe for concurrent use.
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

// A gatePaths is a gate with the tree of paths behind it.
type gatePaths struct {
	gate
	paths *pathNode
}

// A pathNode stands for the segments that lead to it. Its lists hold positions
// of patterns.
type pathNode struct {
	literal map[string]*pathNode
	few     []childPath // the first children: comparing a few takes less time than hashing
	wild    *pathNode
	ends    [endSubtree + 1][]int32 // the patterns without further segments, by their ending
}

// A childPath is a node with the segment that leads to it.
type childPath struct {
	seg  string
	node *pathNode
}

// fewChildren is how many children are compared before the rest are looked up.
const fewChildren = 4

// NewIndex returns an index of ps. Match returns positions in ps. A nil pattern matches nothing.
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

	// Walk the tree of hosts, now that it is whole, for each host that a pattern names in full.
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

// gates returns the gates of the pattern's host. It makes the nodes of the host's labels if need be.
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

	// A new child is in few, too, if it is one of the first.
	children := len(n.literal)
	c := grow(n.literal, s.text)
	isNew := len(n.literal) > children
	if isNew && children < fewChildren {
		n.few = append(n.few, childPath{s.text, c})
	}

	return c
}

// A madeGate names one gate among the gates of some hosts, while an index is made.
type madeGate struct {
	of *gates
	gate
}

// grow returns the paths behind the gate k, made if need be. made has the paths behind every gate
// of the index, and gets the new paths.
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

// Match appends to dst the positions of all patterns that match r, ascending. Some servers
// decode a path before they clean it: for them "/x/%2e%2e/send", which hides a dot segment,
// is "/send". Such a path matches the patterns of both, as written and decoded. If dst has
// room, Match does not allocate, unless the path hides dot segments or has a broken escape, or
// the parts of the URL or the gates of its host do not fit into the arrays on the stack.
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

	// The trees return positions in no order, and a pattern that matches both paths twice.
	if len(dst)-n > 1 {
		slices.Sort(dst[n:])
	}
	if hidden {
		dst = dst[:n+len(slices.Compact(dst[n:]))]
	}

	return dst
}

// matchTarget appends the positions of the patterns that match a target with that host, in any
// order.
func (x *Index) matchTarget(dst []int32, t *target, host string) []int32 {
	if known, ok := x.named[host]; ok {
		return matchAll(dst, t, known)
	}
	return x.matchUnnamed(dst, t, host)
}

// matchUnnamed is matchTarget for a host that no pattern names in full, or that the request writes
// in a different form, such as in upper case.
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

// appendTo appends g to dst, unless g is empty.
func (g gates) appendTo(dst []gates) []gates {
	if len(g) == 0 {
		return dst
	}
	return append(dst, g)
}

// gatesOf appends to dst the gates at the node and below it whose patterns match the remaining labels of a host.
// The last label of the host comes first.
func (n *hostNode) gatesOf(dst []gates, labels []string) []gates {
	if len(labels) == 0 {
		return n.exact.appendTo(dst)
	}

	// A label is left, so "*." matches. The patterns with more labels lie behind the label itself and behind a wildcard.
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

// match appends the positions of the patterns that match a target, behind every gate that lets the
// target through.
func (g gates) match(dst []int32, t *target) []int32 {
	for i := range g {
		if g[i].lets(t) {
			dst = g[i].paths.match(dst, t, t.segs)
		}
	}
	return dst
}

// lets reports whether the gate lets a target through. A gate for GET lets HEAD through, too.
func (g *gate) lets(t *target) bool {
	if g.port != "" && g.port != t.port {
		return false
	}
	return g.method == "" || g.method == t.method || g.method == http.MethodGet && t.method == http.MethodHead
}

// match appends the positions of the patterns at the node and below it that match a target, of which segs
// are the remaining segments.
func (n *pathNode) match(dst []int32, t *target, segs []string) []int32 {
	// The path ends here. With a slash at its end it matches "{$}" and subtrees, and without one only patterns that end here.
	if len(segs) == 0 {
		if !t.slash {
			return append(dst, n.ends[endHere]...)
		}
		dst = append(dst, n.ends[endSlash]...)
		return append(dst, n.ends[endSubtree]...)
	}

	// The path goes on, so a subtree matches. The patterns with more segments lie behind the segment itself and behind a
	// wildcard.
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

	// Comparing a few children takes less time than hashing the segment. If there are no others, nothing is hashed.
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

// A target is what patterns see of a request.
type target struct {
	method  string
	port    string   // "" if unknown
	path    string   // as the URL has it
	segs    []string // of the cleaned path
	slash   bool     // the cleaned path ends with a slash
	escaped bool     // path and segs are percent-encoded
}

// look returns the target of a request, and its host without the port, in upper or lower case.
// It appends the segments to segs, which may lie on the stack.
//
// The host is the URL's: the connection goes there, and the limits of that host
// count. The Host field may name a different host, behind a gateway for example.
func look(r *http.Request, segs []string) (t target, host string) {
	t.method, t.segs, t.slash = r.Method, segs, true
	if t.method == "" {
		t.method = http.MethodGet // as for http.Client
	}

	u := r.URL
	if u == nil {
		return t, "" // without segments the path is "/", so slash is true
	}

	// Patterns have ports without leading zeros.
	host, port := SplitPort(u.Host)
	if port != "" {
		t.port = strings.TrimLeft(port[1:], "0")
	}

	// The scheme implies a port if the URL writes none.
	switch {
	case t.port != "":
	case u.Scheme == "http":
		t.port = "80"
	case u.Scheme == "https":
		t.port = "443"
	}

	path, escaped := pathOf(u)
	t.path, t.escaped = path, escaped

	// With t.path in place of path the compiler would move segs to the heap.
	t.segs, t.slash = splitPath(segs, path)

	return t, host
}

// hidesDots reports whether servers that decode the path before they clean it see a different path: see HidesDots.
func (t *target) hidesDots() bool { return hidesDots(t.path, t.escaped) }

// requestHidesDots is hidesDots for the target of a request.
func requestHidesDots(r *http.Request) bool {
	if r.URL == nil {
		return false
	}
	return hidesDots(pathOf(r.URL))
}

// lookDecoded returns the target of a request as servers see it that decode the path before they clean it.
func lookDecoded(r *http.Request) *target {
	t, _ := look(r, nil)
	path := string(appendDecoded(nil, t.path, t.escaped))
	t.path, t.escaped = path, false
	t.segs, t.slash = splitPath(nil, path)
	return &t
}

// HidesDots reports whether a percent-encoded path has a segment "." or ".." in disguise:
// with dots written as "%2e", or between "%2f", "%5c" or backslashes in place of slashes.
// Many servers decode such a path before they clean it, and serve a different path than the
// text says (RFC 3986, 6.2.2.3).
func HidesDots(path string) bool { return hidesDots(path, true) }

// hidesDots is HidesDots for a path that may be unescaped. In an unescaped path only backslashes can hide dots.
func hidesDots(path string, escaped bool) bool {
	if strings.IndexByte(path, '\\') < 0 && (!escaped || strings.IndexByte(path, '%') < 0) { // as in most paths
		return false
	}

	// Decoding keeps every segment of dots. If the decoded path has more of them, the rest were hidden.
	var buf [256]byte
	return dotSegments(appendDecoded(buf[:0], path, escaped)) > dotSegments(path)
}

// dotSegments returns how many segments of a path are "." or "..".
func dotSegments[P string | []byte](path P) (n int) {
	start := 0
	for i := range len(path) + 1 {
		if i < len(path) && path[i] != '/' {
			continue
		}

		// A segment ends at i. It is one of the two if it has one or two bytes, of which the first and the last are dots.
		if seg := path[start:i]; len(seg) > 0 && len(seg) < 3 && seg[0] == '.' && seg[len(seg)-1] == '.' {
			n++
		}
		start = i + 1
	}
	return n
}

// appendDecoded appends a path as the most lenient server reads it: unescaped, except for
// broken escapes, and with slashes in place of backslashes.
func appendDecoded(dst []byte, path string, escaped bool) []byte {
	for path != "" {
		c, n := path[0], 1
		if escaped {
			c, n = unescape(path)
		}

		switch {
		// A broken escape stands for itself.
		case n == 0:
			c, n = '%', 1
		case c == '\\':
			c = '/'
		}

		dst, path = append(dst, c), path[n:]
	}

	return dst
}

// plain returns s, one or more segments of the path, unescaped.
func (t *target) plain(s string) string {
	if !t.escaped {
		return s
	}
	return plain(s)
}

// SplitPort cuts the port off a host, which may be an IPv6 address in brackets. port begins with the
// colon, and is "" if there is none.
func SplitPort(hostport string) (host, port string) {
	if strings.IndexByte(hostport, ':') < 0 { // as in most hosts
		return hostport, ""
	}
	i := strings.LastIndexByte(hostport, ':')
	if i < strings.LastIndexByte(hostport, ']') {
		return hostport, ""
	}
	return hostport[:i], hostport[i:]
}

// splitHost appends the labels of a host to labels, the last label first. It returns nil
// for a malformed host, so that only patterns without a host match it.
func splitHost(labels []string, host string) []string {
	// An IPv6 address is one label.
	if strings.HasPrefix(host, "[") {
		return append(labels, host)
	}

	host = strings.TrimSuffix(host, ".")
	for more := true; more; {
		i := strings.LastIndexByte(host, '.')
		label := host[i+1:]
		if label == "" {
			return nil
		}

		// i is -1 at the host's first label.
		labels = append(labels, label)
		host, more = host[:max(i, 0)], i >= 0
	}

	return labels
}

// splitPath appends the segments of a path, cleaned: "/a//b/./../c" is "/a/c". slash says that
// the clean path ends with a slash, as the empty path does.
func splitPath(segs []string, path string) (_ []string, slash bool) {
	slash = strings.HasSuffix(path, "/")
	path = strings.TrimPrefix(path, "/")
	for path != "" {
		seg := path
		if i := strings.IndexByte(path, '/'); i < 0 {
			path = ""
		} else {
			seg, path = path[:i], path[i+1:]
		}

		// An empty segment and "." stand for nothing, and ".." takes away the segment before it, if there is one.
		switch seg {
		case "", ".":
		case "..":
			segs = segs[:max(len(segs)-1, 0)]
		default:
			segs = append(segs, seg)
		}
	}

	return segs, slash || len(segs) == 0
}

// pathOf returns the path as it will be sent, with escaped true, or its unescaped
// form, with escaped false, if both have the same segments. It takes the place of
// [url.URL.EscapedPath], which allocates.
func pathOf(u *url.URL) (path string, escaped bool) {
	if u.Opaque != "" {
		return opaquePath(u.Opaque), true
	}
	if u.RawPath != "" && spells(u.RawPath, u.Path) {
		return u.RawPath, true
	}
	return u.Path, false
}

// opaquePath returns the path in the opaque part of a URL, which is sent in
// the path's place: "/path" or "//host/path".
func opaquePath(opaque string) string {
	path, _, _ := strings.Cut(opaque, "?")
	if after, ok := strings.CutPrefix(path, "//"); ok {
		_, path, _ = strings.Cut(after, "/")
		path = "/" + path
	}
	return path
}

// spells reports whether raw is a valid percent-encoding of path, as a URL's
// RawPath should be: otherwise the RawPath is ignored when a request is sent.
func spells(raw, path string) bool {
	if strings.ContainsFunc(raw, notInRawPath) {
		return false
	}
	for raw != "" {
		c, n := unescape(raw)
		if n == 0 || path == "" || path[0] != c {
			return false
		}
		raw, path = raw[n:], path[1:]
	}
	return path == ""
}

// alphanumeric reports whether a character is a letter or a digit of ASCII.
func alphanumeric(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// notInRawPath reports whether a character can stand in no percent-encoded path.
func notInRawPath(c rune) bool {
	return !alphanumeric(c) && !strings.ContainsRune("-_.~/!$&'()*+,;=:@[]%", c)
}

// unescape returns the first byte for which s stands, and how many bytes of s spell it. n is 0
// if s begins with a broken escape. s is not empty.
func unescape(s string) (c byte, n int) {
	if s[0] != '%' {
		return s[0], 1
	}
	if len(s) < 3 {
		return 0, 0
	}
	v, err := strconv.ParseUint(s[1:3], 16, 8)
	if err != nil {
		return 0, 0
	}
	return byte(v), 3
}

// appendPlain appends s unescaped, or as it is if it holds a broken escape.
func appendPlain(dst []byte, s string) []byte {
	start := len(dst)
	for rest := s; rest != ""; {
		c, n := unescape(rest)
		if n == 0 {
			return append(dst[:start], s...)
		}
		dst, rest = append(dst, c), rest[n:]
	}
	return dst
}

// plain returns s unescaped, or as it is if it holds a broken escape.
func plain(s string) string { return string(appendPlain(nil, s)) }

// appendLower appends s with the letters A to Z in lower case.
func appendLower(dst []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// hasUpper reports whether s has a letter from A to Z. It looks at bytes: runes cost too much for
// each label of each request.
func hasUpper(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}
