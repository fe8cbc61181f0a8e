package line

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// reportedMost is how many waiters the whole fleet reports, roughly.
const reportedMost = 150

// Reports are what a call says of the leases whose records it has locked.
type reports struct {
	slots  *Slots
	leases []*lease
}

// Write implements [commit.Reports].
func (r *reports) Write() []wire.Report {
	s := r.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := make([]wire.Report, len(r.leases)), time.Now()
	for i, l := range r.leases {
		s.sequence++
		all[i] = l.report(s.sequence, s.latest, now)
	}
	return all
}

// Done implements [commit.Reports].
func (r *reports) Done(replies []wire.ReportReply, sent time.Time) {
	r.slots.learn(r.leases, replies, sent)
	r.slots.unlockRecords(r.leases, replies != nil)
}

// report is what the node says of a lease.
func (l *lease) report(sequence, latest int64, now time.Time) wire.Report {
	r := wire.Report{
		Key: l.key, Budget: l.charge.Budget.Key, Limit: l.charge.Limit.N(), Sequence: sequence, Held: l.held,
		Generation: l.generation, Latest: latest, Most: l.most, Waiters: l.reported(),
	}
	if now.Sub(l.answered) > wire.SureLease {
		r.Generation = wire.Generation{} // it may have expired since
	}
	r.Elapsed, r.Clock = history.Elapsed(l.asked, now)
	return r
}

// reported returns the waiters that are reported: all that were woken, and the first of the
// others, with the costs of those behind that are left out. Waiters of different reserves do
// not hide each other.
func (l *lease) reported() []wire.Waiter {
	type class struct { // of one reserve: there are as many as priorities
		reserve, count int
		last           int // the index of the last one that is reported
	}
	var all []wire.Waiter
	var classes []class
	for _, w := range l.line {
		k := 0
		for k < len(classes) && classes[k].reserve != w.reserve {
			k++
		}
		if k == len(classes) {
			classes = append(classes, class{reserve: w.reserve})
		}
		c := &classes[k]
		if !w.woken && c.count >= l.most {
			all[c.last].Behind += w.cost
			continue
		}
		if !w.woken {
			c.count, c.last = c.count+1, len(all)
		}
		all = append(all, wire.Waiter{Arrival: w.arrival, Cost: w.cost, Reserve: w.reserve})
	}
	return all
}

// learn notes what was answered to the reports of some leases, if it was, in a call that was
// first sent then.
func (s *Slots) learn(leases []*lease, replies []wire.ReportReply, sent time.Time) {
	received := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range replies {
		l, r := leases[i], &replies[i]
		l.generation, l.asked, l.answered, l.again = r.Generation, sent, received, r.Again
		l.most = max(1, min(lineMost, reportedMost/max(1, r.Nodes)))
		l.wake(r.Granted)
	}
}
