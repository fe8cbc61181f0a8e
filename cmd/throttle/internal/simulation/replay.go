package simulation

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// mostWaiting is how many requests may wait at a time, so that memory is bounded.
const mostWaiting = 100_000

// A Replay has requests come when they came, whatever became of those before.
type Replay struct {
	Policies []throttle.Policy
	MaxWait  time.Duration // as in throttle.Config
	Latency  time.Duration // until an answer has been read

	*account
	prices *throttle.Transport
	result Replayed
	begin  int64
	ended  bool
}

// A Replayed is what would have become of the requests.
type Replayed struct {
	Requests  int
	Unmatched int           // that match no policy
	Refused   int           // that would not have been sent
	Crowded   int           // of these: because too many waited to be simulated
	Waits     Durations     // of those that waited and were sent
	Took      time.Duration // from the first request to the last start
	Policies  []Use         // in the order of the table
	Timeline  *Timeline     // its rows are Policies
}

// Send has a request come at a time that is not before the last one, unless ctx has ended.
func (r *Replay) Send(ctx context.Context, req *http.Request, at time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	if r.account == nil {
		t, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: r.Policies})
		if err != nil {
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
		r.result.Unmatched++
	case r.engine.waiting.Len() >= mostWaiting:
		r.result.Refused++
		r.result.Crowded++
		return nil
	}

	maxWait := cmp.Or(r.MaxWait, time.Minute)
	if maxWait == throttle.Forever {
		maxWait = 0
	}

	r.engine.Send(&Request{Charges: charges, MaxWait: maxWait}, r)
	return nil
}

// End lets the requests that still wait have their starts, and returns what became of all,
// unless ctx has ended.
func (r *Replay) End(ctx context.Context) (*Replayed, error) {
	if r.account == nil {
		r.account = newAccount(NewEngine(time.Unix(0, 0)), r.Policies, r.Latency)
	}
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
	r.shadowed(q)
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
