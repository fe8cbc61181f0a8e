package retry

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// LongestWait is the longest Retry-After that a caller sleeps through by
// itself. It does not bound the wait for a budget that a penalty has closed.
const LongestWait = 5 * time.Minute

// Backoff is a [retryablehttp.Backoff]. After an answer by which a policy has closed a
// budget the next attempt waits in that budget, with the whole fleet, as long as its
// context and MaxWait allow, and is refused at once if that is not long enough. But a
// refusal may name a moment while the upstream is overloaded for seconds. So the next
// attempt comes no earlier than after a back-off: a random time from half of shortest to
// shortest at first, doubled after each further attempt, up to longest. If the back-off is
// longer than the penalty, Backoff returns the back-off.
//
// After every other answer Backoff returns the time that the answer asks for, as
// [throttle.RetryAfter] reads it and at most [LongestWait], plus a random time: up to
// shortest at first, doubled after each further attempt, and never more than longest. So
// callers that failed together do not come back together. In a client of [NewClient] this
// wait ends before the context does.
func Backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	most := ceiling(shortest, longest, attempt)
	room, bounded := room(resp)

	// The budget holds the next attempt while the penalty lasts, so only a longer back-off is waited for here.
	if penalty := throttle.AnswerOf(resp).Close; penalty > 0 {
		d := most/2 + random(most-most/2)

		// A shorter back-off leaves time for one attempt before the deadline.
		if bounded && d >= room-penalty {
			d = random(room - penalty)
		}
		if d <= penalty {
			return 0
		}

		return d
	}

	// No budget holds the next attempt, so wait here for as long as the answer asks, and a random time longer.
	stated := min(throttle.RetryAfter(resp).Close, LongestWait)
	if bounded {
		most = min(most, room-stated)
	}

	return stated + random(most)
}

// ceiling doubles d as often as there were attempts before, up to longest.
func ceiling(d, longest time.Duration, attempts int) time.Duration {
	for range attempts {
		if d > longest/2 {
			return longest
		}
		d *= 2
	}
	return min(d, longest)
}

// random returns a time from 0 to below d.
func random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
