package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Penalty is a [throttle.Policy.Penalty]: for how long an answer closes the
// budget; 0 for not at all, and [NotRefused] for certainly not.
type Penalty = func(*http.Response) time.Duration

// A Quota is a [throttle.Policy.Quota]: what an answer says is left of the
// budget; ok is false if it does not speak of it.
type Quota = func(*http.Response) (q throttle.Quota, ok bool)

// A Settle is a [throttle.Policy.Settle]: what an answer says the request has
// cost; negative if it does not say.
type Settle = func(*http.Response) int

// NotRefused is the penalty of an answer that is certainly no refusal, however much it
// looks like one: a 429 because of money and not of pace, say. [First] asks
// nobody else then. It closes nothing, and unless another policy takes the answer
// for a refusal it is not repeated: see [throttle.PenaltyOf].
const NotRefused time.Duration = -1

// First returns a penalty that asks each in turn and stops at the first that is
// not 0.
func First(ps ...Penalty) Penalty {
	return func(resp *http.Response) time.Duration {
		for _, p := range ps {
			if d := p(resp); d != 0 {
				return d
			}
		}
		return 0
	}
}

// Longest returns a penalty that asks all and takes the longest. One [NotRefused] does
// not silence the others.
func Longest(ps ...Penalty) Penalty {
	return func(resp *http.Response) (longest time.Duration) {
		for _, p := range ps {
			longest = max(longest, p(resp))
		}
		return longest
	}
}

// Least returns a quota that asks all and takes the one with the least left; of
// equals, the one that lasts longest.
func Least(qs ...Quota) Quota {
	return func(resp *http.Response) (least throttle.Quota, found bool) {
		for _, quota := range qs {
			q, ok := quota(resp)
			if ok && (!found || tighter(q, least)) {
				least, found = q, true
			}
		}
		return least, found
	}
}

// tighter reports whether a leaves less than b, or the same for longer.
func tighter(a, b throttle.Quota) bool {
	if a.Left != b.Left {
		return a.Left < b.Left
	}
	return a.Reset > b.Reset
}

// For returns a penalty that is always d, or what the Retry-After of a 429 asks if that
// is longer. It says for how long where a [When] says which answers.
func For(d time.Duration) Penalty {
	return func(resp *http.Response) time.Duration { return orAsked(resp, d) }
}
