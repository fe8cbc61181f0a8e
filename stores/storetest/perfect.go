package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A visit is a caller that comes, waits for its start, and may leave before it.
type visit struct {
	at      time.Duration
	booking store.Booking
	maxWait time.Duration // it leaves after this time, or never if 0
	settled int           // the final cost of its first charge, or negative if it is not settled
	delay   time.Duration // the time from its start until the final cost is known
}

// A turnEvent is an event of a budget that is no visit.
type turnEvent struct {
	at     time.Duration
	charge store.Charge
	pause  time.Duration // 0 ends all pauses
}

// A plan is all that happens in one run.
type plan struct {
	budgets []store.Charge
	visits  []visit // by time
	events  []turnEvent
	refunds bool // some cost less than they booked
}

// end is when the last visit has come, and the last pause is over.
func (p *plan) end() (end time.Duration) {
	for _, v := range p.visits {
		end = max(end, v.at)
	}
	for _, e := range p.events {
		end = max(end, e.at+e.pause)
	}
	return end
}

// A perfectQueue is the definition of the line. At each moment the first, by priority and
// arrival, whose start is allowed by all its budgets begins; nobody passes a waiter
// for the same budget. Nothing is booked ahead. It tries everything, so it is slow and
// easy to believe.
type perfectQueue struct {
	ledger *ledger
	zero   time.Time
	plan   *plan
	waits  []int           // indices of visits, in the order in which they are served
	starts []time.Duration // of the visits, or never
	nexts  []perfectEvent  // to come, by time
}

// A perfectEvent is what happens at some moment.
type perfectEvent struct {
	at time.Duration
	do func()
}

// perfect returns when each visit of a plan begins, counted from zero, or never for a visit that does
// not begin. The visits in without do not come.
func perfect(p *plan, zero time.Time, without map[int]bool) []time.Duration {
	q := &perfectQueue{ledger: newLedger(), zero: zero, plan: p, starts: make([]time.Duration, len(p.visits))}
	for i, v := range p.visits {
		q.starts[i] = never
		if without[i] {
			continue
		}

		q.when(v.at, func() { q.comes(i) })
		if v.maxWait > 0 {
			q.when(v.at+v.maxWait, func() { q.leaves(i) })
		}
	}

	for _, e := range p.events {
		q.when(e.at, func() { q.happens(e) })
	}

	// Go from one moment to the next at which something happens, or a visit may begin.
	for now := time.Duration(0); ; {
		for len(q.nexts) > 0 && q.nexts[0].at <= now {
			do := q.nexts[0].do
			q.nexts = q.nexts[1:]
			do()
		}

		next := q.serve(now)
		if len(q.nexts) > 0 {
			next = min(next, q.nexts[0].at)
		}
		if next == store.Never {
			return q.starts
		}

		now = next
	}
}

// when notes an event of a moment, behind the moment's earlier events.
func (q *perfectQueue) when(at time.Duration, do func()) {
	// The search for at+1 ends behind the events of this moment.
	i, _ := slices.BinarySearchFunc(q.nexts, at, func(e perfectEvent, at time.Duration) int { return cmp.Compare(e.at, at+1) })
	q.nexts = slices.Insert(q.nexts, i, perfectEvent{at, do})
}

// comes puts visit i behind the waiters of the same priority or of a higher one.
func (q *perfectQueue) comes(i int) {
	first := slices.IndexFunc(q.waits, func(o int) bool {
		return q.plan.visits[o].booking.Priority < q.plan.visits[i].booking.Priority
	})
	if first < 0 {
		first = len(q.waits)
	}
	q.waits = slices.Insert(q.waits, first, i)
}

// leaves takes visit i out of the line, if it stands there.
func (q *perfectQueue) leaves(i int) {
	q.waits = slices.DeleteFunc(q.waits, func(o int) bool { return o == i })
}

// happens closes a budget, or opens it if the event has no pause.
func (q *perfectQueue) happens(e turnEvent) {
	if e.pause == 0 {
		delete(q.ledger.closed, e.charge.Budget.Key)
		return
	}
	q.ledger.shut(e.charge, q.micro(e.at), e.pause, 0)
}

// micro is a time of the run in microseconds.
func (q *perfectQueue) micro(t time.Duration) int64 { return q.zero.Add(t).UnixMicro() }

// serve begins all visits whose turn it is, and returns when a visit that still waits may begin, or store.Never if none waits.
func (q *perfectQueue) serve(now time.Duration) (next time.Duration) {
	next = store.Never
	t := q.micro(now)

	held := make(map[[16]byte]bool) // budgets for which a visit waits
	for _, i := range slices.Clone(q.waits) {
		k := q.plan.visits[i].booking
		if slices.ContainsFunc(k.Charges, func(c store.Charge) bool { return held[c.Budget.Key] }) {
			continue // an earlier visit waits for one of its budgets
		}

		// This waiter has no start now: nobody passes it in the budgets that hold it.
		if first := q.ledger.earliest(k, t); first > t {
			next = min(next, now+tickTimes(first-t))
			for _, c := range k.Charges {
				if !q.ledger.ask(c, k, t).allows(t) {
					held[c.Budget.Key] = true
				}
			}

			continue
		}

		q.leaves(i)
		q.begins(i, now)
	}

	return next
}

// begins notes a start, and has its cost settled as the plan says.
func (q *perfectQueue) begins(i int, now time.Duration) {
	v := q.plan.visits[i]
	q.starts[i] = now
	q.ledger.add(v.booking, q.micro(now))
	if v.settled < 0 {
		return
	}

	costs := []int{v.settled}
	for _, c := range v.booking.Charges[1:] {
		costs = append(costs, c.Cost)
	}

	q.when(now+v.delay, func() {
		q.ledger.settle(v.booking, q.micro(now), q.micro(now+v.delay), costs)
	})
}
