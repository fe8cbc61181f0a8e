package proxy

import (
	"net/http"
	"strings"
)

// linkFields are the fields of answers that hold one link each. The field Link has several.
var linkFields = []string{"Location", "Content-Location"}

// links sees to it that a caller that follows the links of an answer stays with the proxy, and that no credential for
// one API goes to another one: a link to another host of the policies leads to another origin of the proxy, or
// stays as the API has sent it.
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
// the request stays, unless it leads above the root of the API: for the caller another API may begin there.
func (l *links) rewriteLink(link string, to *route) string {
	link = strings.ReplaceAll(link, "\t", "") // clients that read URLs as browsers do leave tabs out
	end := endOf(link, "?#")
	link = strings.ReplaceAll(link[:end], `\`, "/") + link[end:] // and take a backslash for a slash

	scheme, host, rest, ok := splitLink(link)
	switch {
	case !ok && strings.HasPrefix(link, "/"):
		return to.root + belowRoot(link, to)
	case !ok && to.root != "" && !strings.Contains(link[:endOf(link, "/?#")], ":"):
		base := to.target.EscapedPath()
		if whole := base[:strings.LastIndexByte(base, '/')+1] + link; belowRoot(whole, to) != whole {
			return to.root + belowRoot(whole, to)
		}
		return link

	case !ok:
		return link
	}

	switch plain := withoutPort(scheme, host); {
	case !isHost(host): // or a user's name stands before the host
	case sameHost(plain, to.target.Host), sameHost(plain, to.field):
		return to.here + belowRoot(rest, to)
	case to.others != "" && l.known.has(plain):
		return to.others + plain + belowRoot(rest, to)
	case to.byProxy && scheme != "https:":
		if _, _, known := l.known.meant(host); known {
			return link // which comes to the proxy as it is
		}
	}

	l.outside(host[strings.LastIndexByte(host, '@')+1:])
	return link
}

// belowRoot returns a path, with its query and fragment, without the dot segments that lead above the root, which
// mean nothing there (RFC 3986, 5.2.4). Where paths of several APIs have one root, they would lead to another API.
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
		return rest // byte for byte
	}

	return "/" + strings.Join(kept, "/") + rest[end:]
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
