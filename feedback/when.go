package feedback

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
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
			continue // "" stands for any value
		}
		if !slices.ContainsFunc(values, func(v string) bool { return like(want, v) }) {
			return false
		}
	}
	return true
}

// request reports whether the request of an answer is selected. A missing request is selected only if no
// field is about requests.
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

// anyLike reports whether a text is like one of the patterns, or whether there are no patterns.
func anyLike(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return like(p, s) })
}

// like is wild without regard to case and to spaces around s.
func like(pattern, s string) bool {
	// Without a "*" only an equal text is like the pattern.
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

// Told reads the limit that an upstream tells in its answers, for a policy under [throttle.Told],
// and all that [RateLimit] and [Headers] read of the remaining quota and of refusals. The zero
// value reads, in this order of trust:
//
//   - RateLimit-Policy, and RateLimit-Limit, in all forms of the IETF's drafts: q requests in w
//     seconds. Quotas in different units, such as content-bytes, are ignored.
//   - X-RateLimit-Limit-Second, -Minute and -Hour.
//   - X-RateLimit-Limit with windows, as in "100;w=60" or "20:1,100:120". Without a window the
//     time until X-RateLimit-Reset tells it, as the shortest of a second, 10 seconds, a minute, 10
//     and 15 minutes and an hour that is not shorter. Near the end of a window the guess is too
//     short, and a store prefers the longer window of earlier answers.
//   - in the first 4 KB of a 429, a sentence such as "limit of 60 requests per minute".
//
// Spellings with X-Rate-Limit are read, too. Windows above an hour are ignored, and so is a number
// below 1: the remaining quota of such an answer counts all the same. If an answer tells several
// windows, the result is one window that keeps all of them: their smallest number, in as much time
// as the tightest needs. "100;w=60, 5000;w=3600" is 100 in 72 seconds.
//
// A 401 is ignored, because it speaks of an unknown caller, and so is an answer out of a cache. The
// Retry-After of a 429 counts in any case.
type Told struct {
	// Status are the statuses of answers that may be refusals. Defaults to 403, 429 and 503.
	Status []int
}

// Answer is the [Reader] of the limit, the remaining quota and refusals.
func (t Told) Answer(resp *http.Response) throttle.Answer {
	if resp == nil {
		return throttle.Answer{}
	}

	// Of the fields without a standard read only the spelling that the answer has.
	a := refused(RateLimit{Status: t.Status}.penalty(resp))
	for _, prefix := range plainPrefixes {
		if len(valuesOf(resp.Header, prefix+"Remaining")) > 0 {
			a = both(a, refused(Headers{Remaining: prefix + "Remaining", Reset: prefix + "Reset", Status: t.Status}.penalty(resp)))
		}
	}

	return both(a, t.Left(resp))
}

// Left is a [Reader] of the limit and the remaining quota alone: it treats a refusal like any
// answer.
func (t Told) Left(resp *http.Response) throttle.Answer {
	if resp == nil || !speaks(resp) {
		return throttle.Answer{}
	}

	a := RateLimit{}.Left(resp)
	for _, prefix := range plainPrefixes {
		if len(valuesOf(resp.Header, prefix+"Remaining")) > 0 {
			a = both(a, Headers{Remaining: prefix + "Remaining", Reset: prefix + "Reset"}.Left(resp))
		}
	}

	limit := toldLimit(resp)
	if limit == (throttle.Limit{}) {
		return a
	}

	// A limit without a remaining quota is told by a Quota that is too large to lower anything.
	q, said := a.Left()
	if !said {
		q.Left = math.MaxInt32
	}
	q.Told = limit
	return a.WithLeft(q)
}

// plainPrefixes are the beginnings of the names of the fields without a standard.
var plainPrefixes = [...]string{"X-RateLimit-", "X-Rate-Limit-"}

// An allowance is a number of requests in a length of time, as an upstream tells it.
type allowance struct {
	n   int64
	per time.Duration
}

// toldLimit returns the limit that an answer tells, or the zero Limit. Of the sources the first
// that tells a limit counts.
func toldLimit(resp *http.Response) throttle.Limit {
	for _, source := range []func(*http.Response) []allowance{standardWindows, namedWindows, plainWindows, sentences} {
		if l := keepingAll(source(resp)); l != (throttle.Limit{}) {
			return l
		}
	}
	return throttle.Limit{}
}

// keepingAll returns one window that keeps all told windows, or the zero Limit if a store would keep
// none of them. n starts in any window of per are at most n·k in k windows. So per must be at least
// a k-th of each told window, where k is how many times n goes into the told number.
func keepingAll(all []allowance) throttle.Limit {
	// n is the smallest number.
	var n int64
	for _, w := range all {
		if w.isKept() && (n == 0 || w.n < n) {
			n = w.n
		}
	}
	if n == 0 {
		return throttle.Limit{}
	}

	var per time.Duration
	for _, w := range all {
		if w.isKept() {
			k := time.Duration(w.n / n)
			per = max(per, (w.per+k-1)/k) // rounded up
		}
	}

	return throttle.SlidingWindow(int(n), max(per, store.MinTold)) // a k-th may be too short for a store
}

// isKept reports whether a store would keep the window: see Told of [store.Quota].
func (w allowance) isKept() bool {
	return 1 <= w.n && w.n <= 1<<30 && store.MinTold <= w.per && w.per <= store.MaxTold
}

// standardWindows returns the windows in RateLimit-Policy, in the forms of all drafts, or else in RateLimit-Limit. If
// neither has a window, the reset tells the window of RateLimit-Limit.
func standardWindows(resp *http.Response) []allowance {
	for _, name := range []string{"RateLimit-Policy", "RateLimit-Limit"} {
		list, _ := parseList(strings.Join(valuesOf(resp.Header, name), ","))
		var all []allowance
		for _, member := range list {
			if w, ok := allowanceOf(member); ok {
				all = append(all, w)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return datedWindows(resp, "RateLimit-")
}

// allowanceOf reads a member of a list: "name";q=100;w=60, or 100;w=60 of the earlier drafts. ok is false
// for a member without a number or a window, and for one that does not count requests.
func allowanceOf(member item) (w allowance, ok bool) {
	// The earlier drafts have the number as the member itself.
	quota := member.params["q"]
	if n, plain := member.value.(int64); plain {
		quota = n
	}

	n, counted := quota.(int64)
	seconds, timed := member.params["w"].(int64)
	unit, hasUnit := member.params["qu"]
	otherUnit := hasUnit && unit != "requests"
	if !counted || !timed || otherUnit {
		return allowance{}, false
	}
	return allowance{n, length(float64(seconds), time.Second)}, true
}

// namedWindows reads fields whose names have the window, such as X-RateLimit-Limit-Minute.
func namedWindows(resp *http.Response) (all []allowance) {
	for _, prefix := range plainPrefixes {
		for _, unit := range []struct {
			name string
			per  time.Duration
		}{{"Second", time.Second}, {"Minute", time.Minute}, {"Hour", time.Hour}} {
			for _, text := range valuesOf(resp.Header, prefix+"Limit-"+unit.name) {
				if n, _, ok := whole(text); ok {
					all = append(all, allowance{int64(n), unit.per})
				}
			}
		}
	}
	return all
}

// plainWindows reads the fields that have the limit: with windows beside it or, if there are none, with
// the window that a reset tells.
func plainWindows(resp *http.Response) (all []allowance) {
	for _, prefix := range plainPrefixes {
		for _, line := range valuesOf(resp.Header, prefix+"Limit") {
			for member := range strings.SplitSeq(line, ",") {
				if c, ok := countOf(member); ok && c.window > 0 {
					all = append(all, allowance{int64(c.n), c.window})
				}
			}
		}
		if len(all) == 0 {
			all = datedWindows(resp, prefix)
		}
	}
	return all
}

// usualWindows are the windows that a reset can tell.
var usualWindows = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 15 * time.Minute, time.Hour}

// resetDoubt is by how much a reset may be later than the end of its window.
const resetDoubt = 2 * time.Second

// datedWindows reads the limits without a window in the field with a prefix and "Limit". The field with
// the prefix and "Reset" tells their window. Without a readable reset it returns nil.
func datedWindows(resp *http.Response, prefix string) (all []allowance) {
	h := Headers{Reset: prefix + "Reset"}
	reset, ok := h.reset(resp, throttle.MaxPenalty)
	if !ok {
		return nil
	}

	for _, line := range valuesOf(resp.Header, prefix+"Limit") {
		c, counted := Headers{}.countOf(line)
		if !counted {
			continue
		}

		// The window is the shortest of the usual ones in which the reset can lie. A later reset tells no window.
		for _, per := range usualWindows {
			if reset <= per+resetDoubt {
				all = append(all, allowance{int64(c.n), per})
				break
			}
		}
	}

	return all
}

// sentence matches a limit in the text of a refusal: "limit of 60 requests per minute", "max. 10
// calls / 30 seconds". A number without such a word may be what was used.
var sentence = regexp.MustCompile(`(?i)\b(?:limit\w*|max\w*|quota|allowed)\b[^\n.]{0,60}?\b(\d{1,9}) ?(?:requests?|calls?|queries|times)? ?(?:per|/|every|each) ?(\d{1,4})? ?(seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h)\b`)

// sentences returns the limits that the beginning of the body of a 429 tells, at most four. It reads no other body.
func sentences(resp *http.Response) (all []allowance) {
	if resp.StatusCode != http.StatusTooManyRequests || !mayLook(resp, textBytes) {
		return nil
	}

	body, _ := PeekBody(resp, textBytes)
	for _, m := range sentence.FindAllSubmatch(body, 4) {
		n, _ := number(string(m[1]))
		units, ok := number(string(m[2]))
		if !ok {
			units = 1 // as in "per minute"
		}
		all = append(all, allowance{int64(n), length(units, unitOf(m[3][0]))})
	}
	return all
}

// unitOf returns the unit whose name begins with a letter.
func unitOf(letter byte) time.Duration {
	switch letter {
	case 'h', 'H':
		return time.Hour
	case 'm', 'M':
		return time.Minute
	}
	return time.Second
}
