package node

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A step is what a node does in one lane at one time, for all callers that have come together. Rows
// and the memory are changed at once; what callers see happens when the rows are saved. If they
// cannot be, the memory is put back.
type step struct {
	*memory
	rows Rows
	now  int64
	told Told

	news ledger.News // of this step, which the step itself has not looked at
	undo []func()

	// What happens when the rows are saved.
	wake    []chan struct{}
	booked  []*waiter // for which the step has booked while they waited
	useless []ledger.Useless
	later   map[ledger.Key]time.Duration // when lines are looked at again; below 0: not again
}

// begin makes the step ready for rows, and takes back what it has done with others.
func (st *step) begin(rows Rows) {
	st.takeBack()
	st.rows, st.now = rows, rows.Now()
}

// takeBack puts the memory back.
func (st *step) takeBack() {
	for i := len(st.undo) - 1; i >= 0; i-- {
		st.undo[i]()
	}
	st.forget()
}

// forget makes the step one that has done nothing.
func (st *step) forget() {
	clear(st.undo)
	clear(st.wake)
	clear(st.booked)
	clear(st.later)
	*st = step{memory: st.memory, undo: st.undo[:0], wake: st.wake[:0], booked: st.booked[:0], useless: st.useless[:0], later: st.later}
}

// row returns the row of a charge; nil for an unlimited budget that has none.
func (st *step) row(c *store.Charge) *ledger.Row {
	return st.rows.Row(c.Budget.Key, c.Limit.Kind() != store.KindUnlimited)
}

// request returns a request for a booking.
func (st *step) request(b *store.Booking, g *store.Grant) *ledger.Request {
	q := &ledger.Request{
		Now: st.now, Node: st.node, Arrivals: st.arrivals, Booking: b, Grant: g, Bounded: true,
		Searches: make([]ledger.Search, len(b.Charges)),
	}
	st.rows.Fetch(b.Charges)
	for i := range b.Charges {
		c := &b.Charges[i]
		r := st.row(c)
		q.Open(i, r)
		if h := st.held[c.Budget.Key]; h != nil && st.doubts == 0 && c.Limit.Kind() == store.KindConcurrency {
			r.Holds(int64(h.n), st.node)
		}
	}
	return q
}

// change does something for all charges of a booking.
func (st *step) change(b *store.Booking, do func(*ledger.Request)) {
	q := st.request(b, new(store.Grant))
	do(q)
	st.note(q)
}

// note takes in what a request has changed for others.
func (st *step) note(q *ledger.Request) {
	if q.HasNews() {
		Append(&st.news, q.News())
	}
}

// touch is called before a waiter is changed.
func (st *step) touch(w *waiter) {
	before := *w
	before.Waiter = w.Clone()
	st.undo = append(st.undo, func() {
		st.memory.dropLine(w)
		*w = before
		st.memory.noteLine(w)
	})
	st.memory.dropLine(w)
}

// setSlot notes a waiter for slots; nil: there is none.
func (st *step) setSlot(key ledger.Key, arrival int64, w *slotWaiter) {
	before := st.slots[key][arrival]
	if before == w {
		return
	}
	st.undo = append(st.undo, func() { put(st.slots, key, arrival, before) })
	put(st.slots, key, arrival, w)
}

// holds notes slots that a caller holds from now on, or not any more.
func (st *step) holds(b *store.Booking, sign int) {
	st.undo = append(st.undo, func() { st.hold(b, -sign) })
	st.hold(b, sign)
}

// lookAgain has a line served later; below 0: not again.
func (st *step) lookAgain(key ledger.Key, later time.Duration) {
	if st.later == nil {
		st.later = make(map[ledger.Key]time.Duration)
	}
	st.later[key] = later
}
