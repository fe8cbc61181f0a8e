// Package simulation runs requests against policies in virtual time. Decisions
// come from memstore, the store that programs use. A request behaves like a
// request of a Transport: it books within the horizon, waits for its start or
// its turn in line, and takes its slots at the start. A test compares both.
package simulation

import (
	"container/list"
	"context"
	"encoding/binary"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/virtual"
	_ "github.com/fleetthrottle/throttle/memstore" // sets virtual.NewStore
	"github.com/fleetthrottle/throttle/store"
)

// maxWaitGrace is how much later than MaxWait a start may come, as with a Transport: half of StoreGrace of internal/acquire.
const maxWaitGrace = 50 * time.Millisecond

// Engine is a store in virtual time. It is not safe for concurrent use.
type Engine struct {
	Clock   *virtual.Clock
	store   store.Store
	waiting *list.List // of *Request: held requests, in the order in which they began to wait
}

// NewEngine returns an engine whose clock stands at t.
func NewEngine(t time.Time) *Engine {
	c := virtual.NewClock(t)
	return &Engine{c, virtual.NewStore(c), list.New()}
}

// Observer receives the outcomes of requests.
type Observer interface {
	// Held reports that a charge held the request from from to to, in Unix
	// microseconds.
	Held(r *Request, charge int, from, to int64)

	// Started reports that the request may be sent. It is in flight until
	// [Request.End].
	Started(r *Request)

	// Refused reports that the request was not sent because of a charge, and
	// how long the wait would have been, or [throttle.Never].
	Refused(r *Request, charge int, wait time.Duration)
}

// Request is one request on its way.
type Request struct {
	Charges []store.Charge // as from Transport.Explain; owned by the request
	MaxWait time.Duration  // negative for no wait, 0 for no limit

	Arrived int64 // arrival in Unix microseconds
	Waits   bool  // a charge holds it
	Data    any   // for the observer

	engine       *Engine
	observer     Observer
	booking      store.Booking
	grant        store.Grant
	held         int   // charge that holds the request, or held it last; negative before
	since        int64 // time since when this charge holds it
	maxWaitTimer *virtual.Timer
	element      *list.Element // in the engine's waiting
	slots        *slotBooking
}

// A slotBooking is the second booking, for Concurrency charges only, at the start.
type slotBooking struct {
	booking store.Booking
	grant   store.Grant
}

// Send lets a request arrive now, at the time of the engine's clock. The observer hears what becomes of the request: at
// once, or later while the clock runs. Send lowers the cost of a shadow charge that never has room for the cost.
func (e *Engine) Send(r *Request, o Observer) {
	r.engine, r.observer = e, o
	r.Arrived, r.held, r.grant.HeldBy = e.Clock.Now(), -1, -1

	for i := range r.Charges {
		c := &r.Charges[i]
		most := c.Limit.Capacity() - c.KeepFree
		if c.Cost <= most {
			continue
		}

		// A shadow limit holds nothing, so it counts as much of the request as it has room for.
		if !c.Shadow {
			o.Refused(r, i, throttle.Never)
			return
		}
		c.Cost = most
	}

	if len(r.Charges) == 0 {
		o.Started(r)
		return
	}

	r.booking.Charges = r.Charges
	r.book()
}

// remaining returns the Booking.MaxWait of a booking that is made now: what is left of the request's MaxWait.
func (r *Request) remaining() time.Duration {
	switch {
	case r.MaxWait == 0:
		return store.AnyWait
	case r.MaxWait < 0:
		return 0
	}

	// With 0 the booking would not stand in line.
	return max(time.Nanosecond, r.MaxWait-r.waited())
}

// waited returns how long ago the request arrived.
func (r *Request) waited() time.Duration {
	return time.Duration(r.engine.Clock.Now()-r.Arrived) * time.Microsecond
}

// book books a start, gives back the previous grant, and acts on the new one.
func (r *Request) book() {
	hasBooking := r.grant.OK || r.grant.Ready != nil // of a start, or of a place in line
	r.stopTimer()

	// Of several limits the farthest horizon counts.
	b := &r.booking
	b.MaxWait, b.Horizon = r.remaining(), 0
	for i := range b.Charges {
		b.Horizon = max(b.Horizon, b.Charges[i].Limit.Horizon())
	}

	// A request that has waited goes before newcomers. The new booking replaces the previous one in the same call, so that no
	// caller takes the place in between.
	b.Turn, b.Returns = r.grant.Turn, r.Waits || hasBooking
	b.Instead = store.Handle{}
	if hasBooking {
		b.Instead = r.grant.Handle
	}

	g, err := r.engine.store.Book(context.Background(), b)
	if err != nil {
		panic(err) // a store in memory has no errors
	}

	r.grant = g
	r.follow()
}

// follow acts on the grant: start, refuse or wait.
func (r *Request) follow() {
	g := &r.grant

	// A booked start beyond MaxWait is of no use, so give it back and refuse.
	isLate := r.MaxWait > 0 && g.OK && r.waited()+g.Wait > r.MaxWait+maxWaitGrace
	if isLate {
		r.engine.store.Cancel(&r.booking, *g)
	}

	isRefused := !g.OK && g.Ready == nil
	if isLate || isRefused {
		r.refuse(g.HeldBy, g.Wait)
		return
	}

	// A start that comes now has taken its slots.
	if g.OK && g.Wait == 0 {
		r.start()
		return
	}

	r.wait(g.HeldBy)

	// A start that is booked for later takes its slots when it comes.
	if g.OK {
		r.engine.Clock.AfterFunc(g.Wait, r.arrive)
		return
	}

	// The request stands in line, and books again when the store calls it.
	r.engine.Clock.OnClose(g.Ready, r.book)
	if r.MaxWait > 0 {
		r.maxWaitTimer = r.engine.Clock.AfterFunc(r.MaxWait-r.waited(), r.giveUp)
	}
}

// arrive takes the slots when a booked start has come, and starts the request. Without free slots it gives the start back, and
// the request stands in the line for slots, or is refused. A request with budgets of both scopes (the node's own and the
// fleet's) does not stand in that line: arrive books all its charges anew.
func (r *Request) arrive() {
	var slots []store.Charge
	isMixed := false // some budgets are the node's own, and some the fleet's
	for _, c := range r.Charges {
		if c.Limit.Kind() == store.KindConcurrency {
			slots = append(slots, c)
		}
		isMixed = isMixed || c.Node != r.Charges[0].Node
	}

	if len(slots) == 0 {
		r.start()
		return
	}

	s := &slotBooking{booking: store.Booking{Charges: slots, MaxWait: r.remaining()}}

	// Such a request does not stand in the line for slots: a place there is of one scope alone, and the next booking needs both.
	// With MaxWait 0 the store gives no place in line.
	if isMixed {
		s.booking.MaxWait = 0
	}

	g, _ := r.engine.store.Book(context.Background(), &s.booking) // a store in memory has no errors
	switch {
	case g.OK:
		s.grant, r.slots = g, s
		r.start()
	case isMixed:
		r.book()
	default:
		r.engine.store.Cancel(&r.booking, r.grant)
		g.Turn = r.grant.Turn // the next booking is of all charges, and keeps the turn

		// HeldBy is an index in slots: find the charge among all charges.
		for i, c := range r.Charges {
			if g.HeldBy >= 0 && c.Budget == slots[g.HeldBy].Budget {
				g.HeldBy = i
				break
			}
		}

		r.grant = g
		r.follow()
	}
}

// giveUp refuses a request that stands in line when its MaxWait is over.
func (r *Request) giveUp() {
	// The store must not call this request any more.
	r.engine.Clock.Forget(r.grant.Ready)

	// Without a booking to cancel, book once more: the refusal says how long the wait would have been.
	if r.grant.Handle == (store.Handle{}) {
		r.book()
		return
	}
	r.engine.store.Cancel(&r.booking, r.grant)
	r.refuse(r.grant.HeldBy, r.grant.Wait)
}

// stopTimer stops the timer for MaxWait.
func (r *Request) stopTimer() {
	if r.maxWaitTimer != nil {
		r.maxWaitTimer.Stop()
		r.maxWaitTimer = nil
	}
}

// wait records that a charge holds the request from now on. With a negative held it is the charge that held the request
// before.
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

// tellHeld reports how long the present charge has held the request until now, if it has held it at all.
func (r *Request) tellHeld(now int64) {
	if r.Waits && r.held >= 0 && now > r.since {
		r.observer.Held(r, r.held, r.since, now)
	}
}

// endWait records the end of the wait, if the request waits.
func (r *Request) endWait() {
	r.tellHeld(r.engine.Clock.Now())
	r.Waits = false
	if r.element != nil {
		r.engine.waiting.Remove(r.element)
		r.element = nil
	}
}

func (r *Request) start() {
	r.endWait()
	r.observer.Started(r)
}

// refuse reports that the charge with an index refused the request, and the wait that would have been needed.
func (r *Request) refuse(charge int, wait time.Duration) {
	r.stopTimer()
	r.endWait()
	r.observer.Refused(r, charge, wait)
}

// Waited returns how long the request was held. Call it after its start or
// refusal.
func (r *Request) Waited() time.Duration { return r.waited() }

// Over returns the additional wait under each shadow charge, or nil without
// any.
func (r *Request) Over() []time.Duration { return r.grant.Over }

// HeldBy returns the index of the charge that held the request last, or a
// negative number.
func (r *Request) HeldBy() int { return r.held }

// End ends a started request: its answer has come.
func (r *Request) End() {
	switch {
	// The slots of a later start have a booking of their own.
	case r.slots != nil:
		r.engine.store.Release(&r.slots.booking, r.slots.grant)
	case len(r.Charges) > 0:
		r.engine.store.Release(&r.booking, r.grant)
	}
}

// askedWaiters bounds the waiting requests whose limiting charge binding returns.
const askedWaiters = 4

// binding returns the limiting charge of each of the first askedWaiters waiting requests: the charge under which a new request
// would wait longest or, if a new request would not wait, the charge that holds the waiting one. The charge that holds it is the
// second choice, because its budget may have room: a request ahead in its line may wait for a different budget. Under a
// Concurrency limit a new request counts as waiting for latency if others wait. A request without a known charge is left out.
func (e *Engine) binding(latency time.Duration) (limiting []*store.Charge) {
	for at := e.waiting.Front(); at != nil && len(limiting) < askedWaiters; at = at.Next() {
		r := at.Value.(*Request)
		best, longest := r.held, time.Duration(0)
		for i, c := range r.Charges {
			// A shadow limit holds nothing.
			if c.Shadow {
				continue
			}

			st, _ := e.store.Status(context.Background(), c) // a store in memory has no errors
			wait := st.Wait
			if c.Limit.Kind() == store.KindConcurrency {
				wait = 0
				if st.Waiting > 0 {
					wait = latency
				}
			}

			if wait > longest {
				best, longest = i, wait
			}
		}

		if best >= 0 {
			limiting = append(limiting, &r.Charges[best])
		}
	}

	return limiting
}

// Use is the use of one policy by requests.
type Use struct {
	Policy   throttle.Policy
	Requests int
	Cost     int
	Waits    Durations // of requests that it held
	Over     Durations // additional waits under a shadow policy
	Refused  int
}

// An account collects the uses of an engine's requests, and which policies limit them when.
type account struct {
	engine   *Engine
	latency  time.Duration
	uses     []Use
	rows     map[string]int // index of each policy in uses and in the timeline
	timeline *Timeline
	looked   int64 // time of the last look, in Unix microseconds
}

// newAccount returns an account without uses, which begins now.
func newAccount(e *Engine, policies []throttle.Policy, latency time.Duration) *account {
	a := &account{engine: e, latency: latency, rows: make(map[string]int), looked: e.Clock.Now()}
	for _, p := range policies {
		a.rows[p.Name] = len(a.uses)
		a.uses = append(a.uses, Use{Policy: p})
	}
	a.timeline = newTimeline(a.looked, len(a.uses))
	return a
}

func (a *account) of(c *store.Charge) *Use { return &a.uses[a.rows[c.Budget.Policy]] }

// price counts a request and its cost.
func (a *account) price(charges []store.Charge) {
	for i := range charges {
		u := a.of(&charges[i])
		u.Requests, u.Cost = u.Requests+1, u.Cost+charges[i].Cost
	}
}

// recordShadowDelays records how long shadow policies would have delayed a request.
func (a *account) recordShadowDelays(q *Request) {
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

// look records the limiting policies once per bin of the timeline, until goesOn returns false.
func (a *account) look(goesOn func() bool) {
	a.engine.Clock.AfterFunc(a.timeline.Width, func() {
		a.lookOnce()
		if goesOn() {
			a.look(goesOn)
		}
	})
}

// lookOnce records the policies that limit now, for the time since the last look.
func (a *account) lookOnce() {
	now := a.engine.Clock.Now()
	limiting := a.engine.binding(a.latency)
	a.timeline.spread(a.looked, now, func(b *Bin, d time.Duration) {
		if len(limiting) == 0 {
			b.Unbound += d
		}

		// Several policies can hold requests at once, so each gets its part of the time.
		for _, c := range limiting {
			b.Bound[a.rows[c.Budget.Policy]] += d / time.Duration(len(limiting))
		}
	})
	a.looked = now
}

// ofNode returns charges in which per-node budgets belong to one node, which is counted from 0.
func ofNode(charges []store.Charge, node int) []store.Charge {
	// All nodes share these charges, so change a copy.
	own := append([]store.Charge(nil), charges...)
	for i := range own {
		if !own[i].Node {
			continue
		}

		// A different key is a different budget, so add the node to the last four bytes of the key.
		key := &own[i].Budget.Key
		end := key[len(key)-4:]
		binary.BigEndian.PutUint32(end, binary.BigEndian.Uint32(end)+uint32(node))
	}
	return own
}
