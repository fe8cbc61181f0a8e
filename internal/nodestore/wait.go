package nodestore

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// punctual is by how many microseconds a caller may come later than the start that was booked for
// it: see memstore.
const punctual = 5_000

// mostShort is how many charges a booking has at most that takes the short way, which reads each row by
// itself.
const mostShort = 4

// book books for a caller. Its booking is the caller's until the step is over.
func (st *step) book(b *store.Booking, g *store.Grant) {
	*g = store.Grant{}
	if b.Turn == nil && len(b.Charges) <= mostShort {
		var few [mostShort]*ledger.Row
		rows := few[:0]
		for i := range b.Charges {
			rows = append(rows, st.row(&b.Charges[i]))
		}
		if ledger.BookShort(st.now, b, rows, g) {
			return
		}
	}
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	st.touch(w)
	st.bookWaiter(w, b, g)
	st.noteLine(w)
}

// bookWaiter is book for what is not plain. The waiter does not stand in the memory.
func (st *step) bookWaiter(w *waiter, b *store.Booking, g *store.Grant) {
	if w.grant.OK && st.now-w.grant.Handle.Start <= punctual && slices.Equal(w.booking.Charges, b.Charges) {
		*g, w.grant = w.grant, store.Grant{}
		g.Wait = time.Duration(max(0, g.Handle.Start-st.now)) * time.Microsecond
		g.Age = time.Duration(max(0, st.now-g.Handle.Start)) * time.Microsecond
		return
	}
	st.unslot(b, b.Instead)
	w.Come(b)
	st.leave(w, (*ledger.Request).Leave)
	w.booking = *b
	w.booking.Charges = slices.Clone(b.Charges)
	if w.ends = math.MaxInt64; b.MaxWait >= 0 {
		w.ends = st.now + ledger.Micros(b.MaxWait)
	}
	q := st.request(&w.booking, g)
	stood := q.Book(&w.Waiter)
	st.note(q)
	if st.answer(w, q); !stood {
		g.Turn = nil
	}
	if q.Waits && g.Handle.Place == 0 {
		st.news.Moved = append(st.news.Moved, b.Charges[g.Held].Budget.Key)
	}
	if g.OK && g.Wait == 0 && holdsSlots(&w.booking) {
		st.holds(&w.booking, 1)
	}
}

// holdsSlots reports whether a start of the booking holds slots.
func holdsSlots(b *store.Booking) bool {
	return slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency })
}

// leave takes a waiter out of its line, by do, and gives back what was booked for it.
func (st *step) leave(w *waiter, do func(*ledger.Request, *ledger.Waiter)) {
	if !w.Keeps() && !w.grant.OK {
		return
	}
	st.change(&w.booking, func(q *ledger.Request) {
		do(q, &w.Waiter)
		if w.grant.OK {
			q.Cancel(store.Grant{Handle: w.grant.Handle})
			w.grant = store.Grant{}
		}
	})
}

// giveUp has a waiter leave its line that does not come again.
func (st *step) giveUp(w *waiter) {
	st.touch(w)
	st.leave(w, (*ledger.Request).GiveUp)
	st.noteLine(w)
}

// unslot notes that a waiter for slots asks again, or leaves.
func (st *step) unslot(b *store.Booking, h store.Handle) {
	for i := range b.Charges {
		st.setSlot(b.Charges[i].Budget.Key, h.Place, nil)
	}
}

// answer completes the answer to a booking.
func (st *step) answer(w *waiter, q *ledger.Request) {
	g := q.Grant
	if q.Waits {
		ready := make(chan struct{})
		if g.Ready = ready; g.Handle.Place != 0 {
			st.setSlot(q.Booking.Charges[g.Held].Budget.Key, g.Handle.Place, &slotWaiter{w.booking, g.Held, ready})
		} else {
			w.ready = ready
		}
	}
	g.Turn, w.booking.Instead = w, store.Handle{}
}

// cancel gives back a grant, or a place in line.
func (st *step) cancel(b *store.Booking, g store.Grant) {
	st.unslot(b, g.Handle)
	if w, ok := g.Turn.(*waiter); ok {
		st.giveUp(w)
	}
	st.change(b, func(q *ledger.Request) { q.Cancel(g) })
	if g.OK && g.Wait == 0 && holdsSlots(b) {
		st.holds(b, -1)
	}
}
