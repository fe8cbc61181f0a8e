package proxy

import (
	"net/http"
	"strings"
)

// linkFields are the fields of an answer with one link each. The field Link has
// several.
var linkFields = []string{"Location", "Content-Location"}

// links rewrites links in answers so that a caller that follows one stays with the proxy. A link to a
// different host of the policies leads to a different origin of the proxy, or stays unchanged, so that a
// client does not send the credential of one API to the next.
type links struct {
	known   *known
	outside func(host string) // is told of links that bypass the proxy
}

// rewrite replaces the origin of each link to a host of the policies by the caller's address of that host.
// Path, query and fragment stay byte for byte.
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

// rewriteList rewrites the links in angle brackets of a field Link (RFC 8288). Brackets inside quoted
// parameters are text.
func (l *links) rewriteList(list string, to *route) string {
	var out strings.Builder
	for quoted := false; list != ""; {
		// Only these three characters change the meaning of the text behind them.
		end := endOf(list, `"<\`)
		out.WriteString(list[:end])
		list = list[end:]
		if list == "" {
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

// rewriteLink returns a link for the caller of a route. A relative link stays unless it leads above the root
// of the API, where the caller's path would reach a different API.
func (l *links) rewriteLink(link string, to *route) string {
	// Clients that parse URLs like browsers drop tabs and read a backslash as a slash.
	link = strings.ReplaceAll(link, "\t", "")
	end := endOf(link, "?#")
	link = strings.ReplaceAll(link[:end], `\`, "/") + link[end:]

	// A link without a host is relative.
	scheme, host, rest, ok := splitLink(link)
	switch {
	case !ok && strings.HasPrefix(link, "/"):
		return to.root + belowRoot(link, to)
	case !ok && to.root != "" && !strings.Contains(link[:endOf(link, "/?#")], ":"):
		base := to.target.EscapedPath()
		if whole := base[:strings.LastIndexByte(base, '/')+1] + link; belowRoot(whole, to) != whole {
			return to.root + belowRoot(whole, to)
		}

		// Below the root a relative link works as it is.
		return link

	case !ok:
		return link
	}

	// An absolute link leads to the upstream itself, to a different upstream, or outside.
	switch plain := withoutPort(scheme, host); {
	case !isHost(host): // or user information precedes the host
	case sameHost(plain, to.target.Host), sameHost(plain, to.field):
		return to.here + belowRoot(rest, to)
	case to.others != "" && l.known.has(plain):
		return to.others + plain + belowRoot(rest, to)
	case to.byProxy && scheme != "https:":
		if _, _, known := l.known.meant(host); known {
			return link // the client sends it to the proxy as it is
		}
	}

	l.outside(host[strings.LastIndexByte(host, '@')+1:])
	return link
}

// belowRoot returns a path, with query and fragment, without the dot segments that lead above the root. At
// the upstream they mean nothing (RFC 3986, 5.2.4). Behind the proxy they would lead to a different API.
func belowRoot(rest string, to *route) string {
	end := endOf(rest, "?#")
	path, above := strings.TrimPrefix(rest[:end], "/"), false
	if to.root == "" || path == "" {
		return rest
	}

	var kept []string
	for seg := range strings.SplitSeq(path, "/") {
		switch dots(seg) {
		case 2:
			above = above || len(kept) == 0
			kept = kept[:max(len(kept)-1, 0)]
		case 0:
			kept = append(kept, seg)
		}
	}

	if !above {
		return rest // keep it byte for byte
	}

	return "/" + strings.Join(kept, "/") + rest[end:]
}

// splitLink splits "https://host/path" or "//host/path". ok is false for a link without a host, or with a
// scheme that is not http or https.
func splitLink(link string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(link, "//")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "" && scheme != "http:" && scheme != "https:" {
		return "", "", "", false
	}
	end := endOf(rest, "/?#")
	return scheme, rest[:end], rest[end:], true
}

// withoutPort removes the default port of a link's scheme from its host.
func withoutPort(scheme, host string) string {
	if scheme != "https:" {
		if plain, ok := strings.CutSuffix(host, ":80"); ok {
			return plain
		}
	}
	return strings.TrimSuffix(host, ":443")
}
