// Package match holds the patterns of policies and finds those that match a
// request. They are http.ServeMux patterns with the differences that the
// documentation of package throttle lists.
package match

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Pattern is one parsed Match of a policy, piece by piece. [Index] does the matching.
type Pattern struct {
	method string
	labels []part // of the host, the last label first. There are none if the pattern matches every host.
	deep   bool   // the host began with "*.": one or more labels follow labels
	port   string // or "" for every port
	segs   []part // of the path, unescaped
	end    ending
	rest   string   // the name of "{name...}", if it has one
	names  []string // of all wildcards: empty for most patterns
}

// A part is a label of a host or a segment of a path.
type part struct {
	text string // the literal, or the wildcard's name
	wild bool
}

// An ending is the part of a path that may follow the pattern's segments.
type ending uint8

const (
	endHere    ending = iota // nothing
	endSlash                 // "{$}": one slash
	endSubtree               // "/" or "{name...}": one slash and anything after it
)

// Parse parses a pattern "[METHOD ][HOST]/[PATH]". The pattern "" matches every
// request. An error says at which byte the mistake is.
func Parse(s string) (*Pattern, error) {
	p := &Pattern{}
	if s == "" {
		p.end = endSubtree
		return p, nil
	}

	// A method, if there is one, ends at the first space.
	rest := s
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		p.method, rest = s[:i], strings.TrimLeft(s[i:], " \t")
	}
	if strings.ContainsFunc(p.method, notToken) {
		return nil, mistake(0, "invalid method %q (a space in a path is written %%20)", p.method)
	}

	// The host ends where the path begins, at the first slash.
	start := len(s) - len(rest)
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return nil, mistake(len(s), "no path: end the host with a slash, %q, to match all its paths", s+"/")
	}

	host, path := rest[:slash], rest[slash:]
	if strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//") {
		return nil, mistake(start, "a pattern has no scheme: leave out %q", host+"//")
	}

	if host != "" {
		if err := p.parseHost(host, start); err != nil {
			return nil, err
		}
	}

	if err := p.parsePath(path, start+slash); err != nil {
		return nil, err
	}

	return p, nil
}

// parseHost parses a host with its port. The host is not empty, and begins at byte off of the pattern.
func (p *Pattern) parseHost(host string, off int) error {
	host, port := SplitPort(host)
	if len(port) > 0 {
		n, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || n == 0 {
			return mistake(off+len(host), "bad port %q: a port is a number from 1 to 65535", port)
		}
		p.port = strconv.FormatUint(n, 10)
	}

	// An IPv6 address is one label. Its colons and dots separate nothing.
	if strings.HasPrefix(host, "[") {
		addr, err := netip.ParseAddr(strings.TrimSuffix(host[1:], "]"))
		if err != nil || !addr.Is6() || !strings.HasSuffix(host, "]") {
			return mistake(off, "bad IPv6 address %q", host)
		}

		p.labels = []part{{text: string(appendLower(nil, host))}}
		return nil
	}

	if i := strings.Index(host, "..."); i >= 0 {
		return mistake(off+i, `"..." does not belong in a host: write "*." at its front for one or more labels`)
	}

	host = strings.TrimSuffix(host, ".")
	if below, ok := strings.CutPrefix(host, "*."); ok {
		p.deep, host, off = true, below, off+len("*.")
	}

	// off is the byte at which each label begins, for its mistakes.
	for label := range strings.SplitSeq(host, ".") {
		l, err := p.parseLabel(label, off)
		if err != nil {
			return err
		}

		p.labels = append(p.labels, l)
		off += len(label) + len(".")
	}

	// No top-level domain is a number, so a number as the last label is the end of an IPv4 address. off is beyond that label
	// and a dot.
	slices.Reverse(p.labels)
	if last := p.labels[0]; p.wideHost() && !last.wild && numeric(last.text) {
		return mistake(off-len(last.text)-len("."), "an IP address has no wildcards")
	}

	return nil
}

// parseLabel parses one label of a host, which begins at byte off of the pattern.
func (p *Pattern) parseLabel(label string, off int) (part, error) {
	if strings.HasPrefix(label, "{") {
		name, err := p.parseWildcard(label, off)
		return part{name, true}, err
	}

	switch i := strings.IndexFunc(label, notInLabel); {
	case label == "":
		return part{}, mistake(off, "empty label in the host")
	case label == "*":
		return part{}, mistake(off, `"*" stands only at the front of a longer host, as in "*.example.com/"; `+
			`leave the host out to match every host, or name the label, as in "{name}.example.com/"`)
	case i >= 0:
		return part{}, mistake(off+i, "%q does not belong in a host", label[i])
	}

	return part{text: string(appendLower(nil, label))}, nil
}

// parsePath parses a path, which begins with a slash at byte off of the pattern.
func (p *Pattern) parsePath(path string, off int) error {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return mistake(off+i, "only paths are matched: leave out the query, or write %%%02X for %[1]q", path[i])
	}

	// Cut off one segment after the other. If more is false the segment is the last, which may also be "", "{$}" or "{name...}".
	rest, off := path[1:], off+1
	for more := true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		switch {
		// The path ends with a slash.
		case !more && seg == "":
			p.end = endSubtree
		case seg == "" || seg == "." || seg == "..":
			return mistake(off, "a segment %q matches nothing, because paths are cleaned first", seg)
		case !strings.Contains(seg, "{"):
			p.segs = append(p.segs, part{text: plain(seg)})
		case !more && seg == "{$}":
			p.end = endSlash
		case !more && strings.HasSuffix(seg, "...}"):
			name, err := p.parseWildcard(strings.TrimSuffix(seg, "...}")+"}", off)
			if err != nil {
				return err
			}
			p.end, p.rest = endSubtree, name
		default:
			name, err := p.parseWildcard(seg, off)
			if err != nil {
				return err
			}
			p.segs = append(p.segs, part{name, true})
		}

		off += len(seg) + len("/")
	}

	return nil
}

// parseWildcard parses a label or segment that should be "{name}", at byte off of the pattern, and adds the name to
// the pattern's names.
func (p *Pattern) parseWildcard(s string, off int) (name string, err error) {
	name, ok := strings.CutPrefix(s, "{")
	if !ok || !strings.HasSuffix(name, "}") {
		return "", mistake(off, "bad wildcard %q: it takes up a whole segment or label, as in {name}", s)
	}

	name = strings.TrimSuffix(name, "}")
	switch {
	case name == "$" || strings.HasSuffix(name, "..."):
		return "", mistake(off, "%q stands only at the end of a path", s)
	case !identifier(name):
		return "", mistake(off+1, "bad wildcard name %q: it is a Go identifier", name)
	case slices.Contains(p.names, name):
		return "", mistake(off+1, "the wildcard name %q stands twice", name)
	}

	p.names = append(p.names, name)
	return name, nil
}

// Names returns the names of the pattern's wildcards.
func (p *Pattern) Names() []string { return p.names }

// fullHost returns the host if the pattern names it in full, without wildcards, and otherwise "".
func (p *Pattern) fullHost() string {
	if p.wideHost() {
		return ""
	}
	labels := make([]string, len(p.labels))
	for i, l := range p.labels {
		labels[len(labels)-1-i] = l.text
	}
	return strings.Join(labels, ".")
}

// wideHost reports whether the pattern matches more than one host.
func (p *Pattern) wideHost() bool {
	return p.deep || slices.ContainsFunc(p.labels, func(l part) bool { return l.wild })
}

// Covers reports whether each request that matches o matches p, too. It is always right
// when it returns true, and may return false although p covers o.
func (p *Pattern) Covers(o *Pattern) bool {
	if p.method != "" && p.method != o.method || p.port != "" && p.port != o.port {
		return false
	}
	return p.coversHost(o) && p.coversPath(o)
}

// coversHost is Covers for hosts.
func (p *Pattern) coversHost(o *Pattern) bool {
	switch pLabels, oLabels := len(p.labels), len(o.labels); {
	// A pattern without labels matches every host.
	case pLabels == 0:
		return true

	// A pattern with labels does not match every host, as o does.
	case oLabels == 0:
		return false

	// Each host of o has too few labels for p, which needs one more than p.labels.
	case p.deep && !o.deep && pLabels >= oLabels:
		return false

	// Some hosts of o have too few labels for p, or too many.
	case !p.deep && (o.deep || pLabels != oLabels):
		return false
	}
	return cover(p.labels, o.labels)
}

// coversPath is Covers for paths.
func (p *Pattern) coversPath(o *Pattern) bool {
	switch pSegs, oSegs := len(p.segs), len(o.segs); {
	// Some paths of o have too few segments for p, or too many.
	case pSegs > oSegs, pSegs < oSegs && p.end != endSubtree:
		return false

	// With equally many segments the endings must fit: "/a/" does not match "/a".
	case pSegs == oSegs && p.end == endSubtree && o.end == endHere:
		return false

	// An ending that is no subtree matches itself alone.
	case pSegs == oSegs && p.end != endSubtree && p.end != o.end:
		return false
	}
	return cover(p.segs, o.segs)
}

// cover reports whether outer covers the first parts of inner: each part of outer is a
// wildcard, or the same literal as the part of inner at its place. It returns false if
// inner has fewer parts than outer.
func cover(outer, inner []part) bool {
	if len(outer) > len(inner) {
		return false
	}
	for i, o := range outer {
		if !o.wild && (inner[i].wild || o.text != inner[i].text) {
			return false
		}
	}
	return true
}

// Bind returns r as the functions of the pattern's policy should see it: with
// the wildcards' values for [http.Request.PathValue]. The pattern must match r. Bind
// returns a shallow copy, or r itself if the pattern names no wildcard. A host's values are
// in lower case, so that they do not depend on how the caller writes the host. A path that
// hides dot segments has the values of the decoded path, if the pattern matches that path:
// so no caller can choose the spelling of its key.
func (p *Pattern) Bind(r *http.Request) *http.Request {
	if len(p.names) == 0 {
		return r
	}

	// The decoded path decides, if the pattern matches it.
	var few [8]string
	var segs [16]string
	t, host := look(r, segs[:0])
	if t.hidesDots() {
		if decoded := lookDecoded(r); len(NewIndex([]*Pattern{p}).matchTarget(nil, decoded, host)) > 0 {
			t = *decoded
		}
	}

	// The pattern matches the request, so its parts and the parts of the request are in the same places. For a request
	// that the pattern does not match, min keeps the index in bounds.
	labels := splitHost(few[:0], host)
	bound := withOwnPathValues(r)
	for i, l := range p.labels[:min(len(p.labels), len(labels))] {
		if l.wild {
			bound.SetPathValue(l.text, string(appendLower(nil, labels[i])))
		}
	}

	n := min(len(p.segs), len(t.segs))
	for i, s := range p.segs[:n] {
		if s.wild {
			bound.SetPathValue(s.text, t.plain(t.segs[i]))
		}
	}

	// "{name...}" is everything behind the pattern's segments, with the slash at the end of the path.
	if p.rest != "" {
		rest := strings.Join(t.segs[n:], "/")
		if rest != "" && t.slash {
			rest += "/"
		}
		bound.SetPathValue(p.rest, t.plain(rest))
	}

	return bound
}

// A Bound binds one request for many patterns. Consecutive patterns with the same wildcards at the same
// places share one copy: the rows of a table mostly have wildcards in the host alone. The zero Bound is
// ready.
type Bound struct {
	pattern *Pattern
	request *http.Request
	hides   bool // the path hides dot segments, so each pattern may see a different path
}

// For is [Pattern.Bind], but may return the copy of the call before. All calls must have the same request.
func (b *Bound) For(p *Pattern, r *http.Request) *http.Request {
	if len(p.names) == 0 {
		return r
	}
	if b.pattern == nil || b.hides || !p.bindsAs(b.pattern) {
		b.pattern, b.request, b.hides = p, p.Bind(r), requestHidesDots(r)
	}
	return b.request
}

// bindsAs reports whether two patterns that match the same path of a request give it the same values.
func (p *Pattern) bindsAs(o *Pattern) bool {
	return p.rest == o.rest && (p.rest == "" || len(p.segs) == len(o.segs)) &&
		sameWildcards(p.labels, o.labels) && sameWildcards(p.segs, o.segs)
}

// sameWildcards reports whether two lists of parts have the same wildcards at the same places.
func sameWildcards(a, b []part) bool {
	// a is the longer list. Behind the end of b each part counts as a literal, so only a wildcard in a makes a difference.
	if len(a) < len(b) {
		a, b = b, a
	}

	for i := range a {
		var other part
		if i < len(b) {
			other = b[i]
		}
		if a[i].wild != other.wild || a[i].wild && a[i].text != other.text {
			return false
		}
	}

	return true
}

// withOwnPathValues returns a shallow copy of r whose path values can be set without
// changing the path values of r: a request that a server passes on has some. Only Clone
// copies the path values, so the fields that Clone would copy deeply are taken out for the call.
func withOwnPathValues(r *http.Request) *http.Request {
	bare := *r
	bare.URL, bare.Header, bare.Trailer, bare.TransferEncoding = nil, nil, nil, nil
	bare.Form, bare.PostForm, bare.MultipartForm = nil, nil, nil
	c := bare.Clone(r.Context())
	c.URL, c.Header, c.Trailer, c.TransferEncoding = r.URL, r.Header, r.Trailer, r.TransferEncoding
	c.Form, c.PostForm, c.MultipartForm = r.Form, r.PostForm, r.MultipartForm
	return c
}

// mistake returns an error that says at which byte of the pattern, off, the mistake is.
func mistake(off int, format string, args ...any) error {
	return fmt.Errorf("at offset %d: %s", off, fmt.Sprintf(format, args...))
}

// notToken reports whether a character can stand in no method: a method is a token of RFC 9110.
func notToken(c rune) bool {
	return !alphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// notInLabel reports whether a character can stand in no label of a host. Letters of any script can, and
// are compared as they are.
func notInLabel(c rune) bool {
	return !alphanumeric(c) && c != '-' && c != '_' && c < 0x80
}

// numeric reports whether a text has no character but digits.
func numeric(s string) bool { return strings.Trim(s, "0123456789") == "" }

// identifier reports whether a text is a Go identifier.
func identifier(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != ""
}

// everyGroup is the group of patterns that can match requests to any host.
const everyGroup = "*"

// Groups returns the group of each pattern. Two patterns that can match the same request
// share a group. A pattern's group is its own Group or, if patterns have whole zones around
// it, the widest of these zones. "*.com/" has all of .com, "*.com.cn/" all of .com.cn, and a
// pattern that can match any last label has everything.
//
// A nil pattern is for work that can need any policy, so it has everything, too.
func Groups(ps []*Pattern) []string {
	// A pattern with a whole zone can match the same request as every pattern in the zone.
	wide := make(map[string]bool)
	for _, p := range ps {
		if g, whole := p.Group(); whole {
			wide[g] = true
		}
	}

	gs := make([]string, len(ps))
	for i, p := range ps {
		gs[i], _ = p.Group()

		// The widest zone comes first, and includes the narrower zones.
		for _, zone := range p.zones() {
			if wide[zone] {
				gs[i] = zone
				break
			}
		}
	}

	return gs
}

// Group returns the part of the pattern's host that somebody has registered:
// the label below its registry and the registry, as in "dingtalk.com" and
// "example.com.cn", or the whole of an IP address. If the pattern can match many
// such hosts, Group returns the zone in which all of them lie, and whole is true.
func (p *Pattern) Group() (g string, whole bool) {
	zones := p.zones()
	g = zones[len(zones)-1]

	n := len(zones) - 1 // how many labels the registry has
	switch {
	// The pattern can match any last label.
	case n == 0:
		return g, true

	// The pattern names no label below the registry: it is the registry itself, or "*." in front of it.
	case len(p.labels) <= n:
		return g, p.deep

	// The label below the registry is a wildcard.
	case p.labels[n].wild:
		return g, true
	}

	// The labels of an IPv4 address are no registry and no names below it.
	if len(p.labels) == 4 && !p.wideHost() {
		host := p.zone(4)
		if _, err := netip.ParseAddr(host); err == nil {
			return host, false
		}
	}

	return p.zone(n + 1), false
}

// zones returns the zones around the pattern's hosts, the widest first: everything, the
// last label and, if they are a registry, the last two labels.
func (p *Pattern) zones() []string {
	zones := []string{everyGroup}
	if p == nil || len(p.labels) == 0 || p.labels[0].wild {
		return zones
	}
	zones = append(zones, p.labels[0].text)
	if len(p.labels) > 1 && !p.labels[1].wild && registry(p.labels[1].text, p.labels[0].text) {
		zones = append(zones, p.zone(2))
	}
	return zones
}

// zone returns the last n labels, of which none is a wildcard.
func (p *Pattern) zone(n int) string {
	texts := make([]string, n)
	for i, l := range p.labels[:n] {
		texts[n-1-i] = l.text
	}
	return strings.Join(texts, ".")
}

// registry reports whether names are registered below a second label, as below
// com.cn and co.uk: a word for a kind of owner, in the zone of a country. The
// whole list of such zones is long and changes. A zone that is missing here makes
// its hosts share a group, which costs speed and breaks nothing.
func registry(second, country string) bool {
	if len(country) != 2 {
		return false
	}
	switch second {
	case "com", "net", "org", "edu", "gov", "mil", "co", "or", "ne", "ac", "go", "ad", "gob", "gouv":
		return true
	}
	return false
}
