package acquire

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// An Engine is the state that callers of one store share. The program sets the exported
// fields before the first caller, and does not copy an Engine. It is safe for concurrent
// use.
type Engine struct {
	Store    store.Store
	Traits   store.Traits                 // of the store
	Switch   *store.Switch                // turns throttle off for the callers, or nil
	Errors   Errors                       // makes the errors of callers
	Observe  func(context.Context, Event) // is told of events, or nil
	LongWait time.Duration                // how long a caller is held before Observe is told that it still waits, or 0 for never

	rtt          rttEstimator // how long the store's answers take: those without a start, and those to callers that are only counted
	confirmTook  rttEstimator // how long the store takes to confirm a start
	grantAge     rttEstimator // how old starts are at the most: a store may know how long ago it booked them
	estimates    estimates    // how wrong the estimated costs of policies are
	heldByPolicy sync.Map     // of *atomic.Int64: how many callers each policy holds
	closings     closings
	breaker      breaker
	ahead        ahead
	reports      reports                 // under way to the store
	recent       atomic.Pointer[recents] // the budgets that callers used last, or nil if nobody asks for them
	unanswered   atomic.Int32            // how many callers wait for a store that has said that it is away
}

// Unanswered reports whether callers wait for a store that has said that it is away.
func (e *Engine) Unanswered() bool { return e.unanswered.Load() > 0 }

// IsOff reports whether throttle is off, so that callers start at once and without the store.
func (e *Engine) IsOff() bool { return e.Switch != nil && e.Switch.IsOff() }

// NoteCost notes that the cost of a start under a policy was booked at one number and
// settled at a second. A negative number for settled says that nothing is known.
func (e *Engine) NoteCost(policy string, booked, settled int) {
	e.estimates.note(policy, booked, settled)
}

// ClockJitter is the smallest positive Jitter of a charge. It covers the fractions of a
// microsecond that the store's clock leaves out, by which a start can follow its predecessor
// too early. A charge of ClockJitter makes no grant too old.
const ClockJitter = time.Microsecond

// SetCharges sets the caller's charges, and the fields that sum them up. It keeps the slice. Each
// charge must have the Pace of its limit. A caller that holds a start or a place must use Reprice.
func (c *Caller) SetCharges(charges []store.Charge) {
	c.Booking.Charges = charges
	c.jitter, c.concurrent, c.shadowed = 0, false, len(charges) > 0
	c.horizon, c.shared, c.repaced = store.MinHorizon, false, false

	// A caller is only counted if all its charges are of shadow policies. The farthest horizon of its limits counts.
	for i := range charges {
		charge := &charges[i]
		c.shadowed = c.shadowed && charge.Shadow
		c.horizon = max(c.horizon, charge.Limit.Horizon())
		c.shared = c.shared || charge.Share.ID != 0

		// The Jitter of a Concurrency charge does not count, because a slot is held and does not age, nor does the Jitter
		// of a shadow policy, which holds nobody.
		switch j := charge.Jitter; {
		case charge.Limit.Kind() == store.KindConcurrency:
			c.concurrent = true
		case j > ClockJitter && !charge.Shadow && (c.jitter == 0 || j < c.jitter):
			c.jitter = j
		}
	}
}

// Reprice has price set the caller's charges anew, because the policies were replaced. If the
// new charges are equivalent the caller keeps its start or place. If they differ, and the store
// can replace the caller's holdings in one step, the caller books in place of its holdings.
// Otherwise, and if price fails, the caller gives its holdings back. Reprice returns the error of
// price, or of the booking.
func (c *Caller) Reprice(ctx context.Context, price func() error) error {
	c.StopWatch() // a watch reads the charges, which price may overwrite
	if c.uncounted {
		c.forget() // the store holds nothing for the caller, which must book like a new one
	}

	old := c.Booking
	old.Charges = slices.Clone(old.Charges)

	err := price()
	if err == nil && slices.EqualFunc(old.Charges, c.Booking.Charges, equivalent) {
		return nil
	}

	// A booking can replace a place in the line for a start whatever its charges are, and other holdings if the charges are
	// interchangeable. That is one step of the store, so no later caller gets the old place or start.
	isReplaceable := c.state == inLine || c.state != idle && slices.EqualFunc(old.Charges, c.Booking.Charges, interchangeable)
	if err == nil && isReplaceable && len(c.Booking.Charges) > 0 {
		return c.Book(ctx)
	}

	// The store cancels by the charges that it booked, and not by the new charges.
	if c.state != idle {
		c.engine.Store.Cancel(&old, c.Grant)
		c.state = idle
	}

	c.Grant = store.Grant{HeldBy: store.NotHeld, Turn: c.Grant.Turn}
	return err
}

// interchangeable reports whether a booking of b can have the store give back, as Instead, a start
// that was booked for a. In a leaky bucket the time that a start takes depends on the limit: by a
// different limit the store would give back a different time.
func interchangeable(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.Kind() == b.Limit.Kind() && a.Limit.Kind() != store.KindLeakyBucket
}

// equivalent reports whether a start that was booked for a is as good as a start for b.
func equivalent(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.KeepFree == b.KeepFree && a.Limit.String() == b.Limit.String()
}

// spansScopes reports whether some charges are of the Fleet scope and some of the Node
// scope. Such a caller does not stand in the line for slots, because a place there is of one
// scope alone: if it finds no slot it books all charges again.
func (c *Caller) spansScopes() bool {
	charges := c.Booking.Charges
	return slices.ContainsFunc(charges, func(other store.Charge) bool { return other.Node != charges[0].Node })
}

// countsStart reports whether a charge counts starts, and takes no slot.
func countsStart(c store.Charge) bool { return c.Limit.Kind() != store.KindConcurrency }

// chargeIndex returns the index, among all charges of the caller, of the charge that has the index i
// in slots, the booking of a slotHold. It returns -1, which is NotHeld, if i is NotHeld.
func (c *Caller) chargeIndex(slots *store.Booking, i int) int {
	return slices.IndexFunc(c.Booking.Charges, func(charge store.Charge) bool {
		return i >= 0 && charge.Budget == slots.Charges[i].Budget
	})
}

// Callers are used again after their way is over. A permit keeps a Start in place of its caller.

// A Start is the part of a caller that a permit keeps, beside the charges. It has no pointer to the
// caller, so that a permit that does not leave its user's function costs no allocation.
type Start struct {
	spread      time.Duration
	wait, age   time.Duration // of the grant
	handle      store.Handle
	turn        store.Turn
	slots       *slotHold // the slots, if they were acquired after the start was booked
	startAt     time.Duration
	validatedAt time.Duration
	validateRTT time.Duration
	maxWait     time.Duration
	byDefault   bool
	priority    store.Priority
}

// Set copies the start of a caller into s. It sets the fields one by one, because a literal would
// be made first and then copied.
func (s *Start) Set(c *Caller) {
	g := &c.Grant
	s.spread, s.slots = c.Booking.Spread, c.slots
	s.wait, s.age, s.handle, s.turn = g.Wait, g.Age, g.Handle, g.Turn
	s.startAt, s.validatedAt, s.validateRTT = c.startAt, c.validatedAt, c.validateRTT
	s.maxWait, s.byDefault, s.priority = c.MaxWait, c.ByDefault, c.Priority
}

// SetMaxWait sets for how long the caller may be held when it acquires its next start, as
// [Caller] has it.
func (s *Start) SetMaxWait(d time.Duration, byDefault bool) { s.maxWait, s.byDefault = d, byDefault }

// Caller returns a caller that holds the start. The charges are the charges of the start,
// and the caller's from now on.
func (s *Start) Caller(e *Engine, charges []store.Charge) Caller {
	c := Caller{
		engine: e, Booking: store.Booking{Spread: s.spread}, returns: true,
		MaxWait: s.maxWait, ByDefault: s.byDefault, Priority: s.priority,
		Grant:   store.Grant{OK: true, Wait: s.wait, Age: s.age, Handle: s.handle, Turn: s.turn, HeldBy: store.NotHeld},
		slots:   s.slots,
		startAt: s.startAt, validatedAt: s.validatedAt, validateRTT: s.validateRTT,
	}
	c.SetCharges(charges)
	c.holdStart()
	return c
}

// Again returns a copy of a caller that has its start and no watch. The copy holds that start, has charges of its
// own, and no Hold.
func (c *Caller) Again() Caller {
	again := *c
	again.Hold = Hold{}
	again.Booking.Charges = slices.Clone(c.Booking.Charges)
	again.holdStart()
	return again
}

// holdStart sets the state of a caller whose start may have grown too old: Acquire must check it. A
// caller that is only counted stays granted.
func (c *Caller) holdStart() {
	c.state = booked
	if c.shadowed {
		c.state = granted
	}
}

// Reuse makes a caller whose way is over ready for the next way with the same engine and
// memory for charges. It returns false, and does nothing, if the store may still use the
// caller, or if the caller had a watch: a watch may still read the charges.
func (c *Caller) Reuse() bool {
	switch {
	// A watch may read the charges, or the store may use the context of a call that ended when throttle was turned off.
	case c.invalidated != nil || c.uncounted && c.endsWhenOff():
		return false

	// The caller booked once, and got its start at once. Only these of its fields would be wrong for the next way.
	case c.Immediate() && !c.Booking.Returns:
		c.state, c.Grant.HeldBy = idle, store.NotHeld
		c.arrivedAt = 0
		c.returns, c.uncounted = false, false
		return true

	// No store uses a context that is a field of the caller: an answer from memory needs no context, and the context is
	// such a field only if somebody must be told of an outage. The charges stay, and the summaries of the charges.
	case c.Immediate() || c.engine.Observe == nil && !c.shadowed:
		*c = Caller{
			engine: c.engine, Booking: store.Booking{Charges: c.Booking.Charges, Spread: c.Booking.Spread},
			jitter: c.jitter, concurrent: c.concurrent, shadowed: c.shadowed,
			horizon: c.horizon, shared: c.shared, repaced: c.repaced,
			Grant: store.Grant{HeldBy: store.NotHeld},
		}

		return true
	}

	return false // the store may still use the observed context, which is a field of the caller
}

// Return notes that the caller comes back with turn, its turn in line. Without a turn it is a new caller.
func (c *Caller) Return(turn store.Turn) { c.returns, c.Grant.Turn = turn != nil, turn }

// LoseSlots notes that somebody else gives, or has given, the slots back: the caller goes on
// without its Concurrency charges. Without other charges it holds nothing any more.
func (c *Caller) LoseSlots() {
	isSlot := func(charge store.Charge) bool { return !countsStart(charge) }
	c.Booking.Charges = slices.DeleteFunc(c.Booking.Charges, isSlot)
	c.slots, c.concurrent = nil, false

	if len(c.Booking.Charges) == 0 {
		c.forget()
	}
}

// breakerPause is for how long callers that are only counted do not ask a store that has failed. After that time one caller asks.
const breakerPause = time.Second

// A breaker is a circuit breaker for callers that are only counted: after a failure of the store one
// caller for each breakerPause tries the store. The zero breaker is closed: all callers ask.
type breaker struct {
	from atomic.Int64 // the time, as of Now, from which one caller may ask, or 0 if all may ask
}

// mayAsk reports whether a caller may ask the store. at is the present time. After a failure mayAsk returns
// true to one caller in each breakerPause: that caller must ask.
func (b *breaker) mayAsk(at time.Duration) bool {
	from := b.from.Load()
	if from == 0 {
		return true
	}

	// Of several callers that come at once the one that moves from on may ask.
	return int64(at) >= from && b.from.CompareAndSwap(from, int64(at+breakerPause))
}

// note notes whether the store answered the call that has just ended.
func (b *breaker) note(answered bool) {
	if !answered {
		b.from.Store(int64(Now() + breakerPause))
	} else if b.from.Load() != 0 {
		b.from.Store(0)
	}
}

// noteRecent notes the budgets of charges, whose booking at the time at was answered with g, if RecentBudgets was called
// within recentFor.
func (e *Engine) noteRecent(charges []store.Charge, g *store.Grant, at time.Duration) {
	r := e.recent.Load()
	if r == nil {
		return
	}
	if wanted := r.note(charges, g, at); !wanted {
		e.recent.CompareAndSwap(r, nil)
	}
}

// RecentBudgets returns, by policy, the hashed keys of the budgets that callers used last, at most 16 of a policy, and
// forgets all policies for which inTable is false. Budgets are noted from the first call of RecentBudgets on, and until
// an hour after its last call. So the first call returns nothing.
func (e *Engine) RecentBudgets(inTable func(policy string) bool) map[string][][16]byte {
	at := Now()
	r := e.recent.Load()
	if r == nil {
		e.recent.CompareAndSwap(nil, &recents{askedAt: at, byPolicy: make(map[string][]recentBudget)})
		r = e.recent.Load()
	}

	// A caller may have dropped the recents since.
	if r == nil {
		return nil
	}
	return r.ofTable(inTable, at)
}

const (
	maxRecent = 16          // how many budgets of a policy are known
	inUse     = time.Minute // for how long a budget keeps its place after its last use
	recentFor = time.Hour   // for how long a budget is known after its last use, and budgets are noted after the last RecentBudgets
)

// recents are the budgets that callers used last, at most maxRecent of each policy. They have
// hashed keys only.
type recents struct {
	mu       sync.Mutex
	askedAt  time.Duration // when somebody asked for them last
	byPolicy map[string][]recentBudget
}

// A recentBudget is a budget of a policy that a caller used.
type recentBudget struct {
	key    [16]byte
	usedAt time.Duration
	heldAt time.Duration // when it held a caller last
}

// note notes the budgets of charges, whose booking at the time at was answered with g. It
// returns false if nobody has called ofTable for recentFor, so that the recents can be
// dropped. No caller waits for the lock: if a different goroutine has it, note does nothing
// and returns true.
func (r *recents) note(charges []store.Charge, g *store.Grant, at time.Duration) bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()

	for i := range charges {
		b, held := &charges[i].Budget, g.HeldBy == i && (!g.OK || g.Wait > 0)
		r.byPolicy[b.Policy] = noteUse(r.byPolicy[b.Policy], b.Key, held, at)
	}
	return at-r.askedAt < recentFor
}

// noteUse notes in budgets, the recent budgets of a policy, that the budget with a key was used at
// the time at, and with held that it held its caller. A new budget is appended or, if there are
// maxRecent already, takes the place of a replaceable budget. If no budget is replaceable the new
// budget is not noted. noteUse returns the budgets with the change.
func noteUse(budgets []recentBudget, key [16]byte, held bool, at time.Duration) []recentBudget {
	place := slices.IndexFunc(budgets, func(b recentBudget) bool { return b.key == key })
	if place < 0 {
		// A new budget counts as held long ago: a heldAt of 0 would be the time when the process began.
		added := recentBudget{key: key, heldAt: at - recentFor}
		if len(budgets) < maxRecent {
			place, budgets = len(budgets), append(budgets, recentBudget{})
		} else {
			place = replaceable(budgets, held, at)
		}

		if place < 0 {
			return budgets
		}
		budgets[place] = added
	}

	budgets[place].usedAt = at
	if held {
		budgets[place].heldAt = at
	}

	return budgets
}

// replaceable returns the index of the least recently used of the replaceable budgets, or -1 if
// none is, for a new budget that is used at the time at. A budget is replaceable if it was not used
// within inUse before at or, if the new budget held its caller, if it has held nobody within inUse.
func replaceable(budgets []recentBudget, held bool, at time.Duration) int {
	oldest := -1
	for i := range budgets {
		b := &budgets[i]
		isReplaceable := at-b.usedAt > inUse || held && at-b.heldAt > inUse
		if isReplaceable && (oldest < 0 || b.usedAt < budgets[oldest].usedAt) {
			oldest = i
		}
	}
	return oldest
}

// ofTable returns the keys of the known budgets, by policy. at is the present time. ofTable
// forgets the budgets of policies for which inTable is false, and budgets that nobody used
// within recentFor. It notes that somebody has asked for the recents.
func (r *recents) ofTable(inTable func(policy string) bool, at time.Duration) map[string][][16]byte {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.askedAt = at

	// Forget policies that have left the table, and budgets that nobody used lately.
	all := make(map[string][][16]byte)
	for policy, budgets := range r.byPolicy {
		budgets = slices.DeleteFunc(budgets, func(b recentBudget) bool { return at-b.usedAt > recentFor })
		if len(budgets) == 0 || !inTable(policy) {
			delete(r.byPolicy, policy)
			continue
		}

		r.byPolicy[policy] = budgets
		for _, b := range budgets {
			all[policy] = append(all[policy], b.key)
		}
	}

	return all
}

// The store gets reports in the background: the cost of a start, which is known when the work is done, and the quota of
// a budget that an upstream states. A report holds only callers that book in a budget that the report lowers: their
// bookings come after the report.

// ReportWait bounds how long a report holds anybody.
const ReportWait = time.Second

const (
	maxReporters = 64   // the most reports under way at a time: stores send reports that come together in one call
	maxWaiting   = 1024 // the most reports that wait for a reporter
)

// reports are the reports under way to the store, and the reports that wait. The zero value
// is ready.
//
// Reporters are goroutines that take one report at a time, and end when there is none. So a
// report needs no goroutine of its own while other reports are under way, and no goroutine
// is left when the store has been told all.
type reports struct {
	pressing atomic.Int32 // the length of awaited, so that bookings need no lock while it is 0

	mu        sync.Mutex
	reporters int
	waiting   []*report // in the order in which they came, which is the order in which the store is told
	awaited   []*report // reports that bookings wait for, under way or waiting
}

// A report tells the store something.
type report struct {
	tell    func()         // makes the call of the store
	lowered []store.Budget // the budgets that the report lowers: bookings in these budgets wait until the report is over
	over    chan struct{}  // closed when tell has returned. It is nil if lowered is empty.
}

// ReportInBackground calls tell in a goroutine, and returns true at once. tell makes a call that tells the store
// something: the cost of a start, or the quota of a budget. lowered are the budgets whose room tell lowers: bookings in
// these budgets wait until tell has returned, for at most ReportTime. ReportInBackground returns false, and does not
// call tell, if maxWaiting reports wait already because the store does not answer.
func (e *Engine) ReportInBackground(tell func(), lowered []store.Budget) bool {
	rs := &e.reports
	rs.mu.Lock()
	defer rs.mu.Unlock()

	if len(rs.waiting) >= maxWaiting {
		return false
	}

	// Bookings find the report in awaited from now on, whether it is under way or still waits for a reporter.
	r := &report{tell: tell, lowered: lowered}
	if len(lowered) > 0 {
		r.over = make(chan struct{})
		rs.awaited = append(rs.awaited, r)
		rs.pressing.Store(int32(len(rs.awaited)))
	}

	// A reporter that is free later takes the waiting reports: see next.
	if rs.reporters < maxReporters {
		rs.reporters++
		go rs.tell(r)
	} else {
		rs.waiting = append(rs.waiting, r)
	}

	return true
}

// tell is a reporter: it makes the call of a report, and then the calls of waiting reports until none is left.
func (rs *reports) tell(r *report) {
	for r != nil {
		r.tell()
		r = rs.next(r)
	}
}

// next notes that last, a reporter's report, is over, and returns the next waiting report for that reporter. If no
// report waits it returns nil, and the reporter must end.
func (rs *reports) next(last *report) *report {
	rs.mu.Lock()
	defer rs.mu.Unlock()

	// Bookings that wait for this report go on.
	if last.over != nil {
		close(last.over)
		rs.awaited = slices.DeleteFunc(rs.awaited, func(r *report) bool { return r == last })
		rs.pressing.Store(int32(len(rs.awaited)))
	}

	if len(rs.waiting) == 0 {
		rs.reporters--
		return nil
	}

	// The first to come is the next. Its place is cleared, so that the slice does not keep the report alive.
	r := rs.waiting[0]
	rs.waiting[0] = nil
	rs.waiting = rs.waiting[1:]

	return r
}

// awaitedBy returns the channels of the reports for which a booking of charges must wait.
func (rs *reports) awaitedBy(charges []store.Charge) (all []chan struct{}) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.awaited {
		if slices.ContainsFunc(charges, func(c store.Charge) bool { return slices.Contains(r.lowered, c.Budget) }) {
			all = append(all, r.over)
		}
	}
	return all
}

// awaitReports waits until all reports that lower one of the caller's budgets are over, for at most ReportTime, or until ctx
// ends.
func (c *Caller) awaitReports(ctx context.Context) {
	awaited := c.engine.reports.awaitedBy(c.Booking.Charges)
	if len(awaited) == 0 {
		return
	}

	// One timer bounds the wait for all reports together.
	timer := time.NewTimer(c.ReportTime())
	defer timer.Stop()

	for _, over := range awaited {
		select {
		case <-over:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// ReportTime returns for how long the caller may be held while the store is told something:
// for ReportWait, or for the rest of MaxWait if that is shorter, but at least for
// StoreGrace. A MaxWait of 0 has no end.
func (c *Caller) ReportTime() time.Duration {
	if c.MaxWait == 0 {
		return ReportWait
	}
	return min(ReportWait, max(StoreGrace, c.waitDeadline-Now()))
}
