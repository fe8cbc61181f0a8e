package feedback

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// RateLimit reads the fields RateLimit and RateLimit-Policy of the IETF's draft
// (draft-ietf-httpapi-ratelimit-headers), in all forms of its drafts: a list of named policies
// (since -08), a dictionary (-07), and RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset (up
// to -06). A malformed field is ignored as a whole, as the draft demands. The zero value reads
// these fields.
//
// If a policy of a list has no t, the end of its window is unknown. Then the remaining quota holds
// for a second, or for the window if that is less, and a refusal closes the budget for the window.
//
// A 401 is ignored, because it speaks of an unknown caller, and so is an answer out of a cache.
type RateLimit struct {
	// Name of the upstream's policy. Defaults to "": the policy with the smallest quota among those
	// that count requests. The older drafts, which have no names, are read only if Name is "".
	Name string

	// Prefix of the fields' names, such as "Beta-". Defaults to "".
	Prefix string

	// Status are the statuses of answers that may be refusals. Defaults to 403, 429 and 503.
	Status []int
}

// Left is a [Reader] of the remaining quota alone: it treats a refusal like any answer.
func (r RateLimit) Left(resp *http.Response) throttle.Answer {
	if !speaks(resp) {
		return throttle.Answer{}
	}

	q, ok, structured := r.structured(resp, unsaid, 0)
	switch {
	case !structured:
		return r.separate().Left(resp)
	case !ok:
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithLeft(q)
}

// Answer is a [Reader] of the remaining quota, as [RateLimit.Left], and of refusals. An answer with
// one of Status and a remaining quota of 0 closes the budget until the quota's reset. Retry-After,
// if readable, counts before the reset, and the Retry-After of a 429 closes the budget even if
// quota remains. If the quota is 0 and no end is stated, the budget closes for a second. Any other
// answer is no refusal, even if it has used up the quota.
func (r RateLimit) Answer(resp *http.Response) throttle.Answer {
	return both(refused(r.penalty(resp)), r.Left(resp))
}

// penalty returns how long an answer closes the budget, or 0 for an answer that is no refusal.
func (r RateLimit) penalty(resp *http.Response) time.Duration {
	if !mayRefuse(resp, r.Status) {
		return 0
	}
	if d, ok := asked(resp); ok {
		return d
	}
	if !speaks(resp) {
		return 0
	}

	q, ok, structured := r.structured(resp, throttle.MaxPenalty, usualRetryAfter)
	switch {
	case !structured:
		return r.separate().penalty(resp)
	case !ok || q.Left > 0:
		return 0
	}

	if d, ok := retryAfter(resp); ok {
		return d
	}

	return q.Reset
}

// structured reads the field RateLimit, which is a list or a dictionary. structured is false
// without such a field: the separate fields may have the quota then. A quota without a reset holds
// for its window, at most for most; without a window it holds for undated, and is invalid if
// undated is 0.
func (r RateLimit) structured(resp *http.Response, most, undated time.Duration) (q throttle.Quota, ok, structured bool) {
	field := r.field(resp, "RateLimit")
	if field == "" {
		return throttle.Quota{}, false, r.Name != ""
	}

	if list, parsed := parseList(field); parsed && len(list) > 0 {
		q, ok = r.least(list, r.policies(resp), most, undated)
		return q, ok, true
	}

	// A dictionary has no names, so it says nothing of the policy with this name.
	if r.Name != "" {
		return throttle.Quota{}, false, true
	}

	if dict, parsed := parseDictionary(field); parsed && len(dict) > 0 {
		q, ok = quotaOf(dict["remaining"].value, dict["reset"].value, undated)
		return q, ok, true
	}

	return throttle.Quota{}, false, false
}

// separate reads the fields that had one number each, in the drafts up to -06.
func (r RateLimit) separate() Headers {
	return Headers{
		Remaining: r.Prefix + "RateLimit-Remaining",
		Reset:     r.Prefix + "RateLimit-Reset",
		Status:    r.Status,
	}
}

// field joins the lines of a field.
func (r RateLimit) field(resp *http.Response, name string) string {
	return strings.Join(valuesOf(resp.Header, r.Prefix+name), ",")
}

// least returns the smallest quota among the members of the list that count.
func (r RateLimit) least(list []item, policies map[string]policy, most, undated time.Duration) (least throttle.Quota, found bool) {
	for _, member := range list {
		name, named := member.value.(string)
		left, reset := member.params["r"], member.params["t"]

		// One malformed member makes the whole field malformed.
		if !named || !countOrNone(left) || !countOrNone(reset) || !bytesOrNone(member.params["pk"]) {
			return throttle.Quota{}, false
		}

		p := policies[name]
		if r.Name != "" && r.Name != name || r.Name == "" && !p.countsRequests() {
			continue
		}

		// Without a reset the quota holds at most for the window of its policy.
		said := reset != nil
		if !said {
			reset = p.window
		}

		q, ok := quotaOf(left, reset, undated)
		if !said {
			q.Reset = min(q.Reset, most)
		}
		if ok && (!found || tighter(q, least)) {
			least, found = q, true
		}
	}

	return least, found
}

// A policy has the parameters of a member of RateLimit-Policy.
type policy struct {
	window any // int64, in seconds, or nil
	unit   any // string, or nil
}

// countsRequests reports whether the quota is a number of requests, which it is without a unit.
func (p policy) countsRequests() bool { return p.unit == nil || p.unit == "requests" }

// policies returns the policies of RateLimit-Policy by name, or nil if the field is malformed.
func (r RateLimit) policies(resp *http.Response) map[string]policy {
	list, _ := parseList(r.field(resp, "RateLimit-Policy"))
	policies := make(map[string]policy, len(list))
	for _, member := range list {
		name, named := member.value.(string)
		window, unit := member.params["w"], member.params["qu"]
		_, text := unit.(string)
		if !named || !countOrNone(window) || unit != nil && !text {
			return nil
		}
		policies[name] = policy{window, unit}
	}
	return policies
}

// quotaOf returns the quota of two Integers. ok is false if the first has a different type or is
// negative. If the second is no Integer, or not positive, the quota holds for undated, and is
// invalid if undated is 0.
func quotaOf(left, reset any, undated time.Duration) (q throttle.Quota, ok bool) {
	n, counted := left.(int64)
	seconds, dated := reset.(int64)
	d := undated
	if dated && seconds > 0 {
		d = length(float64(seconds), time.Second)
	}
	if !counted || n < 0 || d == 0 {
		return throttle.Quota{}, false
	}
	return throttle.Quota{Left: int(min(n, math.MaxInt32)), Reset: d}, true
}

// countOrNone reports whether a parameter is an Integer that is not negative, if
// it is there.
func countOrNone(param any) bool {
	n, ok := param.(int64)
	return param == nil || ok && n >= 0
}

// bytesOrNone reports whether a parameter is a Byte Sequence, if it is there.
func bytesOrNone(param any) bool {
	_, ok := param.([]byte)
	return param == nil || ok
}
