package feedback

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Reader is a [throttle.Policy.Answer]: what an answer means for the budget. The zero Answer says
// nothing.
type Reader = func(*http.Response) throttle.Answer

// First returns a reader that asks each in turn and stops at the first that says what becomes of the
// request or of the budget: that has a verdict, or closes the budget. What those before it say of what
// is left, and of the cost, is kept. Those behind it are not asked: use [All] where all shall be heard.
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

// All returns a reader that asks all and puts together what they say. The budget closes for the longest time
// that one of them says, with the verdict of that one; of verdicts that close nothing, VerdictNotRefused counts before
// VerdictRefused, and VerdictPartly counts before all others. Of what is left the least counts; of equals, the one that
// lasts longest. Of costs the first counts.
func All(rs ...Reader) Reader {
	return func(resp *http.Response) (a throttle.Answer) {
		for _, read := range rs {
			a = both(a, read(resp))
		}
		return a
	}
}

// rules reports whether an answer says what becomes of the request or of the budget.
func rules(a throttle.Answer) bool { return a.Verdict != throttle.VerdictNone || a.Close > 0 }

// both puts two answers together.
func both(a, b throttle.Answer) throttle.Answer {
	longer := b.Close > max(a.Close, 0)
	switch {
	case a.Verdict == throttle.VerdictPartly || b.Verdict == throttle.VerdictPartly:
		a.Verdict, a.Close = throttle.VerdictPartly, max(a.Close, b.Close)
	case longer || a.Close <= 0 && b.Verdict > a.Verdict:
		a.Verdict, a.Close = b.Verdict, b.Close
	}

	left, said := a.Left()
	if other, ok := b.Left(); ok && (!said || tighter(other, left)) {
		a = a.WithLeft(other)
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

// For returns a reader that takes every answer for a refusal that closes the budget for d, or for what the
// Retry-After of a 429 asks if that is longer. It says for how long where a [When] says which answers. For(0)
// is a refusal that is about another budget: it closes nothing, and [First] asks nobody else.
func For(d time.Duration) Reader {
	return func(resp *http.Response) throttle.Answer { return throttle.Refused(orAsked(resp, d)) }
}

// NotRefused is a reader that takes every answer for certainly no refusal, however much it looks like one: a
// 429 because of money and not of pace, say. It belongs in a [When]. [First] asks nobody else then. It closes
// nothing, and unless another policy takes the answer for a refusal, the request is not repeated.
func NotRefused(*http.Response) throttle.Answer {
	return throttle.Answer{Verdict: throttle.VerdictNotRefused}
}

// LeaveOpen is a reader that closes nothing: of a 429 and a 503 it says
// that they are about another budget, of any other answer nothing. It is for rows whose
// limit is not what a refusal is about: one that many tenants share, where the row of
// the tenant is closed; one for each process ([throttle.ScopeNode]); one in flight. At the end of a
// [First] that knows all refusals of its budget it keeps the default from closing
// the budget for others.
func LeaveOpen(resp *http.Response) throttle.Answer {
	if resp != nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		return throttle.Answer{Verdict: throttle.VerdictRefused}
	}
	return throttle.Answer{}
}

// InARow returns a reader that returns what read returns, but closes nothing as long as
// fewer than n answers in a row would have closed the budget. It is for refusals that one backend of
// many may send: until n of them came in a row only the caller of each waits. It counts the answers in
// this program, so it must see the good answers, too. It is safe for concurrent use. The default of
// [throttle.Policy.Answer] does so with a 503, and an n of 10.
func InARow(n int, read Reader) Reader {
	row := new(atomic.Int64)
	return func(resp *http.Response) throttle.Answer {
		a := read(resp)
		switch {
		case a.Close <= 0:
			if row.Load() != 0 { // so that good answers do not all write to one place in memory
				row.Store(0)
			}

		case row.Add(1) < int64(n):
			a.Close = 0
		}

		return a
	}
}

// Acted returns a reader that says what r says, but that the request was partly done where r takes an answer
// for a refusal and acted is true: the budget closes, and the request is not repeated. [Partly] and [Succeeded]
// are such functions.
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
