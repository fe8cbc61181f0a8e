package simulation

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// mostWaiting bounds the waiting requests, and thus memory.
const mostWaiting = 100_000

// Replay sends requests at their recorded times, whatever the outcome of
// earlier requests.
type Replay struct {
	Policies []throttle.Policy
	MaxWait  time.Duration // as in throttle.Config
	Latency  time.Duration // time to read an answer

	*account
	prices *throttle.Transport // its Explain returns the charges of a request
	rows   *throttle.Transport // see newMatcher
	result Replayed
	begin  int64 // time of the first request, in Unix microseconds
	ended  bool  // no request follows
}

// Replayed is the outcome of a replay.
type Replayed struct {
	Requests  int
	Unmatched int           // requests that match no policy
	Refused   int           // requests that would have been refused
	Crowded   int           // of these, refused because too many waited
	Waits     Durations     // of requests that waited and were sent
	Took      time.Duration // from the first request to the last start
	Policies  []Use         // in the order of the table
	Timeline  *Timeline     // with Policies as rows
}

// Send sends a request at a time that is not before the previous request's. If mostWaiting requests wait, it refuses the
// request, unless that costs nothing. It returns the error of ctx once ctx has ended, and the error of [throttle.New] for
// the policies.
func (r *Replay) Send(ctx context.Context, req *http.Request, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	// Virtual time begins with the first request.
	if r.account == nil {
		t, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: r.Policies})
		if err != nil {
			return err
		}

		if r.rows, err = newMatcher(r.Policies); err != nil {
			return err
		}

		r.prices, r.account, r.begin = t, newAccount(NewEngine(at), r.Policies, r.Latency), at.UnixMicro()
		r.look(func() bool { return !r.ended || r.engine.waiting.Len() > 0 })
	}

	r.engine.Clock.Until(at.UnixMicro())
	charges := r.prices.Explain(req)
	r.result.Requests++
	r.price(charges)

	switch {
	case len(charges) == 0:
		if len(r.rows.Explain(req)) == 0 {
			r.result.Unmatched++
		}

	// Refuse instead of waiting, to bound the memory of the simulation.
	case r.engine.waiting.Len() >= mostWaiting:
		r.result.Refused++
		r.result.Crowded++
		return nil
	}

	maxWait := cmp.Or(r.MaxWait, time.Minute) // the default of throttle.Config

	// The engine knows Forever as 0.
	if maxWait == throttle.Forever {
		maxWait = 0
	}

	r.engine.Send(&Request{Charges: charges, MaxWait: maxWait}, r)
	return nil
}

// End lets time pass until no request waits, and returns the outcome, or the
// error of ctx.
func (r *Replay) End(ctx context.Context) (*Replayed, error) {
	// An empty log has an outcome, too.
	if r.account == nil {
		r.account = newAccount(NewEngine(time.Unix(0, 0)), r.Policies, r.Latency)
	}

	// No request follows, so the looks of the account end with the last waiting request.
	r.ended = true
	for r.engine.waiting.Len() > 0 && r.engine.Clock.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.lookOnce()
	r.result.Policies, r.result.Timeline = r.uses, r.timeline
	return &r.result, nil
}

// Started implements Observer.
func (r *Replay) Started(q *Request) {
	now := r.engine.Clock.Now()
	if d := q.Waited(); d > 0 {
		r.result.Waits.Add(d)
	}
	r.result.Took = time.Duration(now-r.begin) * time.Microsecond
	r.timeline.start(now)
	r.recordShadowDelays(q)
	if len(q.Charges) > 0 {
		r.engine.Clock.AfterFunc(r.Latency, q.End)
	}
}

// Refused implements Observer.
func (r *Replay) Refused(q *Request, charge int, _ time.Duration) {
	r.result.Refused++
	if charge >= 0 {
		r.of(&q.Charges[charge]).Refused++
	}
}
