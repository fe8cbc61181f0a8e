package acquire

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

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
	return min(ReportWait, max(StoreGrace, c.MaxWaitLeft()))
}
