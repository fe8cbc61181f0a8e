package line

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A lease is what this node holds of one Concurrency budget, and the callers of this node that wait
// for its slots; see docs/internals/in-flight.md. It exists while the node holds slots or has waiters, and
// after that as long as Redis keeps the record for sure. The lock of the slots guards all
// but recordLock.
type lease struct {
	key        string
	recordLock chan struct{} // full while a call reports the lease, so that one call at a time does

	charge     store.Charge    // one of the budget, as it was last seen
	held       int             // by granted bookings that were not released
	line       []*waiter       // in the order in which they came
	reportMost int             // how many of the line are reported for each reserve
	generation wire.Generation // of the record in Redis, and how often it was written, as far as is known
	askedAt    time.Time       // when that was asked
	answeredAt time.Time       // and when it was answered
	askAgain   time.Duration   // when to ask again at the latest; 0: whenever
	reporting  int             // how many report the lease, or will soon
	earlyCalls []int64         // the waiters that were called while a call was on its way
	renewTimer *time.Timer     // renews
}

// lineMost is how many waiters of a line are reported for each reserve, at the most.
const lineMost = 8

// A waiter is one place in line.
type waiter struct {
	arrival int64 // by the server's clock, in microseconds: no two waiters have the same
	cost    int
	reserve int
	ready   chan struct{} // the caller's Grant.Ready
	woken   bool          // ready is closed
}

// inUse reports whether the node holds something or waits.
func (l *lease) inUse() bool { return l.held > 0 || len(l.line) > 0 }

// find returns the index in the line of the waiter with an arrival, or where it would be.
func (l *lease) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.line, arrival, func(w *waiter, at int64) int { return cmp.Compare(w.arrival, at) })
}

// wake has the waiters with the arrivals book again.
func (l *lease) wake(arrivals []int64) {
	for _, at := range arrivals {
		if i, ok := l.find(at); ok && !l.line[i].woken {
			l.line[i].woken = true
			close(l.line[i].ready)
		}
	}
}

// Slots are the budgets of concurrency of which a node holds slots, or waits for some.
type Slots struct {
	RenewEvery time.Duration // how often a lease is renewed at least

	options       *Options
	mu            sync.Mutex
	all           map[string]*lease // by key
	sequence      int64             // of the last report
	latestArrival int64             // when the last waiter of this node came
}

const (
	renewEvery = 1500 * time.Millisecond
	renewAgain = time.Second      // when a lease is renewed after a call that failed
	renewSoon  = time.Millisecond // a lease is renewed no sooner than this after a call
)

// lockRecords returns the leases that a call for some ops reports, and waits until no other
// call reports any of them. It locks them in the order of their keys, so that two calls never wait
// for each other.
func (s *Slots) lockRecords(ops []*commit.Op) []*lease {
	var locked []*lease
	s.mu.Lock()
	for _, op := range ops {
		for i := range op.Charges {
			if c := &op.Charges[i]; wire.ForSlots(c) {
				locked = s.appendLease(locked, c)
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(locked, func(a, b *lease) int { return cmp.Compare(a.key, b.key) })
	for _, l := range locked {
		l.recordLock <- struct{}{}
	}
	return locked
}

// appendLease appends the lease of a charge to leases that a call reports, unless it is among them.
// It makes the lease if there is none. The slots are locked.
func (s *Slots) appendLease(to []*lease, c *store.Charge) []*lease {
	key := s.options.Names.Leases(&c.Budget)
	l := s.all[key]
	if l == nil {
		l = &lease{key: key, recordLock: make(chan struct{}, 1), reportMost: lineMost}
		s.all[key] = l
	}
	if l.charge = *c; slices.Contains(to, l) {
		return to
	}
	l.reporting++
	return append(to, l)
}

// unlockRecords ends what lockRecords began, and sets when each lease is to be renewed. answered
// says that Redis answered the reports.
func (s *Slots) unlockRecords(locked []*lease, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range locked {
		l.reporting--
		l.earlyCalls = l.earlyCalls[:0]
		<-l.recordLock
		after := s.RenewEvery
		switch {
		case !l.inUse():
			after = wire.Lease
		case !answered:
			after = renewAgain
		case l.askAgain > 0:
			after = min(after, max(l.askAgain, renewSoon))
		}
		if l.renewTimer == nil {
			l.renewTimer = time.AfterFunc(after, func() { s.renew(l) })
		} else {
			l.renewTimer.Reset(after)
		}
	}
}

// renew reports a lease to Redis once more, or forgets it if it is not in use.
func (s *Slots) renew(l *lease) {
	s.mu.Lock()
	live, c := l.inUse(), l.charge
	if !live && l.reporting == 0 {
		delete(s.all, l.key)
	}
	s.mu.Unlock()
	if live {
		s.options.Post(commit.NewReport(c))
	}
}

// answered notes what a call that reported the leases granted to an op: its old place in line
// is gone, and it holds what it asked for or stands in line anew.
func (s *Slots) answered(op *commit.Op) {
	if op.Kind != wire.Reserve || !op.ForSlots() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range op.Charges {
		c := &op.Charges[i]
		if !wire.ForSlots(c) {
			continue
		}
		l := s.all[s.options.Names.Leases(&c.Budget)]
		s.leaveLine(l, op.Arrival)
		switch {
		case op.Err != nil, op.Left():
		case op.Outcome.State == wire.Held:
			l.held += c.Cost
		case op.Outcome.State == wire.Waiting && op.Outcome.Charge == i:
			op.Ready = s.lineUp(l, c, op.Outcome.Arrival)
		}
	}
}

// lineUp puts a charge in line and returns its Ready. The slots are locked.
func (s *Slots) lineUp(l *lease, c *store.Charge, arrival int64) <-chan struct{} {
	w := &waiter{arrival: arrival, cost: c.Cost, reserve: c.KeepFree, ready: make(chan struct{})}
	s.latestArrival = max(s.latestArrival, arrival)
	i, _ := l.find(arrival)
	l.line = slices.Insert(l.line, i, w)
	s.options.Subs.Retain(s.options.channels())
	if slices.Contains(l.earlyCalls, arrival) {
		l.wake([]int64{arrival})
	}
	return w.ready
}

// leaveLine takes the waiter with an arrival out of the line, if there is one. The slots are
// locked.
func (s *Slots) leaveLine(l *lease, arrival int64) {
	if i, ok := l.find(arrival); ok {
		l.line = slices.Delete(l.line, i, i+1)
		s.options.Subs.Release(s.options.channels())
	}
}

// GiveUp notes that a caller gives back the slots that its charges are for, if it holds them, and
// the place in line of the waiter with an arrival. The next call that reports the leases tells
// Redis. It returns the charges that are for slots.
func (s *Slots) GiveUp(charges []store.Charge, arrival int64, holds bool) (ended []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !wire.ForSlots(c) {
			continue
		}
		ended = append(ended, *c)
		l := s.all[s.options.Names.Leases(&c.Budget)]
		if l == nil {
			continue
		}
		if s.leaveLine(l, arrival); holds {
			l.held = max(0, l.held-c.Cost)
		}
	}
	return ended
}

// Granted takes in a message that names waiters of a budget for which slots are set aside. The
// message may come before the reply by which the node learns that such a waiter stands in line.
func (s *Slots) Granted(m notify.Slots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all[m.Key]
	if l == nil {
		return
	}
	if l.reporting > 0 {
		l.earlyCalls = append(l.earlyCalls, m.Arrivals...)
	}
	l.wake(m.Arrivals)
}

// Subscribed takes in that a subscription of a channel has begun. It reports the leases of all
// waiters that are called on the channel: the message that calls them may have been sent before.
func (s *Slots) Subscribed(channel string) {
	s.mu.Lock()
	var waiting []*lease
	for _, l := range s.all {
		if len(l.line) > 0 && s.options.Names.Own() == channel {
			waiting = append(waiting, l)
		}
	}
	s.mu.Unlock()
	for _, l := range waiting {
		s.renew(l)
	}
}

// Leases returns how many budgets the node holds slots of, or waits for, or did lately.
func (s *Slots) Leases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
