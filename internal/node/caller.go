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

// State is the state of a caller that waits for a start. A caller is in exactly one state, in the store that the caller called.
//
//	state     in the rows                the caller has           next state, and by which method
//	left      nothing                    a start, a refusal or    asked (Ask)
//	                                     nothing
//	asked     the grant to be replaced   called Book, and waits   in line, left (Answer)
//	                                     for the answer
//	in line   a place in one line        an open Ready            booked, summoned, or in line for a second budget (Served);
//	                                                              summoned (Dismiss); left (Leave, GiveUp)
//	summoned  perhaps a turn: the line   a closed Ready, and      left (Leave, GiveUp)
//	          stands still behind it     books again by itself
//	booked    a start                    a closed Ready, and      left (Deliver, Leave, GiveUp)
//	                                     fetches the start
//
// A caller that needs concurrency slots is never booked: it is summoned, one caller at a time, and takes the slots by itself. If there are none it waits
// for slots, as a slotWaiter: in line until its arrival is called, then summoned.
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
// of its own. Methods that have a request change rows. The request is about the caller's Booking. The store opens the request, passes on its news, and notes in
// which line the caller stands afterwards.
type Caller struct {
	ledger.Waiter
	state   State
	booking store.Booking // as the caller asked last, without an Instead that was given back. Its charges are the Caller's own.
	ends    int64         // when the caller's MaxWait is over, in microseconds of the store's clock
	ready   chan struct{} // the Ready of the caller's grant
	grant   store.Grant   // the start of a caller that is booked
}

// A slotWaiter is a caller that waits for concurrency slots.
type slotWaiter struct {
	ready   chan struct{}
	booking *store.Booking // as the caller asked
	charge  int            // the index of the charge whose slots are missing
}

// State returns the caller's state.
func (c *Caller) State() State { return c.state }

// Booking returns the booking with which the caller asked last. The Caller changes it in Ask.
func (c *Caller) Booking() *store.Booking { return &c.booking }

// EndsBefore reports whether the caller's MaxWait is over before a time of the store's clock.
func (c *Caller) EndsBefore(at int64) bool { return c.ends < at }

// IsKnown reports whether rows know of the caller: a place, a turn, or a start that was booked for it.
func (c *Caller) IsKnown() bool { return c.Keeps() || c.state == Booked }

// Leave gives back the place, the turn and the start of a caller that rows know of, because it asks again. Otherwise they would count the caller twice.
func (c *Caller) Leave(q *ledger.Request) { c.leave(q, (*ledger.Request).Leave) }

// GiveUp is Leave for a caller that does not ask again.
func (c *Caller) GiveUp(q *ledger.Request) { c.leave(q, (*ledger.Request).GiveUp) }

// leave is Leave or GiveUp: takeOut is the method of that name of the request.
func (c *Caller) leave(q *ledger.Request, takeOut func(*ledger.Request, *ledger.Waiter)) {
	takeOut(q, &c.Waiter)

	// A booked caller stands in no line, but the rows have its start. It holds no slots, so the handle is all that the grant needs.
	if c.state == Booked {
		q.Cancel(store.Grant{Handle: c.grant.Handle})
	}
	c.state, c.grant = Left, store.Grant{}
}

// Ask notes the booking with which the caller asks at the time now of the store's clock. Come must be called before Ask and, if rows know of the caller, Leave
// between the two.
func (c *Caller) Ask(b *store.Booking, now int64) {
	c.booking = *b
	c.booking.Charges = slices.Clone(b.Charges)
	c.ends = math.MaxInt64 // never
	if b.MaxWait >= 0 {
		c.ends = now + ledger.Micros(b.MaxWait)
	}
	c.state = Asked
}

// Answer returns the answer to a caller that has asked, after Stand or Book of the request has decided. From now on a caller that waits for a start is in line,
// and any other has left. The grant has no Turn. If the caller waits for slots, the store has set the Ready of the request's grant before.
func (c *Caller) Answer(q *ledger.Request) (g store.Grant) {
	g = *q.Grant

	// The handle that the booking replaced is given back now, and must not be given back twice.
	c.state, c.booking.Instead = Left, store.Handle{}

	// Only a place in the line for slots is in the handle.
	if q.Waits && g.Handle.Place == 0 {
		c.state, c.ready = InLine, make(chan struct{})
		g.Ready = c.ready
	}
	return g
}

// Served notes that a caller in line had its turn. called is the result of Serve of the request. A caller that waits in line for a second budget now stays in
// line, and Served returns nil. Otherwise the caller is booked if it got a start, and summoned if it was called or refused, and Served returns the channel that
// is to be closed.
func (c *Caller) Served(q *ledger.Request, called bool) (ready chan struct{}) {
	c.booking.Instead = store.Handle{} // it is given back by now
	if _, _, waits := c.Line(); waits {
		return nil
	}

	c.state = Summoned
	if q.Grant.OK && !called {
		c.state, c.grant = Booked, *q.Grant
	}
	return c.ready
}

// Dismiss takes a caller out of line and summons it: the caller is to ask again. It returns the channel that is to be closed.
func (c *Caller) Dismiss(q *ledger.Request) (ready chan struct{}) {
	q.Dismiss(&c.Waiter)
	c.state = Summoned
	return c.ready
}

// Deliver gives a caller the start that was booked for it, as a grant without a Turn whose Wait and Age count from now, a time of the store's clock. The caller
// has left then. Deliver returns false, and changes nothing, if there is no start, if the caller asks for other charges or a different spread, or if it comes
// later than the start by more than late: such a caller gets a new start.
func (c *Caller) Deliver(b *store.Booking, now int64, late time.Duration) (g store.Grant, ok bool) {
	if c.state != Booked || now-c.grant.Handle.Start > ledger.Micros(late) {
		return g, false
	}

	// A caller with other charges has no use for the start, and a caller with a larger spread could use the start later than the room behind the start
	// allows. Leave gives the start back.
	if c.booking.Spread != b.Spread || !slices.Equal(c.booking.Charges, b.Charges) {
		return g, false
	}

	g = c.grant
	c.state, c.grant = Left, store.Grant{}

	// A start that is past has an age in place of a wait.
	g.Wait = time.Duration(max(0, g.Handle.Start-now)) * time.Microsecond
	g.Age = time.Duration(max(0, now-g.Handle.Start)) * time.Microsecond
	return g, true
}

// Punctual is how late a caller may always come for the start that was booked for it. Without jitter, a caller that comes later gets a new start: its own is
// nearly as old as a grant may be, and a caller takes an old grant for the answer of a slow store.
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

// Begin begins the watch over the start of the grant g: Tell sends on news. The charges do not change until the watch is over.
func (w *Watch) Begin(charges []store.Charge, g store.Grant, news chan<- struct{}) {
	w.charges, w.grant, w.news = charges, g, news
}

// Tell sends on the caller's news channel, without blocking.
func (w *Watch) Tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not read the last news
	}
}

// Usable reports whether the start may be used: it was not lifted, and the rows do not forbid it. row returns the row of a budget, or nil if there is none.
func (w *Watch) Usable(row func(ledger.Key) *ledger.Row) bool {
	return !w.lifted.Load() && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row { return row(w.charges[i].Budget.Key) })
}

// budgets calls do with the key of each budget that can make the start useless: the budget of a Shadow charge cannot.
func (w *Watch) budgets(do func(ledger.Key)) {
	for i := range w.charges {
		if !w.charges[i].Shadow {
			do(w.charges[i].Budget.Key)
		}
	}
}

// Watches are the watches over starts of one budget. The nil Watches can be read.
type Watches map[*Watch]struct{}

// Warn tells the watches whose starts became useless, the earliest start first, so that their callers book anew in that order. If the starts are lifted, the
// watches remember it: see Usable.
func (all Watches) Warn(u ledger.Useless) {
	var useless []*Watch
	for w := range all {
		if u.From <= w.grant.Handle.Start && w.grant.Handle.Start < u.Before {
			useless = append(useless, w)
		}
	}

	slices.SortFunc(useless, func(a, b *Watch) int { return cmp.Compare(a.grant.Handle.Start, b.grant.Handle.Start) })

	for _, w := range useless {
		if u.Lifted {
			w.lifted.Store(true)
		}
		w.Tell()
	}
}
