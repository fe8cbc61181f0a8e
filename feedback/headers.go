package feedback

import (
	"cmp"
	"hash/maphash"
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Headers are the fields in which an upstream states the state of one budget, in any of the
// dialects of X-RateLimit. GitHub's, for example:
//
//	feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}
//
// A 401 is ignored, because it speaks of an unknown caller. So is an answer out of a cache. The
// Retry-After of a 429 counts in any case. If one header speaks of several budgets in turn, select
// the answers of this budget by [When].
type Headers struct {
	// Remaining or, with Limit or Size, Used is the field with the count: "3", used and size as in
	// "32/40", or a list of counts with their windows in seconds, as in "20:1,100:120" or
	// "100;w=60, 5000;w=3600". If several lines differ, the smallest remaining quota counts.
	Remaining, Used, Limit string

	// Position is the place of the budget's count in a list without windows: 2 for 30000 in
	// "600,30000". Defaults to 0: the field is not such a list.
	Position int

	// Size is the limit for upstreams that state it in no field. Defaults to 0: unknown.
	Size int

	// Reset is the field with the end of the window: seconds from now, "2" or "2.5"; a Go duration,
	// "6m0s"; or a moment, in seconds, milliseconds, microseconds or nanoseconds since 1970, in ISO
	// 8601 down to minutes or finer, or as a date of HTTP or mail.
	Reset string

	// As is the dialect of Reset. Defaults to nil: the forms above.
	As Dialect

	// Per is the length of the budget's window. It selects the member of a list of counts, bounds
	// Reset, and replaces a missing Reset: a refusal then closes the budget for Per. A refusal with
	// an unreadable Reset closes for Per as well. Without Clock the end of the window is unknown,
	// so the remaining quota holds for a second, or for Per if that is less, until the next answer.
	// Defaults to the window beside the count, as in "3;w=21600".
	Per time.Duration

	// Clock says that the windows begin when the time since 1970 is a
	// multiple of Per: on the minute, on the hour of UTC.
	Clock bool

	// Status are the statuses of answers that may be refusals. Defaults to 403, 429 and 503.
	Status []int
}

// Left is a [Reader] of the remaining quota alone: it treats a refusal like any answer.
func (h Headers) Left(resp *http.Response) throttle.Answer {
	q, ok := h.quota(resp)
	if !ok {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithLeft(q)
}

// quota returns the remaining quota. ok is false if the fields do not state it or its end, or if the
// answer is not about the caller's budget.
func (h Headers) quota(resp *http.Response) (q throttle.Quota, ok bool) {
	left, window, counted := h.left(resp.Header)
	if !counted || !speaks(resp) {
		return throttle.Quota{}, false
	}

	h.Per = cmp.Or(h.Per, window) // in this copy of h the window beside the count replaces a missing Per
	reset, dated := h.reset(resp, unsaid)
	if !dated {
		return throttle.Quota{}, false
	}
	return throttle.Quota{Left: left, Reset: reset}, true
}

// unsaid bounds how long a remaining quota without a Reset holds. A store assumes that the upstream
// has counted all starts of the fleet within that time, and so books at most the difference for
// foreign programs.
const unsaid = time.Second

// Answer is a [Reader] of the remaining quota, as [Headers.Left], and of refusals. An answer with
// one of Status and a remaining quota of 0 closes the budget until Reset. If neither Remaining nor
// Used is set, Reset alone closes it. Retry-After, if readable, counts before Reset, and the
// Retry-After of a 429 closes the budget even if quota remains, because then a different limit has
// refused. If the quota is 0 and no end is stated, the budget closes for Per, or for a second. Any
// other answer is no refusal, even if it has used up the quota.
func (h Headers) Answer(resp *http.Response) throttle.Answer {
	return both(refused(h.penalty(resp)), h.Left(resp))
}

// penalty returns how long an answer closes the budget, or 0 for an answer that is no refusal.
func (h Headers) penalty(resp *http.Response) time.Duration {
	if !mayRefuse(resp, h.Status) {
		return 0
	}

	// A 429 with Retry-After is a refusal whatever the other fields say.
	if resp.StatusCode == http.StatusTooManyRequests {
		if d, ok := h.retryAfter(resp); ok {
			return d
		}
	}

	if !speaks(resp) {
		return 0
	}

	// Without a count the end of the window tells of a refusal: Reset, or Per where Reset is missing. In a 429 an end that
	// cannot be read, or has passed, is enough.
	if h.Remaining == "" && h.Used == "" {
		_, readable := h.reset(resp, throttle.MaxPenalty)
		stated := len(valuesOf(resp.Header, h.Reset)) > 0 || h.Per > 0
		enough := readable || stated && resp.StatusCode == http.StatusTooManyRequests
		if !enough {
			return 0
		}
		return h.untilMore(resp)
	}

	left, window, counted := h.left(resp.Header)
	if !counted || left > 0 {
		return 0
	}

	h.Per = cmp.Or(h.Per, window) // as in quota
	return h.untilMore(resp)
}

// retryAfter returns for how long Retry-After closes the budget. ok is false if the field is missing,
// cannot be read, or has passed.
func (h Headers) retryAfter(resp *http.Response) (d time.Duration, ok bool) {
	// If Reset is Retry-After, As is its dialect.
	if h.As != nil && textproto.CanonicalMIMEHeaderKey(h.Reset) == "Retry-After" {
		if d, ok := h.reset(resp, throttle.MaxPenalty); ok {
			return d, true
		}
	}
	return retryAfter(resp)
}

// untilMore returns for how long the budget closes after a refusal because nothing is left: for
// Retry-After, until Reset, until the window ends, or else for a second or Per, if that is less. The
// first of these that is known counts.
func (h Headers) untilMore(resp *http.Response) time.Duration {
	if d, ok := h.retryAfter(resp); ok {
		return d
	}
	if d, ok := h.reset(resp, throttle.MaxPenalty); ok {
		return d
	}

	// A reset that cannot be read tells nothing, so the window may have just begun.
	if d, ok := h.window(resp, throttle.MaxPenalty); ok && !h.As.canRead(valuesOf(resp.Header, h.Reset)) {
		return d
	}

	// A reset that has passed tells of a window that is over, so the next request may come soon.
	soon := usualRetryAfter
	if h.Per > 0 {
		soon = min(soon, h.Per)
	}
	return soon
}

// mayRefuse reports whether an answer's status is a status of refusals. A request may well use up
// the quota and fail for a reason of its own, such as a 400.
func mayRefuse(resp *http.Response, status []int) bool {
	if len(status) > 0 {
		return slices.Contains(status, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// speaks reports whether the answer is about the caller's budget now. A 401 is about an unknown caller, and
// an answer with an Age other than 0 comes out of a cache.
func speaks(resp *http.Response) bool {
	age := strings.Trim(resp.Header.Get("Age"), "0 ")
	return resp.StatusCode != http.StatusUnauthorized && age == ""
}

// left returns the remaining quota, and the window that the count's field states, or 0 if it states none.
// ok is false if the quota is not stated: without Remaining it takes a use and a limit.
func (h Headers) left(header http.Header) (left int, window time.Duration, ok bool) {
	if h.Remaining != "" {
		// Some upstreams write a negative number when more was spent than there was.
		least, ok := h.count(header, h.Remaining, fewer)
		return max(least.n, 0), least.window, ok
	}

	// Without Remaining the quota is the limit less the use. The limit is in a field of its own, or else beside the use, or
	// else in Size.
	used, ok := h.count(header, h.Used, more)
	size := used.size
	if limit, stated := h.count(header, h.Limit, fewer); stated {
		size = limit.n
	}
	if size == 0 {
		size = h.Size
	}

	// A use of 2.5 leaves one less than a use of 2.
	rest := size - used.n
	if used.over {
		rest--
	}

	isUse := ok && used.n >= 0
	return max(rest, 0), used.window, isUse && size > 0
}

// A count is a number of a field.
type count struct {
	n      int
	over   bool          // a fraction was cut off n
	size   int           // of "32/40", or 0 if the field has no size
	window time.Duration // of "20:1" or "20;w=1", or 0 if the field has no window
	timed  bool          // the window stands behind a colon
}

// fewer reports whether a is less than b. a and b are remaining quotas or limits.
func fewer(a, b count) bool { return a.n < b.n }

// more reports whether a leaves less of its size than b. a and b are uses. A size of 0 is the same for
// both.
func more(a, b count) bool { return a.size-a.n < b.size-b.n }

// count reads the count of a field. If there are several lines, the first by the order before counts. ok
// is false if no line has a count.
func (h Headers) count(header http.Header, name string, before func(a, b count) bool) (first count, ok bool) {
	for _, line := range valuesOf(header, name) {
		c, counted := h.countOf(line)
		if counted && (!ok || before(c, first)) {
			first, ok = c, true
		}
	}
	return first, ok
}

// countOf reads the count of a line: "3", "32/40", "3;w=60", or the budget's member of a list. That is the
// member at Position, or the last member whose window is Per. ok is false if it is not clear which member
// is the budget's, or if a member is no count.
func (h Headers) countOf(line string) (found count, ok bool) {
	soleMember := !strings.Contains(line, ",")
	var windows, plain int // how many members have a window, and how many have none
	var last count         // of the members without a window
	for i, text := 1, line; text != ""; i++ {
		var member string
		member, text, _ = strings.Cut(text, ",")
		c, counted := countOf(member)

		// Without Per a sole member may state the window as a parameter. Behind a colon it counts only if it is Per.
		isOfWindow := c.window == h.Per || h.Per == 0 && soleMember && !c.timed
		switch {
		case h.Position == i:
			return c, counted
		case h.Position > 0:
			continue
		case !counted:
			return count{}, false

		// A proxy may have joined a field that came twice: count it once.
		case c.window == 0 && plain > 0 && c == last:
		case c.window == 0:
			plain, last = plain+1, c

		case isOfWindow:
			found, ok = c, true
			windows++
		default:
			windows++
		}
	}

	// A single count without a window is the budget's if the list has no window, or if none is
	// asked for.
	if !ok && plain == 1 && (windows == 0 || h.Per == 0) {
		return last, true
	}

	return found, ok
}

// countOf reads one count, which may be below 0, with the size and the window that stand beside it. ok is
// false if the count, the size or a window behind a colon cannot be read. A parameter that cannot be read
// counts as missing.
func countOf(text string) (c count, ok bool) {
	// "100;w=60" states the window as a parameter.
	text, parameters, _ := strings.Cut(text, ";")
	for parameter := range strings.SplitSeq(parameters, ";") {
		key, seconds, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if key == "w" || key == "window" {
			s, _ := number(seconds)
			c.window = length(s, time.Second)
		}
	}

	// "20:1" states the window behind the colon.
	text, seconds, timed := strings.Cut(text, ":")
	if timed {
		s, isNumber := number(seconds)
		if !isNumber {
			return count{}, false
		}
		c.window, c.timed = length(s, time.Second), true
	}

	// "32/40" states the size of the window behind the slash.
	text, size, sized := strings.Cut(text, "/")
	if sized {
		c.size, _, ok = whole(size)
		if !ok {
			return count{}, false
		}
	}

	text, below := strings.CutPrefix(strings.Trim(text, "\" \t"), "-")
	c.n, c.over, ok = whole(text)
	if below {
		c.n = -c.n
	}

	return c, ok
}

// whole reads a count from 0 on, and cuts off a fraction. over reports whether there was one. ok is false
// for a text that is no number, and for a number above [math.MaxInt32].
func whole(text string) (n int, over, ok bool) {
	f, ok := number(text)
	if !ok || f > math.MaxInt32 {
		return 0, false, false
	}
	n = int(f)
	return n, f > float64(n), true
}

// reset returns how long the remaining quota holds: until Reset or, if the answer has none, for the
// window. The window is bounded by most: see window. ok is false if Reset is unreadable or has passed, or
// if there is neither Reset nor Per.
func (h Headers) reset(resp *http.Response, most time.Duration) (d time.Duration, ok bool) {
	// An empty field counts as missing.
	lines := valuesOf(resp.Header, h.Reset)
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return h.window(resp, most)
	}

	d, ok = h.As.readFields(resp, lines)
	if h.Per > 0 {
		d = min(d, h.Per)
	}
	return min(d, throttle.MaxPenalty), ok && d > 0
}

// window returns how long the budget's window goes on. If the window's beginning is unknown, the result
// is Per, but at most most. ok is false without a Per.
func (h Headers) window(resp *http.Response, most time.Duration) (d time.Duration, ok bool) {
	switch {
	case h.Per <= 0:
		return 0, false
	case h.Clock:
		// A Date before 1970 has a negative remainder, so bound the result by Per.
		d = h.Per - time.Duration(sent(resp).UnixNano())%h.Per
		return min(d, h.Per, throttle.MaxPenalty), true
	}
	return min(h.Per, most), true
}

// valuesOf returns the values of a header field, in whatever case its name is spelt. Header.Values would
// allocate memory for each name that is not spelt as http.Header spells it, such as X-RateLimit-Reset.
func valuesOf(header http.Header, name string) []string {
	if values, ok := header[name]; ok {
		return values
	}
	for other, values := range header {
		if len(other) == len(name) && strings.EqualFold(other, name) {
			return values
		}
	}
	return nil
}

// firstOf returns the first of valuesOf, or "".
func firstOf(header http.Header, name string) string {
	if values := valuesOf(header, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Estimates learn the cost of requests, so that a bad guess does not hold back, or let through,
// more than it should. [throttle.Policy.Cost] asks for an estimate; Answer or Meter reports the
// actual cost. The zero value is ready for use. Estimates are safe for concurrent use, and local to
// the process.
//
// Requests of one group, such as one model, cost about the same. The estimate of a group is the
// mean of about its last 64 requests plus one standard error, because the mean of few requests is
// far off. Each request is weighted by its time in flight: its estimate was booked for that time,
// and slow answers tend to cost more. Until Least requests of a group are settled, the estimate is
// the caller's own guess, or the mean so far if the mean is higher.
//
// 256 groups are kept. A further group replaces an arbitrary group.
type Estimates struct {
	// Least is the number of settled requests from which a group's estimate counts. Short requests
	// settle first, so use a higher Least where many requests start together. Defaults to 8.
	Least int

	mu     sync.Mutex
	groups map[uint64]*estimate
}

const (
	mostGroups    = 256
	leastToKnow   = 8                               // the default of Least
	keepsOfOld    = 1 - 1.0/64                      // by each new request
	leastVariance = 1e-9                            // of the squared mean: less is rounding
	leastWeight   = float64(100 * time.Millisecond) // of an answer that took no time
)

// An estimate has weighted sums over the requests of a group, in which old requests decay.
type estimate struct {
	settled                 int
	weights, weightsSquared float64 // sums of the weights, and of their squares
	costs, costsSquared     float64 // sums of costs, and of squared costs, each times its weight
}

var groupSeed = maphash.MakeSeed()

// Cost returns the estimate for a request of a group. Until Least requests of the group are settled, that
// is otherwise, or the mean so far if the mean is higher. Later it is at least 1.
func (e *Estimates) Cost(group string, otherwise int) int {
	e.mu.Lock()
	defer e.mu.Unlock()

	g := e.groups[maphash.String(groupSeed, group)]
	if g == nil {
		return otherwise
	}

	// The mean of few requests may be far too low, so the caller's guess is a lower bound until Least are settled.
	mean := g.costs / g.weights
	if g.settled < cmp.Or(e.Least, leastToKnow) {
		return max(otherwise, wholeCost(mean))
	}

	variance := g.costsSquared/g.weights - mean*mean
	if variance < leastVariance*mean*mean {
		variance = 0 // a smaller difference is rounding error
	}

	// Add a standard error, so that the mean of a few requests is not too low.
	standardError := math.Sqrt(variance * g.weightsSquared / (g.weights * g.weights))
	return max(1, wholeCost(mean+standardError))
}

// wholeCost rounds a cost up, and ignores the rounding error of the sums.
func wholeCost(cost float64) int {
	const rounding = 1e-6
	return int(math.Ceil(min(cost, math.MaxInt32) - rounding))
}

// Settled records the cost of a request of a group and its time in flight. A negative cost is an
// unknown cost, and is ignored.
func (e *Estimates) Settled(group string, cost int, inFlight time.Duration) {
	if cost < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()

	// Each sum keeps a part of itself, so the weights of old requests decay without a list of requests. Squares of
	// weights decay by the square of that part.
	g := e.group(maphash.String(groupSeed, group))
	weight := max(float64(inFlight), leastWeight)
	c := float64(min(cost, math.MaxInt32))
	g.weights = g.weights*keepsOfOld + weight
	g.weightsSquared = g.weightsSquared*keepsOfOld*keepsOfOld + weight*weight
	g.costs = g.costs*keepsOfOld + weight*c
	g.costsSquared = g.costsSquared*keepsOfOld + weight*c*c
	g.settled = min(g.settled+1, math.MaxInt32)
}

// group returns a group, and makes it if it is not there.
func (e *Estimates) group(id uint64) *estimate {
	g := e.groups[id]
	if g != nil {
		return g
	}
	if e.groups == nil {
		e.groups = make(map[uint64]*estimate)
	}

	// Make room for the new group, and forget an arbitrary one: the order of a map is random.
	for other := range e.groups {
		if len(e.groups) < mostGroups {
			break
		}
		delete(e.groups, other)
	}

	g = new(estimate)
	e.groups[id] = g
	return g
}

// usualRetryAfter is the duration of a refusal that states no readable duration, as in
// [throttle.RetryAfter].
const usualRetryAfter = time.Second

// RetryAfter returns a reader that obeys the field Retry-After under any status, and uses fallback
// if the field states no duration. It reads all forms of [Headers.Reset]. "0" is valid and means
// now: then the answer says nothing, and the policy's own limit paces the next requests. A fallback
// of 0 says nothing either.
//
// Put it behind a [When]. Otherwise every answer is a refusal, successes too, and package retry
// would repeat each request; with 3xx the field says when to follow, and with 202 when to ask
// again. For 429 and 503 alone there is [throttle.RetryAfter].
func RetryAfter(fallback time.Duration) Reader {
	return func(resp *http.Response) throttle.Answer {
		d, ok := retryAfter(resp)
		if !ok {
			d = min(fallback, throttle.MaxPenalty)
		}
		return refused(d)
	}
}

// retryAfter reads Retry-After in the usual dialect. ok is false if it cannot be read, or has passed.
func retryAfter(resp *http.Response) (d time.Duration, ok bool) {
	return Dialect(nil).readFields(resp, valuesOf(resp.Header, "Retry-After"))
}

// asked returns the Retry-After of a 429, which no reader of a refusal may ignore. ok is false for
// every other status.
func asked(resp *http.Response) (d time.Duration, ok bool) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	return retryAfter(resp)
}

// orAsked returns d, or the Retry-After of a 429 if that is longer. A d of 0, for an answer that is
// no refusal, stays 0.
func orAsked(resp *http.Response, d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	longer, _ := asked(resp)
	return max(d, longer)
}

// orRounded is orAsked for a duration out of the answer itself. A Retry-After in whole seconds that is
// longer by less than a second is the same duration rounded up, and does not lengthen it.
func orRounded(resp *http.Response, d time.Duration) time.Duration {
	longer, ok := asked(resp)
	if ok && d > 0 && longer%time.Second == 0 && longer-d < time.Second {
		return d
	}
	return orAsked(resp, d)
}

// UntilMidnight returns a reader that takes every answer for a refusal and closes the budget until
// the day ends in zone, as the window of a [throttle.CalendarWindow] does, also on days with no
// midnight or two. A nil zone is UTC. The Retry-After of a 429 counts if it is longer.
func UntilMidnight(zone *time.Location) Reader {
	return untilEnd(throttle.CalendarWindow(1, throttle.Day, zone))
}

// UntilFirst returns a reader that takes every answer for a refusal and closes the budget until the
// month ends in zone. A nil zone is UTC. [throttle.MaxPenalty] cuts the penalty short, except on
// the last day. The Retry-After of a 429 counts if it is longer.
func UntilFirst(zone *time.Location) Reader {
	return untilEnd(throttle.CalendarWindow(1, throttle.Month, zone))
}

// untilEnd returns a reader that takes every answer for a refusal until the end of the limit's window in
// which the answer was sent, or until the end of a longer Retry-After of a 429. MaxPenalty bounds both.
func untilEnd(limit throttle.Limit) Reader {
	return func(resp *http.Response) throttle.Answer {
		now := sent(resp)
		_, end := limit.Window(now)
		return refused(orAsked(resp, min(end.Sub(now), throttle.MaxPenalty)))
	}
}
