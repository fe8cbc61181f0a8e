package node

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// punctual is by how much a caller may come later than the start that was booked for it, at the least: see memstore.
const punctual = 5 * time.Millisecond

// punctualPart is the part of Jitter by which a caller may come later, if that is more. That is how old a grant may be when it is used.
const punctualPart = 2.0 / 7

// lateMost returns by how much the caller of a booking may come later than its start. One that comes later gets another start.
func lateMost(b *store.Booking) time.Duration {
	jitter := time.Duration(math.MaxInt64)
	for i := range b.Charges {
		if c := &b.Charges[i]; c.Jitter > 0 && !c.Shadow {
			jitter = min(jitter, c.Jitter)
		}
	}
	if jitter == math.MaxInt64 {
		return punctual
	}
	return max(punctual, time.Duration(float64(jitter)*punctualPart)+b.Spread)
}

// deliver gives a caller the start that was booked for it while it waited. The caller asks nobody for that: the step that has booked was saved, and
// its answer is as old as if the step had been the caller's own. It returns false if there is no such start, if it is too old, or if something has
// happened to it since.
func (l *lane) deliver(b *store.Booking) (g store.Grant, ok bool) {
	w, _ := b.Turn.(*waiter)
	if w == nil {
		return g, false
	}
	l.state.Lock()
	defer l.state.Unlock()
	if !w.grant.OK || w.reply.at.IsZero() || !slices.Equal(w.booking.Charges, b.Charges) {
		return g, false
	}

	a := &w.reply
	due := a.received.Add(time.Duration(w.grant.Handle.Start-a.now) * time.Microsecond)
	left := time.Until(due)
	if -left > lateMost(b) || l.memory.recent.isAbout(&watch{charges: b.Charges, grant: w.grant}) {
		return g, false
	}
	// The start may be as much earlier than due as the answer to the question for the time took. Nothing has changed between that answer and the
	// end of the step.
	g, w.grant = w.grant, store.Grant{}
	g.Wait = max(0, left)
	g.Age = max(time.Microsecond, a.received.Sub(a.asked)) + max(0, -left)
	return g, true
}

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
	if w.grant.OK && st.now-w.grant.Handle.Start <= ledger.Micros(lateMost(b)) && slices.Equal(w.booking.Charges, b.Charges) {
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
