package line

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A lease is what this node holds of one budget of concurrency, and the callers that wait
// here for more; see docs/internals/in-flight.md. It exists while there is either, and
// as long as Redis is sure to keep the record after that. The lock of the slots guards all
// but the record lock.
type lease struct {
	key        string
	recordLock chan struct{} // full while a call reports the lease: one at a time

	charge     throttle.Charge // one of the budget, as it was last seen
	held       int             // by granted bookings that were not released
	line       []*waiter       // in the order in which they came
	most       int             // how many of the line are reported for each reserve
	generation wire.Generation // of the record in Redis, and how often it was written, as far as is known
	asked      time.Time       // when that was asked
	answered   time.Time       // and when it was answered
	again      time.Duration   // when to ask again at the latest; 0: whenever
	calls      int             // how many report the lease, or will soon
	early      []int64         // the waiters that were called while a call was on its way
	next       *time.Timer     // renews
}

// lineMost is how many of a line are reported for each reserve, at the most.
const lineMost = 8

// A waiter is one place in line.
type waiter struct {
	arrival int64 // by the server's clock: its name
	cost    int
	reserve int
	ready   chan struct{} // the caller's Grant.Ready
	woken   bool          // ready is closed
}

// live reports whether the node holds something or waits.
func (l *lease) live() bool { return l.held > 0 || len(l.line) > 0 }

// find returns the index in the line of the waiter that came then, or where it would be.
func (l *lease) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.line, arrival, func(w *waiter, at int64) int { return cmp.Compare(w.arrival, at) })
}

// wake lets the waiters that came then book again.
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

	options  *Options
	mu       sync.Mutex
	all      map[string]*lease // by key
	sequence int64             // of the last report
	latest   int64             // when the last waiter of this node came
}

const (
	renewEvery = 1500 * time.Millisecond
	renewAgain = time.Second      // after a call that failed
	renewSoon  = time.Millisecond // to see what should be over by now
)

// lockRecords finds the leases that a call for some ops reports, and waits until no other
// call does. They are in the order of their keys, so that two calls never wait for each
// other.
func (s *Slots) lockRecords(ops []*commit.Op) []*lease {
	var locked []*lease
	s.mu.Lock()
	for _, op := range ops {
		for i := range op.Charges {
			if c := &op.Charges[i]; wire.Holds(c) {
				locked = s.use(locked, c)
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

// use appends the lease of a charge, unless it is there already.
func (s *Slots) use(to []*lease, c *throttle.Charge) []*lease {
	key := s.options.Names.Leases(&c.Budget)
	l := s.all[key]
	if l == nil {
		l = &lease{key: key, recordLock: make(chan struct{}, 1), most: lineMost}
		s.all[key] = l
	}
	if l.charge = *c; slices.Contains(to, l) {
		return to
	}
	l.calls++
	return append(to, l)
}

// unlockRecords ends what lockRecords began, and sees to it that what is held or
// waited for is renewed.
func (s *Slots) unlockRecords(locked []*lease, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range locked {
		l.calls--
		l.early = l.early[:0]
		<-l.recordLock
		after := s.RenewEvery
		switch {
		case !l.live():
			after = wire.Lease
		case !answered:
			after = renewAgain
		case l.again > 0:
			after = min(after, max(l.again, renewSoon))
		}
		if l.next == nil {
			l.next = time.AfterFunc(after, func() { s.renew(l) })
		} else {
			l.next.Reset(after)
		}
	}
}

// renew renews a lease, or forgets it, when there was no call for some time.
func (s *Slots) renew(l *lease) {
	s.mu.Lock()
	live, c := l.live(), l.charge
	if !live && l.calls == 0 {
		delete(s.all, l.key)
	}
	s.mu.Unlock()
	if live {
		s.options.Post(commit.NewReport(c))
	}
}

// settled notes what a call that reported the leases granted to an op: its old place in line
// is gone, and it holds what it asked for or stands in line anew.
func (s *Slots) settled(op *commit.Op) {
	if op.Kind != wire.Reserve || !op.Holds() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range op.Charges {
		c := &op.Charges[i]
		if !wire.Holds(c) {
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
func (s *Slots) lineUp(l *lease, c *throttle.Charge, arrival int64) <-chan struct{} {
	w := &waiter{arrival: arrival, cost: c.Cost, reserve: c.Reserve, ready: make(chan struct{})}
	s.latest = max(s.latest, arrival)
	i, _ := l.find(arrival)
	l.line = slices.Insert(l.line, i, w)
	s.options.Subs.Retain(s.options.channels(c.Budget.Group))
	if slices.Contains(l.early, arrival) {
		l.wake([]int64{arrival})
	}
	return w.ready
}

// leaveLine takes the waiter that came then out of the line, if there is one. The slots are
// locked.
func (s *Slots) leaveLine(l *lease, arrival int64) {
	if i, ok := l.find(arrival); ok {
		l.line = slices.Delete(l.line, i, i+1)
		s.options.Subs.Release(s.options.channels(l.charge.Budget.Group))
	}
}

// GiveUp ends what the node has of the slots that some charges are for: what is held, or the
// place in line of the waiter that came then. The next call that reports them says so. It
// returns those charges.
func (s *Slots) GiveUp(charges []throttle.Charge, arrival int64, holds bool) (ended []throttle.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if !wire.Holds(c) {
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

// Granted takes in which waiters of a budget have slots set aside. It may come before the
// reply that names them.
func (s *Slots) Granted(m notify.Slots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all[m.Key]
	if l == nil {
		return
	}
	if l.calls > 0 {
		l.early = append(l.early, m.Arrivals...)
	}
	l.wake(m.Arrivals)
}

// Subscribed reports the leases of all callers that wait for a message on the channel, because
// it may have come before the subscription did.
func (s *Slots) Subscribed(channel string) {
	s.mu.Lock()
	var waiting []*lease
	for _, l := range s.all {
		if len(l.line) > 0 && s.options.Names.Own(l.charge.Budget.Group) == channel {
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
