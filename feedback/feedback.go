package feedback

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// A Reader is a [throttle.Policy.Answer]: it says what an answer means for the budget. The zero
// Answer says nothing. A Reader must be safe for concurrent use; every Reader of this package is.
type Reader = func(*http.Response) throttle.Answer

// First returns a reader that calls each reader in turn and stops after the first that has a
// verdict or closes the budget. Quotas and costs of the readers up to then are kept. Use [All] to
// call every reader.
func First(rs ...Reader) Reader {
	return func(resp *http.Response) (a throttle.Answer) {
		for _, read := range rs {
			a = both(a, read(resp))
			if rules(a) {
				return a
			}
		}
		return a
	}
}

// All returns a reader that calls every reader and combines the results. The longest close counts,
// with its verdict. Of verdicts that close nothing, VerdictNotRefused counts before VerdictRefused;
// VerdictPartly counts before all. The smallest quota counts, and of equal quotas the longest. The
// first cost counts, and the told limit that allows less.
func All(rs ...Reader) Reader {
	return func(resp *http.Response) (a throttle.Answer) {
		for _, read := range rs {
			a = both(a, read(resp))
		}
		return a
	}
}

// rules reports whether an answer decides about the request or the budget.
func rules(a throttle.Answer) bool { return a.Verdict != throttle.VerdictNone || a.Close > 0 }

// both combines two answers, as [All] documents it.
func both(a, b throttle.Answer) throttle.Answer {
	longer := b.Close > max(a.Close, 0)
	noneCloses := a.Close <= 0 && b.Close <= 0
	switch {
	case a.Verdict == throttle.VerdictPartly || b.Verdict == throttle.VerdictPartly:
		a.Verdict, a.Close = throttle.VerdictPartly, max(a.Close, b.Close)

	// The longer close counts, with its verdict. If none closes, the larger verdict counts.
	case longer || noneCloses && b.Verdict > a.Verdict:
		a.Verdict, a.Close = b.Verdict, b.Close
	}

	// The quota may come from one of the two answers, and the told limit from the other.
	left, said := a.Left()
	if other, ok := b.Left(); ok {
		limit := tighterTold(left.Told, other.Told)
		if !said || tighter(other, left) {
			left = other
		}
		left.Told = limit
		a = a.WithLeft(left)
	}

	if _, said := a.Cost(); !said {
		if cost, ok := b.Cost(); ok {
			a = a.WithCost(cost)
		}
	}

	return a
}

// tighter reports whether a leaves less than b, or the same for longer.
func tighter(a, b throttle.Quota) bool {
	if a.Left != b.Left {
		return a.Left < b.Left
	}
	return a.Reset > b.Reset
}

// For returns a reader that takes every answer for a refusal and closes the budget for d, or for
// the Retry-After of a 429 if that is longer. Put it behind a [When]. For(0) is a refusal caused by
// a different budget: it closes nothing, and [First] stops.
func For(d time.Duration) Reader {
	return func(resp *http.Response) throttle.Answer { return throttle.Refused(orAsked(resp, d)) }
}

// tighterTold returns the told limit that allows less, or the only one.
func tighterTold(a, b throttle.Limit) throttle.Limit {
	switch {
	case a == (throttle.Limit{}):
		return b
	case b == (throttle.Limit{}):
		return a
	case float64(b.N())*float64(a.Per()) < float64(a.N())*float64(b.Per()):
		return b
	}
	return a
}

// NotRefused is a reader that takes every answer for certainly no refusal, whatever the status
// looks like: a 429 for lack of money, say. Put it behind a [When]. It closes nothing, [First]
// stops, and the request is not repeated unless a different policy takes the answer for a refusal.
func NotRefused(*http.Response) throttle.Answer {
	return throttle.Answer{Verdict: throttle.VerdictNotRefused}
}

// LeaveOpen is a reader that closes nothing: a 429 or 503 is a refusal caused by a different
// budget, and every other answer says nothing. Use it for limits that refusals are never about: a
// budget that many tenants share, where the tenant's budget is closed; a budget of one process
// ([throttle.ScopeNode]); a concurrency limit. At the end of a [First] that knows all refusals of
// its budget, LeaveOpen keeps the default from closing the budget.
func LeaveOpen(resp *http.Response) throttle.Answer {
	if resp != nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		return throttle.Answer{Verdict: throttle.VerdictRefused}
	}
	return throttle.Answer{}
}

// InARow returns a reader that passes on read's answers, but closes nothing until n answers in a
// row would have closed the budget. Use it for refusals that may come from a single backend of
// many: below n, only the caller of the refused request waits. InARow counts the answers of this
// process, so it must see the good answers, too. It is safe for concurrent use. The default of
// [throttle.Policy.Answer] treats 503s in this way, with an n of 10.
func InARow(n int, read Reader) Reader {
	inARow := new(atomic.Int64)
	return func(resp *http.Response) throttle.Answer {
		a := read(resp)
		if a.Close <= 0 {
			// Write only after refusals: otherwise all good answers would write to one place in memory.
			if inARow.Load() != 0 {
				inARow.Store(0)
			}
			return a
		}

		if inARow.Add(1) < int64(n) {
			a.Close = 0
		}
		return a
	}
}

// Acted returns a reader that passes on r's answers, except that a refusal that closes the budget counts
// as partly executed if acted returns true: the budget closes, and the request is not repeated. [Partly]
// and [Succeeded] are suitable functions.
func Acted(r Reader, acted func(*http.Response) bool) Reader {
	return func(resp *http.Response) throttle.Answer {
		a := r(resp)
		if a.Verdict == throttle.VerdictRefused && a.Close > 0 && acted(resp) {
			a.Verdict = throttle.VerdictPartly
		}
		return a
	}
}

// refused returns a refusal that lasts for d, and nothing if d is 0 or less.
func refused(d time.Duration) throttle.Answer {
	if d <= 0 {
		return throttle.Answer{}
	}
	return throttle.Refused(d)
}

// Partly reports whether a GraphQL answer has data that is not null, with or without errors: a part
// of the request was executed. Use it with [Acted]. Only the first 64 KB of the body are read: the
// result depends on how the value of "data" begins, and not on the rest of the body.
func Partly(resp *http.Response) (partly bool) {
	s := jsonscan.New(look(resp, mostBytes), scanBytes)
	s.BOM()
	if s.Peek() != '{' {
		return false
	}

	s.Object(func(name []byte) bool {
		if string(name) != "data" {
			return s.Skip()
		}

		// null is the only value that begins with an n. Peek returns 0 at the end of the text.
		first := s.Peek()
		partly = first != 'n' && first != 0
		return false
	})

	return partly
}

// Succeeded reports whether an answer has a status below 400. Use it with [Acted] for an upstream
// that executes the request and states a pause in the same answer, as a [Printed] in a 200: the
// budget closes, and the request is not repeated.
func Succeeded(resp *http.Response) bool { return resp.StatusCode < http.StatusBadRequest }
