// Package simulation has requests take their starts in virtual time. The store that decides is
// memstore, which programs use as well, and a request does what a request of a Transport does:
// it books within the horizon, waits for its start or its turn in line, and takes its slots
// at the start. A test compares the two.
package simulation

import (
	"container/list"
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/virtual"
	_ "github.com/fleetthrottle/throttle/memstore" // which sets virtual.NewStore
	"github.com/fleetthrottle/throttle/store"
)

// maxWaitGrace is by how much a start may come later than MaxWait.
const maxWaitGrace = 50 * time.Millisecond

// An Engine is a store in virtual time, for requests.
type Engine struct {
	Clock   *virtual.Clock
	store   store.Store
	waiting *list.List // of requests that are held, the first to come first
}

// NewEngine returns an engine whose clock stands at t.
func NewEngine(t time.Time) *Engine {
	c := virtual.NewClock(t)
	return &Engine{c, virtual.NewStore(c), list.New()}
}

// Observer is told what becomes of requests.
type Observer interface {
	// Held says that a charge held the request for a time that is over now.
	Held(r *Request, charge int, from, to int64)

	// Started says that the request may be sent. It is in flight until [Request.End].
	Started(r *Request)

	// Refused says that the request was not sent, because of a charge, and how long it would
	// have had to wait; [throttle.Never] if no wait helps.
	Refused(r *Request, charge int, wait time.Duration)
}

// A Request is one request on its way.
type Request struct {
	Charges []store.Charge // what it costs, as Transport.Explain has it; they are the request's own
	MaxWait time.Duration  // less than 0: it does not wait; 0: as long as it has to

	Arrived int64 // when it came: microseconds since the Unix epoch
	Waits   bool  // a charge held it, and it has not started
	Data    any   // the observer's own

	engine       *Engine
	observer     Observer
	booking      store.Booking
	grant        store.Grant
	held         int   // the charge that holds it, or held it last; below 0: none
	since        int64 // when that began
	maxWaitTimer *virtual.Timer
	element      *list.Element // among those that wait
	slots        *slotBooking
}

// A slotBooking is a second booking, of the Concurrency charges alone, made when the start has come.
type slotBooking struct {
	booking store.Booking
	grant   store.Grant
}

// Send has a request take its start, from now on.
func (e *Engine) Send(r *Request, o Observer) {
	r.engine, r.observer = e, o
	r.Arrived, r.held, r.grant.HeldBy = e.Clock.Now(), -1, -1

	for i := range r.Charges {
		c := &r.Charges[i]
		if most := c.Limit.Capacity() - c.KeepFree; c.Cost > most {
			if !c.Shadow {
				o.Refused(r, i, throttle.Never)
				return
			}
			c.Cost = most
		}
	}

	if len(r.Charges) == 0 {
		o.Started(r)
		return
	}

	r.booking.Charges = r.Charges
	r.book()
}

// remaining is Booking.MaxWait.
func (r *Request) remaining() time.Duration {
	switch {
	case r.MaxWait == 0:
		return -1
	case r.MaxWait < 0:
		return 0
	}
	return max(time.Nanosecond, r.MaxWait-r.waited())
}

func (r *Request) waited() time.Duration {
	return time.Duration(r.engine.Clock.Now()-r.Arrived) * time.Microsecond
}

// book books a start in place of what is held.
func (r *Request) book() {
	again := r.Waits || r.grant.OK || r.grant.Ready != nil
	r.stopTimer()
	b := &r.booking
	b.MaxWait, b.Horizon = r.remaining(), 0
	for i := range b.Charges {
		b.Horizon = max(b.Horizon, b.Charges[i].Limit.Horizon())
	}

	b.Turn, b.Returns = r.grant.Turn, again
	b.Instead = (store.Handle{})
	if r.grant.OK || r.grant.Ready != nil {
		b.Instead = r.grant.Handle
	}

	g, err := r.engine.store.Book(context.Background(), b)
	if err != nil {
		panic(err) // a store in memory has none
	}

	r.grant = g
	r.follow()
}

// follow does what follows from the grant: it starts or refuses the request, or has it wait.
func (r *Request) follow() {
	g := &r.grant
	late := r.MaxWait > 0 && g.OK && r.waited()+g.Wait > r.MaxWait+maxWaitGrace
	if late {
		r.engine.store.Cancel(&r.booking, *g)
	}

	if late || !g.OK && g.Ready == nil {
		r.refuse(g.HeldBy, g.Wait)
		return
	}

	if g.OK && g.Wait == 0 {
		r.start()
		return
	}

	r.wait(g.HeldBy)
	if g.OK {
		r.engine.Clock.AfterFunc(g.Wait, r.arrive)
		return
	}

	r.engine.Clock.OnClose(g.Ready, r.book)
	if r.MaxWait > 0 {
		r.maxWaitTimer = r.engine.Clock.AfterFunc(r.MaxWait-r.waited(), r.giveUp)
	}
}

// arrive takes the slots, because the start has come. A request that finds no room for them gives the
// start back and gets in line.
func (r *Request) arrive() {
	var few []store.Charge
	mixed := false
	for _, c := range r.Charges {
		if c.Limit.Kind() == store.KindConcurrency {
			few = append(few, c)
		}
		mixed = mixed || c.Node != r.Charges[0].Node
	}

	if len(few) == 0 {
		r.start()
		return
	}

	h := &slotBooking{booking: store.Booking{Charges: few, MaxWait: r.remaining()}}
	if mixed { // a place in line for some charges is none for all
		h.booking.MaxWait = 0
	}

	g, _ := r.engine.store.Book(context.Background(), &h.booking)
	switch {
	case g.OK:
		h.grant, r.slots = g, h
		r.start()
	case mixed:
		r.book()
	default:
		r.engine.store.Cancel(&r.booking, r.grant)
		g.Turn = r.grant.Turn

		for i, c := range r.Charges {
			if g.HeldBy >= 0 && c.Budget == few[g.HeldBy].Budget {
				g.HeldBy = i
				break
			}
		}

		r.grant = g
		r.follow()
	}
}

// giveUp ends a wait in line, because MaxWait is over.
func (r *Request) giveUp() {
	r.engine.Clock.Forget(r.grant.Ready)
	if r.grant.Handle == (store.Handle{}) {
		r.book() // the store says how long it would be
		return
	}
	held := r.grant.HeldBy
	r.engine.store.Cancel(&r.booking, r.grant)
	r.refuse(held, r.grant.Wait)
}

// stopTimer stops the timer that runs for MaxWait while the request is in line.
func (r *Request) stopTimer() {
	if r.maxWaitTimer != nil {
		r.maxWaitTimer.Stop()
		r.maxWaitTimer = nil
	}
}

// wait notes that a charge holds the request from now on.
func (r *Request) wait(held int) {
	now := r.engine.Clock.Now()
	if held < 0 {
		held = r.held
	}
	if r.Waits && r.held == held {
		return
	}
	r.tellHeld(now)
	if r.element == nil {
		r.element = r.engine.waiting.PushBack(r)
	}
	r.Waits, r.held, r.since = true, held, now
}

// tellHeld tells the observer how long the present charge has held the request.
func (r *Request) tellHeld(now int64) {
	if r.Waits && r.held >= 0 && now > r.since {
		r.observer.Held(r, r.held, r.since, now)
	}
}

// endWait notes that nothing holds the request any more.
func (r *Request) endWait() {
	r.tellHeld(r.engine.Clock.Now())
	r.Waits = false
	if r.element != nil {
		r.engine.waiting.Remove(r.element)
		r.element = nil
	}
}

// start tells the observer that the request has started.
func (r *Request) start() {
	r.endWait()
	r.observer.Started(r)
}

// refuse tells the observer that the request was refused because of the charge with an index, and how
// long it would have had to wait.
func (r *Request) refuse(charge int, wait time.Duration) {
	r.stopTimer()
	r.endWait()
	r.observer.Refused(r, charge, wait)
}

// Waited is how long the request was held, once it has started or was refused.
func (r *Request) Waited() time.Duration { return r.waited() }

// Over returns by how much each charge in shadow mode would have held the request longer, nil if
// none would have.
func (r *Request) Over() []time.Duration { return r.grant.Over }

// HeldBy returns the charge that held the request last; below 0 if none did.
func (r *Request) HeldBy() int { return r.held }

// End ends a request that has started: its answer has come.
func (r *Request) End() {
	switch {
	case r.slots != nil:
		r.engine.store.Release(&r.slots.booking, r.slots.grant)
	case len(r.Charges) > 0:
		r.engine.store.Release(&r.booking, r.grant)
	}
}

// askedWaiters is how many of the requests that wait are asked what holds them.
const askedWaiters = 4

// eachBinding calls add for each of the first few requests that wait, with the charge that holds
// it: the one whose budget has no room for longest. In whose line a request stands says less,
// because one line may stand still for the sake of another. A full budget in flight has room
// after the latency. It reports whether there are any.
func (e *Engine) eachBinding(latency time.Duration, add func(*store.Charge)) bool {
	n := 0
	for at := e.waiting.Front(); at != nil && n < askedWaiters; at = at.Next() {
		r := at.Value.(*Request)
		best, most := r.held, time.Duration(0)
		for i, c := range r.Charges {
			if c.Shadow {
				continue
			}

			st, _ := e.store.Status(context.Background(), c) // a store in memory has no error
			if c.Limit.Kind() == store.KindConcurrency {
				st.Wait = 0
				if st.Waiting > 0 {
					st.Wait = latency
				}
			}

			if st.Wait > most {
				best, most = i, st.Wait
			}
		}

		if best >= 0 {
			n++
			add(&r.Charges[best])
		}
	}

	return n > 0
}
