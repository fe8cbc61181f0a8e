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
// closed a budget the next attempt waits in that budget, with the whole fleet, as
// long as its context and MaxWait allow, and is refused at once if that is not long
// enough. But a refusal may name a moment while the upstream is overloaded for
// seconds. So the next attempt comes no earlier than after a back-off: from half of
// shortest to all of it at first, and twice as long after each further attempt, up
// to longest. If that is longer than the penalty, the rest of it is waited here.
//
// After anything else it is what the answer asks for, as [throttle.RetryAfter]
// reads it and at most [LongestWait], and a random time on top: up to shortest
// at first, up to twice as much after each further attempt, and never more than
// longest. So callers that failed together do not come back together. After an
// answer, in a client of [NewClient], all of it ends before the context does.
func Backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	most := ceiling(shortest, longest, attempt)
	room, bounded := room(resp)

	if penalty := throttle.AnswerOf(resp).Close; penalty > 0 {
		d := most/2 + random(most-most/2)
		if bounded && d >= room-penalty { // for one more attempt there may be time
			d = random(room - penalty)
		}
		if d <= penalty {
			return 0
		}

		return d
	}

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
