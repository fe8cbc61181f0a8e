package throttle

import (
	"net/http"
	"sync/atomic"
	"time"
)

// OutageAnswers is how many answers in a row must be a 503 before the upstream counts
// as down. Fewer may come from one backend behind its load balancer: if a third of
// the answers are a 503, one run of ten comes in 60,000 answers.
const OutageAnswers = 10

// InARow returns a [Policy.Penalty] that is p's if p was more than 0 for the last n
// answers, and 0 otherwise. It is for refusals that one backend of many may send: until
// n of them came in a row only the caller of each waits. It counts the answers in this
// program, so it must see the good ones too. It is safe for concurrent use.
func InARow(n int, p func(*http.Response) time.Duration) func(*http.Response) time.Duration {
	row := new(atomic.Int64)
	return func(resp *http.Response) time.Duration {
		d := p(resp)
		if d <= 0 {
			row.Store(0)
			return d
		}
		if row.Add(1) < int64(n) {
			return 0
		}
		return d
	}
}

// defaultPenalty returns the penalty of a policy that has none of its own: that of
// [RetryAfter], a 503's if it is one of [OutageAnswers] in a row.
func defaultPenalty() func(*http.Response) time.Duration {
	outage := InARow(OutageAnswers, func(resp *http.Response) time.Duration {
		if resp.StatusCode != http.StatusServiceUnavailable {
			return 0
		}
		return RetryAfter(resp)
	})
	return func(resp *http.Response) time.Duration {
		if d := outage(resp); d > 0 || resp.StatusCode == http.StatusServiceUnavailable {
			return d
		}
		return RetryAfter(resp)
	}
}
