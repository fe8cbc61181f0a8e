package simulation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Part is one kind of request in a mix.
type Part struct {
	Request *http.Request
	Weight  int
	Latency time.Duration // time to read its answer, by default the job's
}

// Job is a number of requests and the fleet that sends them. Each worker sends
// one request after the previous answer, until none is left.
type Job struct {
	Policies []throttle.Policy
	Mix      []Part
	Requests int
	Nodes    int
	Workers  int // per node
	Latency  time.Duration
	HandOver time.Duration // time until a released slot can be taken by a different node
	Begin    time.Time
	Progress func(done float64) // called with the sent part of the requests, may be nil
}

// Result is the outcome of a job.
type Result struct {
	Took      time.Duration // until the last answer
	Waits     Durations     // of all requests
	Policies  []Use         // policies that the mix matches, in the order of the table
	Timeline  *Timeline     // with Policies as rows
	Unmatched int           // requests that match no policy
}

// Impossible reports a request that can never start.
type Impossible struct {
	Policy string
	Limit  throttle.Limit
	Cost   int
}

func (e *Impossible) Error() string {
	return fmt.Sprintf("policy %q: a request costs %d, and %v never has room for it", e.Policy, e.Cost, e.Limit)
}

// A run is a job in progress.
type run struct {
	*Job
	*account
	result    *Result
	prices    [][][]store.Charge // by node and part
	unmatched []bool             // by part: its requests match no policy
	arrears   []int              // by part: how far it is behind its share; see pick
	total     int                // sum of weights
	unsent    int
	inFlight  int   // requests in flight
	err       error // ends the job
}

// A worker sends one request at a time.
type worker struct {
	node int
	part int // of the request that it has sent last
}

// Run runs the job. It ends early when ctx ends, or with an *[Impossible]. Policies that [throttle.New] refuses are an error.
func (j *Job) Run(ctx context.Context) (*Result, error) {
	r := &run{Job: j, unsent: j.Requests, arrears: make([]int, len(j.Mix))}
	if err := r.priceMix(); err != nil {
		return nil, err
	}

	// Workers beyond the number of requests would send nothing.
	for node := range j.Nodes {
		for range min(j.Workers, j.Requests) {
			r.sendNext(&worker{node: node})
		}
	}

	r.look(func() bool { return r.inFlight > 0 || r.engine.waiting.Len() > 0 })
	for n := 0; r.err == nil && r.engine.Clock.Next(); n++ {
		// Look for an interrupt, and show the progress, once in 1,024 events.
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if j.Progress != nil {
				j.Progress(float64(j.Requests-r.unsent) / float64(j.Requests))
			}
		}
	}

	if r.err != nil {
		return nil, r.err
	}

	r.result.Policies = r.uses
	return r.result, nil
}

// priceMix computes the charges of each part for each node, and makes the account and the result, for the policies that
// the mix matches.
func (r *run) priceMix() error {
	t, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: r.Policies})
	if err != nil {
		return err
	}

	rows, err := newMatcher(r.Policies)
	if err != nil {
		return err
	}

	matched := make(map[string]bool)
	var prices [][]store.Charge // by part
	for _, p := range r.Mix {
		charges := t.Explain(p.Request)
		for _, c := range charges {
			matched[c.Budget.Policy] = true
		}

		prices = append(prices, charges)
		r.unmatched = append(r.unmatched, len(rows.Explain(p.Request)) == 0)
		r.total += p.Weight
	}

	// Leave out policies that no request of the mix matches.
	var used []throttle.Policy
	for _, p := range r.Policies {
		if matched[p.Name] {
			used = append(used, p)
		}
	}

	r.account = newAccount(NewEngine(r.Begin), used, r.Latency)
	r.result = &Result{Timeline: r.timeline}

	for node := range r.Nodes {
		own := make([][]store.Charge, len(prices))
		for i, charges := range prices {
			own[i] = ofNode(charges, node)
		}
		r.prices = append(r.prices, own)
	}

	return nil
}

// newMatcher returns a transport whose Explain has each policy that a request matches, also those under which it is free.
func newMatcher(policies []throttle.Policy) (*throttle.Transport, error) {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Cost = nil
	}
	return throttle.New(throttle.Config{Store: memstore.New(), Policies: policies})
}

// pick returns the index of the part that is furthest behind its share, for the next request.
func (r *run) pick() int {
	// Weighted round-robin: the order of the parts is even, and the same in each run.
	best := 0
	for i, p := range r.Mix {
		r.arrears[i] += p.Weight
		if r.arrears[i] > r.arrears[best] {
			best = i
		}
	}
	r.arrears[best] -= r.total
	return best
}

// sendNext lets a worker send its next request, if one is left.
func (r *run) sendNext(w *worker) {
	if r.unsent == 0 {
		return
	}
	r.unsent--
	w.part = r.pick()

	// Send may change the cost of a charge, so send a copy.
	charges := append([]store.Charge(nil), r.prices[w.node][w.part]...)
	r.price(charges)
	if r.unmatched[w.part] {
		r.result.Unmatched++
	}
	r.engine.Send(&Request{Charges: charges, Data: w}, r)
}

// Started implements Observer. It plays the answer: latency after the start, the request ends and the worker sends its next
// request.
func (r *run) Started(q *Request) {
	w := q.Data.(*worker)
	r.result.Waits.Add(q.Waited())
	r.inFlight++
	r.timeline.start(r.engine.Clock.Now())
	r.recordShadowDelays(q)

	// A part of the mix may have a latency of its own.
	latency := r.Latency
	if partLatency := r.Mix[w.part].Latency; partLatency > 0 {
		latency = partLatency
	}

	r.engine.Clock.AfterFunc(latency, func() {
		r.inFlight--
		r.result.Took = time.Duration(r.engine.Clock.Now()-r.Begin.UnixMicro()) * time.Microsecond

		// Redis needs a moment until it has handed the slot to the next request.
		if slices.ContainsFunc(q.Charges, takesSharedSlot) {
			r.engine.Clock.AfterFunc(r.HandOver, q.End)
		} else {
			q.End()
		}

		r.sendNext(w)
	})
}

// takesSharedSlot reports whether a charge takes a slot that moves between nodes.
func takesSharedSlot(c store.Charge) bool {
	return c.Limit.Kind() == store.KindConcurrency && !c.Node
}

// Refused implements Observer. It ends the job: requests of a job wait without a limit, so this one can never start.
func (r *run) Refused(q *Request, charge int, _ time.Duration) {
	c := q.Charges[max(0, charge)] // a negative charge is unknown
	r.err = &Impossible{c.Budget.Policy, c.Limit, c.Cost}
}
