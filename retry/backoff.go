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

// Backoff is a [retryablehttp.Backoff]. After an answer by which a policy has
// closed a budget it is 0: the next attempt waits in that budget, with the
// whole fleet, as long as its context and MaxWait allow, and is refused at once
// if that is not long enough.
//
// After anything else it is what the answer asks for, as [throttle.RetryAfter]
// reads it and at most [LongestWait], and a random time on top: up to shortest
// at first, up to twice as much after each further attempt, and never more than
// longest. So callers that failed together do not come back together. After an
// answer, in a client of [NewClient], all of it ends before the context does.
func Backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	if throttle.PenaltyOf(resp) > 0 {
		return 0
	}
	stated, more := min(throttle.RetryAfter(resp), LongestWait), ceiling(shortest, longest, attempt)
	if room, bounded := room(resp); bounded {
		more = min(more, room-stated)
	}
	return stated + random(more)
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
