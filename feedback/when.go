package feedback

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// When selects answers. All of its fields must match; an empty field always matches. Of several
// values in a field, one match is enough. The zero value selects every answer.
//
// Texts are compared without regard to case, except paths. A "*" at the beginning or the end of a
// value stands for any text.
type When struct {
	Status []int             // 429, 503
	Method []string          // of the request: "POST"
	Host   []string          // of the request, without the port: "api.example.com", "*.example.com"
	Path   []string          // of the request: "/v1/orders", "/v1/*"
	Media  []string          // Content-Type without parameters: "application/json", "text/*"
	Header map[string]string // every one of these, by name: "true", "quota-*"; "" for any value
}

// Then returns a reader that calls r for the selected answers, and says nothing of every other answer.
func (w When) Then(r Reader) Reader {
	return func(resp *http.Response) throttle.Answer {
		if !w.holds(resp) {
			return throttle.Answer{}
		}
		return r(resp)
	}
}

// holds reports whether an answer is selected.
func (w When) holds(resp *http.Response) bool {
	return (len(w.Status) == 0 || slices.Contains(w.Status, resp.StatusCode)) &&
		anyLike(w.Media, mediaType(resp)) &&
		w.header(resp.Header) &&
		w.request(resp.Request)
}

// header reports whether an answer's header has all of Header.
func (w When) header(h http.Header) bool {
	for name, want := range w.Header {
		values := valuesOf(h, name)
		if want == "" && len(values) > 0 {
			continue
		}
		if !slices.ContainsFunc(values, func(v string) bool { return like(want, v) }) {
			return false
		}
	}
	return true
}

// request reports whether the request of an answer is selected.
func (w When) request(req *http.Request) bool {
	if len(w.Method) == 0 && len(w.Host) == 0 && len(w.Path) == 0 {
		return true
	}

	// Answers that a program has made itself may have no request.
	if req == nil || req.URL == nil {
		return false
	}

	method := req.Method
	if method == "" {
		method = http.MethodGet
	}

	return anyLike(w.Method, method) &&
		anyLike(w.Host, strings.TrimSuffix(req.URL.Hostname(), ".")) &&
		(len(w.Path) == 0 || slices.ContainsFunc(w.Path, func(p string) bool { return wild(p, req.URL.Path) }))
}

// mediaType returns the answer's Content-Type in lower case and without
// parameters, which are often malformed.
func mediaType(resp *http.Response) string {
	media, _, _ := strings.Cut(firstOf(resp.Header, "Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// anyLike reports whether a text is like one of the patterns, or there are none.
func anyLike(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return like(p, s) })
}

// like is wild without regard to case.
func like(pattern, s string) bool {
	if !open(pattern) {
		return strings.EqualFold(pattern, strings.TrimSpace(s))
	}
	return wild(strings.ToLower(pattern), folded(s))
}

// folded returns a text as texts are compared: in lower case and without spaces around it.
func folded(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// wild reports whether s is the pattern's text, where a "*" at either end of the pattern stands for any text.
func wild(pattern, s string) bool {
	text, front := strings.CutPrefix(pattern, "*")
	text, back := strings.CutSuffix(text, "*")
	switch {
	case front && back:
		return strings.Contains(s, text)
	case front:
		return strings.HasSuffix(s, text)
	case back:
		return strings.HasPrefix(s, text)
	}
	return s == text
}
