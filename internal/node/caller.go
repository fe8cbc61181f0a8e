package node

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// The states of a caller that waits for a start. A caller is in exactly one of them, in the store that the caller called.
//
//	state     in the rows                the caller has           next state, and by which method
//	left      nothing                    a start, a refusal or    asked (Ask)
//	                                     nothing
//	asked     the grant to be replaced   called Book, and waits   in line, left (Book)
//	                                     for the answer
//	in line   a place in one line        an open Ready            booked, summoned, or in line for a second budget (Serve);
//	                                                              summoned (Dismiss); asked (Ask); left (GiveUp)
//	summoned  perhaps a turn: the line   a closed Ready, and      asked (Ask); left (GiveUp)
//	          stands still behind it     books again by itself
//	booked    a start                    a closed Ready, and      left (Deliver, GiveUp); asked (Ask), if the caller
//	                                     fetches the start        comes too late
//
// A caller that needs concurrency slots is never booked: it is summoned, one caller at a time, and takes the slots by itself. If there are none it waits
// for slots, as a [SlotWaiter]: in line until its arrival is called, then summoned.
type State int8

const (
	Left State = iota
	Asked
	InLine
	Summoned
	Booked
)

// String returns the name of the state.
func (s State) String() string {
	return [...]string{"left", "asked", "in line", "summoned", "booked"}[s]
}

// A Caller is a caller that waits, or waited, for a start: the only place where its state is kept. The zero Caller has left. A store guards it by a lock
// of its own. Methods change the rows of the caller's booking through a [Desk].
type Caller struct {
	ledger.Waiter
	state   State
	booking store.Booking // as the caller asked last. Its charges are the Caller's own.
	ends    int64         // when the caller's MaxWait is over, in microseconds of the store's clock
	ready   chan struct{} // the Ready of the caller's grant
	grant   store.Grant   // the start of a caller that is booked
}

// A Desk is the part of a store that a Caller needs.
type Desk interface {
	// Change changes the rows of a booking in one atomic step, takes in the news of the step, and keeps account of the line in which the
	// caller stands then.
	Change(b *store.Booking, do func(*ledger.Request))

	// AwaitSlots keeps account of a caller that waits for slots of a budget, until its arrival is called. It is called inside of Change.
	AwaitSlots(key ledger.Key, arrival int64, w SlotWaiter)
}

// A SlotWaiter is a caller that waits for concurrency slots.
type SlotWaiter struct {
	Ready   chan struct{}
	Booking *store.Booking // as the caller asked
	Charge  int            // the index of the charge whose slots are missing
}

// State returns the caller's state.
func (c *Caller) State() State { return c.state }

// Booking returns the booking with which the caller asked last. The Caller changes it in Ask.
func (c *Caller) Booking() *store.Booking { return &c.booking }

// EndsBefore reports whether the caller's MaxWait is over before a time of the store's clock.
func (c *Caller) EndsBefore(at int64) bool { return c.ends < at }

// Ask has the caller ask with a booking. Its old place, turn and start are given back, or the rows would count the caller twice.
func (c *Caller) Ask(d Desk, b *store.Booking, now int64) {
	c.Come(b)
	c.leave(d, (*ledger.Request).Leave)

	c.booking = *b
	c.booking.Charges = slices.Clone(b.Charges)
	c.ends = math.MaxInt64
	if b.MaxWait >= 0 {
		c.ends = now + ledger.Micros(b.MaxWait)
	}

	c.state = Asked
}

// Book answers a caller that has asked: do books a start, or puts the caller in a line. The grant has no Turn.
func (c *Caller) Book(d Desk, do func(*ledger.Request, *ledger.Waiter)) (g store.Grant) {
	d.Change(&c.booking, func(q *ledger.Request) {
		do(q, &c.Waiter)
		g = *q.Grant

		c.state = Left
		if !q.Waits {
			return
		}

		ready := make(chan struct{})
		g.Ready = ready
		if g.Handle.Place != 0 {
			d.AwaitSlots(c.booking.Charges[g.HeldBy].Budget.Key, g.Handle.Place, SlotWaiter{ready, &c.booking, g.HeldBy})
			return
		}

		c.state, c.ready = InLine, ready
	})

	c.booking.Instead = store.Handle{}
	return g
}

// Serve gives a caller in line its turn. Do reports whether the caller has its turn, and whether the caller must come by itself: see [ledger.Request.Serve].
// Serve returns the channel that is to be closed, or nil if the caller still waits, perhaps in line for a second budget.
func (c *Caller) Serve(d Desk, do func(*ledger.Request, *ledger.Waiter) (turn, comes bool)) (ready chan struct{}, turn bool) {
	d.Change(&c.booking, func(q *ledger.Request) {
		var comes bool
		turn, comes = do(q, &c.Waiter)
		if !turn {
			return
		}

		c.booking.Instead = store.Handle{}
		if _, _, waits := c.Line(); waits {
			return
		}

		c.state, ready = Summoned, c.ready
		if q.Grant.OK && !comes {
			c.state, c.grant = Booked, *q.Grant
		}
	})

	return ready, turn
}

// Dismiss takes a caller out of line, which is to ask again. It returns the channel that is to be closed.
func (c *Caller) Dismiss(d Desk) (ready chan struct{}) {
	d.Change(&c.booking, func(q *ledger.Request) { q.Dismiss(&c.Waiter) })
	c.state = Summoned
	return c.ready
}

// GiveUp has a caller leave that does not ask again.
func (c *Caller) GiveUp(d Desk) { c.leave(d, (*ledger.Request).GiveUp) }

// leave takes the caller out of its line, by do, and gives back the start that was booked for it.
func (c *Caller) leave(d Desk, do func(*ledger.Request, *ledger.Waiter)) {
	if c.Keeps() || c.state == Booked {
		d.Change(&c.booking, func(q *ledger.Request) {
			do(q, &c.Waiter)
			if c.state == Booked {
				q.Cancel(store.Grant{Handle: c.grant.Handle})
			}
		})
	}
	c.state, c.grant = Left, store.Grant{}
}

// Deliver gives a caller the start that was booked for it, as a grant of now without a Turn. It returns false if there is none, if the caller
// asks for other charges, or if it comes later than the start by more than late: such a caller gets a new start.
func (c *Caller) Deliver(b *store.Booking, now int64, late time.Duration) (g store.Grant, ok bool) {
	if c.state != Booked || now-c.grant.Handle.Start > ledger.Micros(late) || !slices.Equal(c.booking.Charges, b.Charges) {
		return g, false
	}

	g = c.grant
	c.state, c.grant = Left, store.Grant{}
	g.Wait = time.Duration(max(0, g.Handle.Start-now)) * time.Microsecond
	g.Age = time.Duration(max(0, now-g.Handle.Start)) * time.Microsecond
	return g, true
}

// Punctual is by how much a caller may come later than the start that was booked for it, at the least. A caller that comes later gets a new start:
// its own is nearly as old as a grant may be, and a caller takes an old grant for the answer of a slow store.
const Punctual = 5 * time.Millisecond

// clone returns a copy for a step, which may fail.
func (c *Caller) clone() *Caller {
	d := *c
	d.Waiter = c.Waiter.Clone()
	return &d
}

// A Watch is kept over one booked start, and is told when the start becomes useless. The zero Watch must begin.
type Watch struct {
	charges []store.Charge
	grant   store.Grant
	news    chan<- struct{}
	lifted  atomic.Bool // a pause ended early, or less is left than was known: the start must be booked anew
}

// Begin begins the watch over the start of a grant. The charges do not change until the watch is over.
func (w *Watch) Begin(charges []store.Charge, g store.Grant, news chan<- struct{}) {
	w.charges, w.grant, w.news = charges, g, news
}

// Tell sends on the caller's news channel, without blocking.
func (w *Watch) Tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not taken in the last news
	}
}

// Usable reports whether the start may be used. Row returns the row of a budget, or nil if there is none.
func (w *Watch) Usable(row func(ledger.Key) *ledger.Row) bool {
	return !w.lifted.Load() && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row { return row(w.charges[i].Budget.Key) })
}

// budgets calls do with the key of each budget that can make the start useless.
func (w *Watch) budgets(do func(ledger.Key)) {
	for i := range w.charges {
		if !w.charges[i].Shadow {
			do(w.charges[i].Budget.Key)
		}
	}
}

// Watches are the watches over starts of one budget. The nil Watches can be read.
type Watches map[*Watch]struct{}

// Warn tells the watches over starts that became useless, the earliest start first, so that their callers book anew in that order.
func (all Watches) Warn(u ledger.Useless) {
	var some []*Watch
	for w := range all {
		if u.From <= w.grant.Handle.Start && w.grant.Handle.Start < u.Before {
			some = append(some, w)
		}
	}

	slices.SortFunc(some, func(a, b *Watch) int { return cmp.Compare(a.grant.Handle.Start, b.grant.Handle.Start) })

	for _, w := range some {
		if u.Lifted {
			w.lifted.Store(true)
		}
		w.Tell()
	}
}
