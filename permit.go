package throttle

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A meter is what a limiter and its permits share.
type meter struct {
	*engine
	charge Charge // without key, cost and reserve
}

// A Permit is leave to do one piece of work, which may start now. Any goroutine may call
// Release, at any time, and one at a time the other methods.
type Permit struct {
	meter   *meter             // of work under one policy; nil: see several
	start   start              // and its start
	several *quotedAcquisition // of work under several policies; nil: see meter
	held    Hold
	usedAt  time.Duration // when Renew returned; 0: see startAt
	state   atomic.Uint32
}

// What a permit holds. A permit whose methods took a mutex would cost memory.
const (
	permitHeld      uint32 = iota // its start
	permitBusy                    // its start, which Renew or Settle is changing
	permitToRelease               // the same, and Release was called meanwhile
	permitGone                    // nothing: it was released, or could not be renewed
	permitFree                    // nothing: the work costs nothing
)

// A start is what a permit keeps of an acquisition under one policy. A permit that does
// not leave its caller's function costs no memory, so it holds no pointer to one.
type start struct {
	key         [16]byte
	cost        int // as it was settled last
	reserve     int
	spread      time.Duration
	wait, age   time.Duration // of the grant
	handle      Handle
	turn        Turn
	startAt     time.Duration
	validatedAt time.Duration
	validateRTT time.Duration
	maxWait     time.Duration
	priority    Priority
}

// keep takes what must be kept of an acquisition under one policy. It sets each field by
// itself, because a literal would be copied.
func (s *start) keep(a *acquisition) {
	c, g := &a.booking.Charges[0], &a.grant
	if a.slots != nil {
		g = &a.slots.grant // the only charge is Concurrency
	}
	s.key, s.cost, s.reserve, s.spread = c.Budget.Key, c.Cost, c.Reserve, a.booking.Spread
	s.wait, s.age, s.handle, s.turn = g.Wait, g.Age, g.Handle, g.Turn
	s.startAt, s.validatedAt, s.validateRTT = a.startAt, a.validatedAt, a.validateRTT
	s.maxWait, s.priority = a.maxWait, a.priority
}

// acquisition returns the permit's acquisition as its own copy.
func (p *Permit) acquisition() *acquisition {
	if p.several != nil {
		a := p.several.acquisition
		a.hold = Hold{}
		a.booking.Charges = slices.Clone(a.booking.Charges)
		return &a
	}
	s := &p.start
	c := p.meter.charge
	c.Budget.Key, c.Cost, c.Reserve = s.key, s.cost, s.reserve
	a := &acquisition{
		engine: p.meter.engine, booking: Booking{Charges: []Charge{c}, Spread: s.spread},
		grant:   Grant{OK: true, Wait: s.wait, Age: s.age, Handle: s.handle, Turn: s.turn, Held: NotHeld},
		startAt: s.startAt, validatedAt: s.validatedAt, validateRTT: s.validateRTT,
		maxWait: s.maxWait, priority: s.priority, returns: true,
	}
	a.inspectCharges()
	return a
}

// keep makes the permit that of an acquisition that has its start.
func (p *Permit) keep(a *acquisition) {
	if p.several != nil {
		p.several.acquisition = *a
	} else {
		p.start.keep(a)
	}
}

// take makes the permit that of an acquisition that has its start, and tells the
// observer.
func (p *Permit) take(ctx context.Context, a *acquisition) {
	p.keep(a)
	if a.observe != nil || !a.granted() {
		p.tell(ctx, a)
	}
}

// tell tells the observer of the permit's start. The permit remembers what held the
// caller.
func (p *Permit) tell(ctx context.Context, a *acquisition) {
	p.held = a.hold
	p.held.Duration = a.waited()
	a.reportStart(ctx, p.held.Duration)
}

// Held says how long Acquire and Renew held the caller, and what held it last.
func (p *Permit) Held() Hold { return p.held }

// Release says that the work is done. It ends what a limit of [Concurrency]
// counts as in flight and does nothing for the limits that count starts. It may
// be called more than once.
func (p *Permit) Release() {
	switch {
	case p.state.CompareAndSwap(permitHeld, permitGone):
		if p.several != nil || p.meter != nil && p.meter.charge.Limit.kind == KindConcurrency {
			p.acquisition().releaseSlots()
		}
	case p.state.CompareAndSwap(permitBusy, permitToRelease): // idle does it
	}
}

// busy takes the permit for a change, and reports whether it holds a start.
func (p *Permit) busy() bool { return p.state.CompareAndSwap(permitHeld, permitBusy) }

// idle ends a change, and reports whether the permit was not released meanwhile.
func (p *Permit) idle() bool {
	if p.state.CompareAndSwap(permitBusy, permitHeld) {
		return true
	}
	p.state.Store(permitGone)
	p.acquisition().releaseSlots()
	return false
}
