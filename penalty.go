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
	row := new(answerRow)
	return func(resp *http.Response) time.Duration { return row.count(n, p(resp)) }
}

// An answerRow counts how many answers in a row were worth a penalty.
type answerRow struct{ n atomic.Int64 }

// count takes in an answer and returns its penalty, which is d if it is at least the
// most-th in a row.
func (r *answerRow) count(most int, d time.Duration) time.Duration {
	if d <= 0 {
		r.end()
		return d
	}
	if r.n.Add(1) < int64(most) {
		return 0
	}
	return d
}

// end takes in an answer that was worth none.
func (r *answerRow) end() {
	if r.n.Load() != 0 { // so that good answers do not all write to one place in memory
		r.n.Store(0)
	}
}

// A defaultPenalty is the penalty of a policy that has none of its own: that of
// [RetryAfter], a 503's if it is one of [OutageAnswers] in a row.
type defaultPenalty struct{ outage answerRow }

func (p *defaultPenalty) of(resp *http.Response) time.Duration {
	if resp.StatusCode == http.StatusServiceUnavailable {
		return p.outage.count(OutageAnswers, RetryAfter(resp))
	}
	p.outage.end()
	return RetryAfter(resp)
}
