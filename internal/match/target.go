package match

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// A target is what patterns see of a request.
type target struct {
	method  string
	port    string   // "" if unknown
	path    string   // as the URL has it
	segs    []string // of the cleaned path
	slash   bool     // the cleaned path ends with a slash
	escaped bool     // path and segs are percent-encoded
}

// look reads r, and its host: without the port, in any case. It appends to segs, which
// may lie on the stack.
//
// The host is the URL's: that is where the connection goes and whose limits
// count. The Host field may name a different host, behind a gateway for example.
func look(r *http.Request, segs []string) (t target, host string) {
	t.method, t.segs, t.slash = r.Method, segs, true
	if t.method == "" {
		t.method = http.MethodGet // as for http.Client
	}

	u := r.URL
	if u == nil {
		return t, ""
	}

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
	t.segs, t.slash = splitPath(segs, path) // not t.path: segs would move to the heap

	return t, host
}

// hidesDots reports whether servers that decode the path before they clean it see a different path.
func (t *target) hidesDots() bool { return hidesDots(t.path, t.escaped) }

// lookDecoded returns the target that such a server sees.
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

// hidesDots is HidesDots for a path that may be unescaped: then only backslashes can hide dots.
func hidesDots(path string, escaped bool) bool {
	if strings.IndexByte(path, '\\') < 0 && (!escaped || strings.IndexByte(path, '%') < 0) { // as in most
		return false
	}

	// Each segment of dots in the path is one in the decoded path as well.
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

		// A segment ends at i.
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

// SplitPort cuts ":port" off a host, which may be an IPv6 address in brackets.
func SplitPort(hostport string) (host, port string) {
	if strings.IndexByte(hostport, ':') < 0 { // as in most
		return hostport, ""
	}
	i := strings.LastIndexByte(hostport, ':')
	if i < strings.LastIndexByte(hostport, ']') {
		return hostport, ""
	}
	return hostport[:i], hostport[i:]
}

// splitHost appends the labels of a host to labels, the last label first. It returns nil
// for a malformed host, which so matches only patterns without a host.
func splitHost(labels []string, host string) []string {
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

// pathOf returns the path as it will be sent, or its unescaped form where both
// have the same segments. It is [url.URL.EscapedPath] without allocations.
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

// notInRawPath reports whether no percent-encoded path has a character.
func notInRawPath(c rune) bool {
	return !alphanumeric(c) && !strings.ContainsRune("-_.~/!$&'()*+,;=:@[]%", c)
}

// unescape returns the first byte that s, not empty, stands for and how many bytes spell
// it, which is 0 if s begins with a broken escape.
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

// hasUpper looks at bytes: runes cost too much for each label of each request.
func hasUpper(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}
