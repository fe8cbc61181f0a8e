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

	rtt          rttEstimator // how long the store's answers take, of those without a start
	grantAge     rttEstimator // how old starts are at the most: a store may know how long ago it booked them
	estimates    estimates    // how far the costs of policies are estimated wrongly
	heldByPolicy sync.Map     // of *atomic.Int64: how many callers each policy holds
	closings     closings
	breaker      breaker
	ahead        ahead
	reports      reports                 // under way to the store
	recent       atomic.Pointer[recents] // the budgets that callers used last, or nil if nobody asks for them
	unanswered   atomic.Int32            // how many callers were told that the store does not answer, and wait for it still
}

// Unanswered reports whether callers wait for a store of which they were told that it does not answer.
func (e *Engine) Unanswered() bool { return e.unanswered.Load() > 0 }

// IsOff reports whether throttle is off, so that callers start at once and without the store.
func (e *Engine) IsOff() bool { return e.Switch != nil && e.Switch.IsOff() }

// NoteCost notes that the cost of a start under a policy was booked at one number and
// settled at a second. A negative number for settled says that nothing is known.
func (e *Engine) NoteCost(policy string, booked, settled int) {
	e.estimates.note(policy, booked, settled)
}

// breakerPause is for how long callers that are only counted do not ask the store after a failure. Then one of them asks.
const breakerPause = time.Second

// A breaker is a circuit breaker for callers that are only counted: after a failure of the store one
// caller for each breakerPause tries the store. The zero breaker is closed: all callers ask.
type breaker struct {
	from atomic.Int64 // when the next caller asks, as of Now, or 0 if all ask
}

// mayAsk reports whether a caller may ask the store now.
func (b *breaker) mayAsk(at time.Duration) bool {
	from := b.from.Load()
	return from == 0 || int64(at) >= from && b.from.CompareAndSwap(from, int64(at+breakerPause))
}

// note notes whether the store answered the call that has just ended.
func (b *breaker) note(answered bool) {
	if !answered {
		b.from.Store(int64(Now() + breakerPause))
	} else if b.from.Load() != 0 {
		b.from.Store(0)
	}
}

// noteRecent notes the budgets of a booking that was answered with g at a time, while somebody asks for them.
func (e *Engine) noteRecent(charges []store.Charge, g *store.Grant, at time.Duration) {
	r := e.recent.Load()
	if r != nil && !r.note(charges, g, at) {
		e.recent.CompareAndSwap(r, nil)
	}
}

// RecentBudgets returns, by policy, the hashed keys of the budgets that callers used last, at most 16 of a policy, and
// forgets all policies that are not in the table. inTable tells which policies are. Budgets are noted from the first
// call on, and until an hour after the last.
func (e *Engine) RecentBudgets(inTable func(policy string) bool) map[string][][16]byte {
	at := Now()
	r := e.recent.Load()
	if r == nil {
		e.recent.CompareAndSwap(nil, &recents{askedAt: at, byPolicy: make(map[string][]recentBudget)})
		r = e.recent.Load()
	}
	if r == nil {
		return nil // a caller has dropped the recents since
	}
	return r.ofTable(inTable, at)
}

const (
	maxRecent = 16          // how many budgets of a policy are known
	inUse     = time.Minute // for how long a budget keeps its place after its last use
	recentFor = time.Hour   // for how long a budget is known after its last use, and budgets are noted after the last question
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

// note notes the budgets of a booking that was answered with g. If a different caller has
// the lock it does nothing, because no caller waits for the lock. It returns false if
// nobody has called ofTable for recentFor: then the recents can be dropped.
func (r *recents) note(charges []store.Charge, g *store.Grant, at time.Duration) bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()

	for i := range charges {
		b := &charges[i].Budget
		r.byPolicy[b.Policy] = noteUse(r.byPolicy[b.Policy], b.Key, g.HeldBy == i && (!g.OK || g.Wait > 0), at)
	}
	return at-r.askedAt < recentFor
}

// noteUse notes in all, the budgets of a policy, that the budget with a key is used at a
// time, and whether it holds its caller. A new budget takes a free place or, if there is
// none, replaces the least recently used of the replaceable budgets. A budget is
// replaceable if it was not used within inUse and, if the new budget holds its caller, if
// it has held nobody within inUse.
func noteUse(all []recentBudget, key [16]byte, held bool, at time.Duration) []recentBudget {
	place := -1
	for i := range all {
		b := &all[i]
		if b.key == key {
			place = i
			break
		}

		replaceable := at-b.usedAt > inUse || held && at-b.heldAt > inUse
		if replaceable && (place < 0 || b.usedAt < all[place].usedAt) {
			place = i
		}
	}

	switch {
	case place >= 0 && all[place].key == key:
	case len(all) < maxRecent:
		place, all = len(all), append(all, recentBudget{key: key, heldAt: at - recentFor})
	case place < 0:
		return all
	default:
		all[place] = recentBudget{key: key, heldAt: at - recentFor}
	}

	all[place].usedAt = at
	if held {
		all[place].heldAt = at
	}

	return all
}

// ofTable returns the keys of the known budgets of each policy in the table, and forgets
// all budgets of other policies. inTable tells which policies are in the table.
func (r *recents) ofTable(inTable func(policy string) bool, at time.Duration) map[string][][16]byte {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.askedAt = at

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

// Reports that the store gets in the background: the cost of a start, which is known when the work is done, and the
// quota of a budget that an upstream states. Such a report holds only callers that book in a budget that the report
// lowers: their bookings come after the report.

// ReportWait bounds how long a report holds anybody.
const ReportWait = time.Second

const (
	maxReporters = 64   // how many reports are under way at a time: stores send reports that come together in one call
	maxReports   = 1024 // how many more wait for that
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
	waiting   []*report // the first to come is the first to be told
	awaited   []*report // reports that bookings wait for, under way or waiting
}

// A report tells the store something.
type report struct {
	tell   func()
	before []store.Budget // bookings in these budgets come after the report
	over   chan struct{}  // closed when the store was told, or could not be; nil if before is empty
}

// HandOver has tell called soon, behind the back of the caller: a function that tells the store something. Whoever
// books in one of the budgets of before from now on waits until tell has returned, but no longer than ReportTime says.
// HandOver returns false, and does nothing, if too many reports wait already, for a store that does not answer.
func (e *Engine) HandOver(tell func(), before []store.Budget) bool {
	rs := &e.reports
	rs.mu.Lock()
	defer rs.mu.Unlock()

	if len(rs.waiting) >= maxReports {
		return false
	}

	r := &report{tell: tell, before: before}
	if len(before) > 0 {
		r.over = make(chan struct{})
		rs.awaited = append(rs.awaited, r)
		rs.pressing.Store(int32(len(rs.awaited)))
	}

	if rs.reporters < maxReporters {
		rs.reporters++
		go rs.tell(r)
	} else {
		rs.waiting = append(rs.waiting, r)
	}

	return true
}

// tell tells the store of a report, and then of the waiting reports.
func (rs *reports) tell(r *report) {
	for r != nil {
		r.tell()
		r = rs.next(r)
	}
}

// next notes that a report is over, and returns the next waiting report. If there is none
// it returns nil, and the reporter ends.
func (rs *reports) next(last *report) *report {
	rs.mu.Lock()
	defer rs.mu.Unlock()

	if last.over != nil {
		close(last.over)
		rs.awaited = slices.DeleteFunc(rs.awaited, func(r *report) bool { return r == last })
		rs.pressing.Store(int32(len(rs.awaited)))
	}

	if len(rs.waiting) == 0 {
		rs.reporters--
		return nil
	}

	r := rs.waiting[0]
	rs.waiting[0] = nil
	rs.waiting = rs.waiting[1:]

	return r
}

// awaitedBy returns the channels of the reports that a booking of charges comes after.
func (rs *reports) awaitedBy(charges []store.Charge) (all []chan struct{}) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.awaited {
		if slices.ContainsFunc(charges, func(c store.Charge) bool { return slices.Contains(r.before, c.Budget) }) {
			all = append(all, r.over)
		}
	}
	return all
}

// awaitReports waits until the store has heard that less is left of the caller's budgets than it believes. It waits as long as
// ReportTime says and the context allows.
func (c *Caller) awaitReports(ctx context.Context) {
	all := c.engine.reports.awaitedBy(c.Booking.Charges)
	if len(all) == 0 {
		return
	}

	timer := time.NewTimer(c.ReportTime())
	defer timer.Stop()

	for _, over := range all {
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
// StoreGrace.
func (c *Caller) ReportTime() time.Duration {
	if c.MaxWait == 0 {
		return ReportWait
	}
	return min(ReportWait, max(StoreGrace, c.waitDeadline-Now()))
}
