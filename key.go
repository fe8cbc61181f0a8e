package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle/internal/match"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

// Header returns a [Policy.Key] that reads the first value of a header field;
// "" if there is none.
//
// Values are hashed before they leave the program. Still, the id of an
// application is a better key than its token: tokens change while the budget
// behind them does not.
func Header(name string) func(*http.Request) string {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Query returns a [Policy.Key] that reads the first value of a parameter in
// the URL's query; "" if there is none. The body is not looked at.
//
// Values are hashed before they leave the program. Still, the id of an
// application is a better key than its token: tokens change while the budget
// behind them does not.
func Query(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		if r.URL == nil {
			return ""
		}
		return queryValue(r.URL.RawQuery, name)
	}
}

// PathValue returns a [Policy.Key] that reads what a wildcard of the policy's
// pattern matched, in its host or in its path; "" if there is no such
// wildcard.
func PathValue(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.PathValue(name) }
}

// Wildcards returns the names of the wildcards of Match, whose values
// [PathValue] reads. Its error is a mistake in Match.
func (p Policy) Wildcards() ([]string, error) {
	pattern, err := match.Parse(p.Match)
	if err != nil {
		return nil, err
	}
	return slices.Clone(pattern.Names()), nil
}

// maxBodyRead is how much of a request's body a key looks at: all of a long
// conversation with pictures.
const maxBodyRead = 32 << 20

// BodyMember returns a [Policy.Key] that reads a member of the JSON object in a
// request's body, such as the model of a language model's API: a text or a
// number. It returns "" if there is no such member within the first 32 MiB, if
// it is an object or an array, if the Content-Type is not application/json, or
// if the request has no GetBody, without which a body can be read only once.
// [http.NewRequest] sets GetBody for the readers of packages bytes and strings.
func BodyMember(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		if media := r.Header.Get("Content-Type"); !strings.HasPrefix(strings.ToLower(media), "application/json") {
			return ""
		}
		return reqbody.MemberWithin(r, name, maxBodyRead)
	}
}

// Host is a [Policy.Key]: the URL's host in lower case, without a default port
// and a trailing dot, and with any other port.
func Host(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	host, port := match.SplitPort(r.URL.Host)
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if port == ":" || port == ":80" && r.URL.Scheme == "http" || port == ":443" && r.URL.Scheme == "https" {
		return host
	}
	return host + port
}

// RawPath is a [Policy.Key]: the URL's path, unescaped and cleaned, so that "/b",
// "/b/" and "/a/../b" share a budget. An empty path is "/".
func RawPath(r *http.Request) string {
	if r.URL == nil {
		return "/"
	}
	p := r.URL.Path
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") && !strings.HasSuffix(p, "/") {
		return p // clean, as nearly all are: path.Clean takes ten times as long to find that out
	}
	return path.Clean(p)
}

// Method is a [Policy.Key]: the request's method; "" is GET, as for
// [http.Client].
func Method(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// Join returns a [Policy.Key] with one budget for each combination of the
// values of fs. Different values never join to the same key, whatever they
// hold, and neither do different numbers of values: Join() is "", and Join(f)
// is not f's value but a key made of it.
func Join(fs ...func(*http.Request) string) func(*http.Request) string {
	fs = slices.Clone(fs)
	return func(r *http.Request) string {
		var stack [128]byte
		key := stack[:0]
		for _, f := range fs {
			// The length in front says where the value ends, so no
			// value can look like the next one.
			value := f(r)
			key = strconv.AppendInt(key, int64(len(value)), 10)
			key = append(key, ':')
			key = append(key, value...)
		}
		return string(key)
	}
}

// queryValue is url.ParseQuery(query).Get(name), but takes apart no more than
// it needs. Like ParseQuery it passes over pairs that are malformed.
func queryValue(query, name string) string {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			return value
		}
	}
	return ""
}

// Route returns a [Policy.Key] that is the first of the patterns that a request matches, such as "/users/{id}", so that
// paths with ids share one budget. The patterns are in the language of [Policy.Match]. A request that matches none
// has the key "": all such requests share one budget. Route panics if a pattern is wrong, or if there is none, as
// [http.ServeMux.Handle] does: patterns are literals of a program.
func Route(patterns ...string) func(*http.Request) string {
	if len(patterns) == 0 {
		panic(&ConfigError{"", "Route", errors.New("needs a pattern such as \"/users/{id}\"")})
	}
	parsed := make([]*match.Pattern, len(patterns))
	for i, text := range patterns {
		p, err := match.Parse(text)
		if text == "" || err != nil {
			panic(&ConfigError{"", "Route", fmt.Errorf("pattern %q: %w", text, cmp.Or(err, errors.New("is empty")))})
		}
		parsed[i] = p
	}

	patterns, index := slices.Clone(patterns), match.NewIndex(parsed)
	return func(r *http.Request) string {
		var buf [fewPolicies]int32
		if r.URL == nil {
			return ""
		}
		found := index.Match(buf[:0], r)
		if len(found) == 0 {
			return ""
		}
		return patterns[slices.Min(found)]
	}
}
