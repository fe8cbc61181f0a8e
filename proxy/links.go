package proxy

import (
	"net/http"
	"strings"
)

// linkFields are the fields of answers that hold one link each. The field Link has several.
var linkFields = []string{"Location", "Content-Location"}

// links sees to it that a caller that follows the links of an answer stays with the proxy.
type links struct {
	known   *known
	outside func(host string) // is told of links that are left as they are
}

// rewrite makes of the links to hosts of the policies, in the header of an answer, what the caller
// of a route writes to reach them. What follows the host stays as it is, byte for byte.
func (l *links) rewrite(h http.Header, to *route) {
	for _, name := range linkFields {
		for i, link := range h[name] {
			h[name][i] = l.rewriteLink(link, to)
		}
	}
	for i, list := range h["Link"] {
		h["Link"][i] = l.rewriteList(list, to)
	}
}

// rewriteList rewrites the links in angle brackets of a field Link (RFC 8288). Brackets in the
// quoted values of parameters are text.
func (l *links) rewriteList(list string, to *route) string {
	var out strings.Builder
	for quoted := false; list != ""; {
		end := endOf(list, `"<\`)
		out.WriteString(list[:end])
		if list = list[end:]; list == "" {
			break
		}
		switch c := list[0]; {
		case c == '<' && !quoted:
			link, rest, closed := strings.Cut(list[1:], ">")
			if !closed {
				out.WriteString(list)
				return out.String()
			}
			out.WriteString("<" + l.rewriteLink(link, to) + ">")
			list = rest
			continue
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && len(list) > 1:
			out.WriteByte(c)
			list = list[1:]
		}
		out.WriteByte(list[0])
		list = list[1:]
	}
	return out.String()
}

// rewriteLink returns a link as the caller of a route writes it. A link relative to the path of
// the request stays.
func (l *links) rewriteLink(link string, to *route) string {
	scheme, host, rest, ok := splitLink(link)
	switch {
	case !ok && strings.HasPrefix(link, "/"):
		return to.root + link
	case !ok:
		return link
	}
	switch plain := withoutPort(scheme, host); {
	case !isHost(host): // or a user's name stands before the host
	case sameHost(plain, to.target.Host), sameHost(plain, to.field):
		return to.here + rest
	case to.anywhere != "" && l.known.has(plain):
		return to.anywhere + plain + rest
	}
	l.outside(host[strings.LastIndexByte(host, '@')+1:])
	return link
}

// splitLink cuts "https://host/path" or "//host/path"; false: the link has no host, or is for
// another protocol.
func splitLink(link string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(link, "//")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "" && scheme != "http:" && scheme != "https:" {
		return "", "", "", false
	}
	end := endOf(rest, "/?#")
	return scheme, rest[:end], rest[end:], true
}

// withoutPort returns the host of a link without the port that its scheme implies.
func withoutPort(scheme, host string) string {
	if scheme != "https:" {
		if plain, ok := strings.CutSuffix(host, ":80"); ok {
			return plain
		}
	}
	return strings.TrimSuffix(host, ":443")
}
