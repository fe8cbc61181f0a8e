package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/fleetthrottle/throttle/internal/match"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

// Header returns a [Policy.Key] that reads the first value of a header field. The key
// is "" if the request does not have the field.
//
// Values are hashed before they leave the program. Still, the id of an
// application is a better key than its token: tokens change while the budget
// behind them does not.
func Header(name string) func(*http.Request) string {
	return headerKey(textproto.CanonicalMIMEHeaderKey(name)).of
}

// A headerKey is the name of the field that a [Header] reads, in its canonical form.
type headerKey string

// of is a [Policy.Key]. For nil it returns the faults, as every key function of this package does.
func (k headerKey) of(r *http.Request) string {
	if r == nil {
		return k.faults()
	}
	if values := r.Header[string(k)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// faults returns why no request can have the field, or "".
func (k headerKey) faults() string {
	switch {
	case k == "" || strings.ContainsFunc(string(k), notInFieldName):
		return fmt.Sprintf("Header(%q) is no name of a header field, so no request has it", string(k))
	case k == "Host":
		return `Header("Host") is always empty, because the host of a request is no header field: use Host`
	}
	return ""
}

// Query returns a [Policy.Key] that reads the first value of a parameter in the URL's
// query. The key is "" if the query does not have the parameter. Query does not read the
// body.
//
// Values are hashed before they leave the program. Still, the id of an
// application is a better key than its token: tokens change while the budget
// behind them does not.
func Query(name string) func(*http.Request) string { return queryKey(name).of }

// A queryKey is the name of the parameter that a [Query] reads.
type queryKey string

// of is a [Policy.Key]. For nil it returns the faults.
func (k queryKey) of(r *http.Request) string {
	switch {
	case r == nil:
		return faultOfName("Query", string(k))
	case r.URL == nil:
		return ""
	}
	return queryValue(r.URL.RawQuery, string(k))
}

// PathValue returns a [Policy.Key] that reads the value of a wildcard of the policy's
// pattern, in its host or in its path. [New] refuses a policy whose Match has no such
// wildcard, because all requests would have the key "".
func PathValue(name string) func(*http.Request) string { return pathValueKey(name).of }

// A pathValueKey is the name of the wildcard that a [PathValue] reads.
type pathValueKey string

// of is a [Policy.Key]. For nil it returns the faults, or the wildcard that it reads.
func (k pathValueKey) of(r *http.Request) string {
	if r == nil {
		return cmp.Or(faultOfName("PathValue", string(k)), wildcardMark+string(k))
	}
	return r.PathValue(string(k))
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
// [http.NewRequest] sets GetBody for the readers of packages bytes and strings. So requests of
// methods that have no body, such as most GETs, share the key "".
func BodyMember(name string) func(*http.Request) string { return bodyMemberKey(name).of }

// A bodyMemberKey is the name of the member that a [BodyMember] reads.
type bodyMemberKey string

// of is a [Policy.Key]. For nil it returns the faults.
func (k bodyMemberKey) of(r *http.Request) string {
	if r == nil {
		return faultOfName("BodyMember", string(k))
	}
	if media := r.Header.Get("Content-Type"); !strings.HasPrefix(strings.ToLower(media), "application/json") {
		return ""
	}
	return reqbody.MemberWithin(r, string(k), maxBodyRead)
}

// Host is a [Policy.Key]: the URL's host in lower case, without a trailing dot and
// without an empty or default port, but with any other port.
func Host(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	host, port := match.SplitPort(r.URL.Host)
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	isDefault := port == ":" || port == ":80" && r.URL.Scheme == "http" || port == ":443" && r.URL.Scheme == "https"
	if isDefault {
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

	// Nearly all paths are clean, and path.Clean takes ten times as long to find that out.
	isClean := !strings.Contains(p, "//") && !strings.Contains(p, "/.") && !strings.HasSuffix(p, "/")
	if isClean {
		return p
	}
	return path.Clean(p)
}

// Method is a [Policy.Key]: the request's method. As for [http.Client],
// "" means GET.
func Method(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// Join returns a [Policy.Key] with one budget for each combination of the
// values of fs. Different values never join to the same key, whatever they
// hold, and neither do different numbers of values: Join() is "", and Join(f)
// is not f's value but a key made of it. [New] refuses a Join of nothing.
func Join(fs ...func(*http.Request) string) func(*http.Request) string {
	return (&joinedKey{fs: slices.Clone(fs)}).of
}

// A joinedKey is the function of a [Join].
type joinedKey struct {
	fs   []func(*http.Request) string
	last atomic.Pointer[string] // the last key that was made
}

// of is a [Policy.Key]. For nil it returns the faults of all parts.
func (k *joinedKey) of(r *http.Request) string {
	if r == nil {
		return k.faults()
	}

	var stack [128]byte
	key := stack[:0]
	for _, f := range k.fs {
		// The length in front says where the value ends, so
		// different values never join to the same key.
		value := f(r)
		key = strconv.AppendInt(key, int64(len(value)), 10)
		key = append(key, ':')
		key = append(key, value...)
	}

	// Many programs have one tenant: their requests get the same string again.
	if last := k.last.Load(); last != nil && *last == string(key) {
		return *last
	}

	joined := string(key)
	k.last.Store(&joined)
	return joined
}

// faults returns the faults of all parts, and the wildcards that they read.
func (k *joinedKey) faults() string {
	if len(k.fs) == 0 {
		return "Join() of nothing is the same key for every request: leave the key out"
	}

	var all []string
	for _, f := range k.fs {
		if f == nil {
			all = append(all, "Join has a function that is nil")
			continue
		}

		// A function of this package tells its own faults, and the wildcards that it reads.
		faults, wildcards := inspectKey(f)
		all = append(all, faults...)
		for _, name := range wildcards {
			all = append(all, wildcardMark+name)
		}
	}

	return strings.Join(all, faultEnd)
}

// queryValue is url.ParseQuery(query).Get(name), but parses no more than it needs. Like
// ParseQuery it skips malformed pairs.
func queryValue(query, name string) string {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}

		rawKey, rawValue, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(rawKey); err != nil || key != name {
			continue
		}
		if value, err := url.QueryUnescape(rawValue); err == nil {
			return value
		}
	}

	return ""
}

// Route returns a [Policy.Key] whose value is the first of the patterns that a request
// matches, such as "/users/{id}", so that paths with ids share one budget. The patterns are
// in the language of [Policy.Match]. A more specific pattern does not win by itself: list
// it first. All requests that match no pattern share the key "".
//
// [New] refuses a policy with a malformed pattern, or with a pattern that never counts
// because a pattern before it matches all of its requests.
func Route(patterns ...string) func(*http.Request) string {
	k := &routeKey{patterns: slices.Clone(patterns)}
	k.parse()
	return k.of
}

// A routeKey has the function of a [Route].
type routeKey struct {
	patterns []string
	index    *match.Index // of the patterns, or nil if there are faults
	faults   string
}

// of is a [Policy.Key]. For nil it returns the faults, with which [New] refuses the policy. For a
// request it panics with the faults if there are some, because every result would be a wrong budget.
func (k *routeKey) of(r *http.Request) string {
	switch {
	case r == nil:
		return k.faults
	case k.faults != "":
		panic(&keyError{k.faults})
	case r.URL == nil:
		return ""
	}

	// The index finds all patterns that match, in no order, and the first in the list counts.
	var buf [fewPolicies]int32
	found := k.index.Match(buf[:0], r)
	if len(found) == 0 {
		return ""
	}

	return k.patterns[slices.Min(found)]
}

// parse sets index, or faults if there is a mistake in the patterns.
func (k *routeKey) parse() {
	if len(k.patterns) == 0 {
		k.faults = `Route() has no pattern: name some, such as Route("/users/{id}", "/users/{id}/posts")`
		return
	}

	// The first pattern that matches counts, so a pattern behind a pattern that covers it never does.
	var all []string
	parsed := make([]*match.Pattern, len(k.patterns))
	for i, text := range k.patterns {
		p, err := match.Parse(text)
		if text == "" {
			err = errors.New("is empty") // to Parse it is a pattern that matches every request
		}

		if err != nil {
			all = append(all, fmt.Sprintf("Route: pattern %q: %v", text, err))
			continue
		}

		parsed[i] = p
		before := slices.IndexFunc(parsed[:i], func(b *match.Pattern) bool { return b != nil && b.Covers(p) })
		if before >= 0 {
			all = append(all, fmt.Sprintf("Route: pattern %q never counts, because %q stands before it and matches all of its requests: put it first, or leave it out", text, k.patterns[before]))
		}
	}

	if len(all) > 0 {
		k.faults = strings.Join(all, faultEnd)
		return
	}

	k.index = match.NewIndex(parsed)
}

// A function cannot be inspected. So a key function of this package, if it is called with nil
// in place of a request, returns its faults and the wildcards that it reads, joined by faultEnd.
const (
	faultEnd     = "\x00" // separates faults and wildcards
	wildcardMark = "{"    // begins the name of a wildcard
)

// isOwnKey reports whether a constructor of this package has made a key function, so that
// it can be called with nil. Each constructor returns a method of its own type, and all
// values of one method have the same code.
func isOwnKey(f func(*http.Request) string) bool {
	code := func(f func(*http.Request) string) uintptr { return reflect.ValueOf(f).Pointer() }
	own := [...]uintptr{
		code(headerKey("").of), code(queryKey("").of), code(pathValueKey("").of), code(bodyMemberKey("").of),
		code(new(joinedKey).of), code(new(routeKey).of),
	}
	return f != nil && slices.Contains(own[:], code(f))
}

// inspectKey returns the faults of a key function of this package, and the wildcards that
// the function reads. It does not call a function of the program's own, and returns nothing
// for it.
func inspectKey(f func(*http.Request) string) (faults, wildcards []string) {
	if !isOwnKey(f) {
		return nil, nil
	}
	for said := range strings.SplitSeq(f(nil), faultEnd) {
		if name, ok := strings.CutPrefix(said, wildcardMark); ok {
			wildcards = append(wildcards, name)
		} else if said != "" {
			faults = append(faults, said)
		}
	}
	return faults, wildcards
}

// checkKeyFunc returns the faults of a policy's key function, which may be nil. To read a wildcard
// that the policy's pattern does not have is a fault, unless the pattern is nil, because it is
// malformed or missing.
func checkKeyFunc(f func(*http.Request) string, pattern *match.Pattern) (errs []error) {
	faults, wildcards := inspectKey(f)
	for _, fault := range faults {
		errs = append(errs, &keyError{fault})
	}
	for _, name := range wildcards {
		if pattern != nil && !slices.Contains(pattern.Names(), name) {
			errs = append(errs, &keyError{fmt.Sprintf("PathValue(%q) reads a wildcard that Match does not have, so it is empty for every request: write {%s} in Match, "+
				"or give a function of your own that calls PathValue of the request, if the value is that of a request that came in", name, name)})
		}
	}
	return errs
}

// A keyError is a fault of a key function of this package.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// faultOfName returns the fault of a key function without a name, and "" for a function
// with a name.
func faultOfName(constructor, name string) string {
	if name != "" {
		return ""
	}
	return constructor + `("") names nothing, so all requests would have the same key`
}

// notInFieldName reports whether a character can stand in no name of a header field.
func notInFieldName(c rune) bool {
	alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
