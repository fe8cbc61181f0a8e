package line

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// reportedMost is how many waiters for a budget the whole fleet reports, roughly.
const reportedMost = 150

// reports are what a call says of leases, whose records the call has locked.
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
		all[i] = l.report(s.sequence, s.latestArrival, now)
	}
	return all
}

// Done implements [commit.Reports].
func (r *reports) Done(replies []wire.ReportReply, sent time.Time) {
	r.slots.learn(r.leases, replies, sent)
	r.slots.unlockRecords(r.leases, replies != nil)
}

// report returns what the node says of a lease now. sequence is the number of the report, and
// latest when the last waiter of this node came. The slots are locked.
func (l *lease) report(sequence, latest int64, now time.Time) wire.Report {
	r := wire.Report{
		Key: l.key, Budget: l.charge.Budget.Key, Limit: l.charge.Limit.N(), Sequence: sequence, Held: l.held,
		Generation: l.generation, Latest: latest, Most: l.reportMost, Waiters: l.reported(),
	}
	if now.Sub(l.answeredAt) > wire.SureLease {
		r.Generation = wire.Generation{} // the record in Redis may have expired since
	}
	r.Elapsed, r.Clock = history.Elapsed(l.askedAt, now)
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
		if !w.woken && c.count >= l.reportMost {
			all[c.last].Behind += w.cost
			continue
		}
		if !w.woken {
			c.count, c.last = c.count+1, len(all)
		}
		all = append(all, wire.Waiter{Arrival: w.arrival, Cost: w.cost, KeepFree: w.reserve})
	}
	return all
}

// learn notes what Redis answered to the reports of leases, in a call that was sent for the first
// time at sent. replies is nil if there was no answer.
func (s *Slots) learn(leases []*lease, replies []wire.ReportReply, sent time.Time) {
	received := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range replies {
		l, r := leases[i], &replies[i]
		l.generation, l.askedAt, l.answeredAt, l.askAgain = r.Generation, sent, received, r.Again
		l.reportMost = max(1, min(lineMost, reportedMost/max(1, r.Nodes)))
		l.wake(r.Granted)
	}
}
