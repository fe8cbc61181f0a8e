package throttle

import (
	"net/http"
	"sync/atomic"
	"time"
)

// OutageAnswers is how many answers in a row are a 503 before that is the upstream's
// word, and not that of one backend behind its load balancer: of a third of the
// answers, ten in a row come once in 60,000.
const OutageAnswers = 10

// InARow returns a [Policy.Penalty] that is p's, but 0 until p was more than 0 for n
// answers in a row. It is for refusals that one backend of many may send: until then
// each is for its caller alone to wait out. It counts in this program, over all
// answers that it is asked about, so it must be asked about the good ones too. It is
// safe for concurrent use.
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
