package simulation

import (
	"encoding/binary"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A Use is what requests ask of one policy.
type Use struct {
	Policy   throttle.Policy
	Requests int
	Cost     int
	Waits    Durations // of the requests that it held, as long as it held them
	Over     Durations // in shadow mode: by how much it would have held them longer
	Refused  int
}

// An account is what an engine's requests ask of policies, and what holds them when.
type account struct {
	engine   *Engine
	latency  time.Duration
	uses     []Use
	rows     map[string]int // of policies, in uses and in the timeline
	timeline *Timeline
	looked   int64 // until when the timeline says what binds
}

func newAccount(e *Engine, policies []throttle.Policy, latency time.Duration) *account {
	a := &account{engine: e, latency: latency, rows: make(map[string]int), looked: e.Clock.Now()}
	for _, p := range policies {
		a.rows[p.Name] = len(a.uses)
		a.uses = append(a.uses, Use{Policy: p})
	}
	a.timeline = newTimeline(a.looked, len(a.uses))
	return a
}

// of returns the use of a charge's policy.
func (a *account) of(c *store.Charge) *Use { return &a.uses[a.rows[c.Budget.Policy]] }

// price notes what a request costs.
func (a *account) price(charges []store.Charge) {
	for i := range charges {
		u := a.of(&charges[i])
		u.Requests, u.Cost = u.Requests+1, u.Cost+charges[i].Cost
	}
}

// shadowed notes what policies in shadow mode would have done to a request.
func (a *account) shadowed(q *Request) {
	for i, over := range q.Over() {
		if over > 0 {
			a.of(&q.Charges[i]).Over.Add(over)
		}
	}
}

// Held implements Observer.
func (a *account) Held(q *Request, charge int, from, to int64) {
	a.of(&q.Charges[charge]).Waits.Add(time.Duration(to-from) * time.Microsecond)
}

// look notes what binds, once for each bin of the timeline, as long as there is anything to see.
func (a *account) look(goesOn func() bool) {
	a.engine.Clock.AfterFunc(a.timeline.Width, func() {
		a.lookOnce()
		if goesOn() {
			a.look(goesOn)
		}
	})
}

// lookOnce notes what binds now, as what has bound since it was looked at last.
func (a *account) lookOnce() {
	var rows []int
	now := a.engine.Clock.Now()
	held := a.engine.eachBinding(a.latency, func(c *store.Charge) { rows = append(rows, a.rows[c.Budget.Policy]) })
	a.timeline.spread(a.looked, now, func(b *Bin, d time.Duration) {
		for _, row := range rows {
			b.Bound[row] += d / time.Duration(len(rows))
		}
		if !held {
			b.Unbound += d
		}
	})
	a.looked = now
}

// ofNode returns charges in which the budgets that each node has for itself are those of one
// node.
func ofNode(charges []store.Charge, node int) []store.Charge {
	own := append([]store.Charge(nil), charges...)
	for i := range own {
		if k := own[i].Budget.Key[:]; own[i].Node {
			k = k[len(k)-4:]
			binary.BigEndian.PutUint32(k, binary.BigEndian.Uint32(k)+uint32(node))
		}
	}
	return own
}
