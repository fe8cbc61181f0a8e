package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A lease is what this node holds of one Concurrency budget, and the callers of this node that wait for its
// slots: see docs/internals/in-flight.md. It exists while the node holds slots or has waiters, and after that until
// Redis has surely forgotten the record. Calls report leases. The lock of the node guards all but recordLock.
type lease struct {
	key        string
	recordLock chan struct{} // full while a call reports the lease, so that one call at a time does; the only lock that is held during a call

	charge      store.Charge    // one of the budget, as it was last seen
	held        int             // slots of granted bookings that were not released
	line        []*waiter       // in the order in which they came
	maxReported int             // how many of the line are reported for each reserve
	generation  wire.Generation // of the record in Redis, and how often the record was written, by the last answer
	askedAt     time.Time       // when the call of that answer was sent
	answeredAt  time.Time       // when the answer came
	askAgain    time.Duration   // after what time to ask again at the latest, or 0 if there is no need
	reporting   int             // how many calls report the lease, or will soon
	earlyCalls  []int64         // the waiters that were summoned while a call was on its way
	renewTimer  *time.Timer     // runs renew
}

// A waiter is one place in the line of a lease.
type waiter struct {
	arrival  int64 // by the server's clock, in microseconds: no two waiters have the same
	cost     int
	reserve  int
	ready    chan struct{} // the caller's Grant.Ready
	summoned bool          // ready is closed
}

const (
	// RenewEvery is how often a lease is renewed at least.
	RenewEvery = 1500 * time.Millisecond

	renewAgain = time.Second      // when a lease is renewed after a call that failed
	renewSoon  = time.Millisecond // a lease is renewed no sooner than this after a call

	maxNodeReported  = 8   // waiters of a node are reported for each reserve
	maxFleetReported = 150 // waiters for a budget are reported by the whole fleet, roughly
)

// inUse reports whether the node holds slots or waits for slots.
func (l *lease) inUse() bool { return l.held > 0 || len(l.line) > 0 }

// find returns the index in the line of the waiter with an arrival, or where it would be.
func (l *lease) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.line, arrival, func(w *waiter, at int64) int { return cmp.Compare(w.arrival, at) })
}

// summon has the waiters with the arrivals book again.
func (l *lease) summon(arrivals []int64) {
	for _, at := range arrivals {
		if i, ok := l.find(at); ok && !l.line[i].summoned {
			l.line[i].summoned = true
			close(l.line[i].ready)
		}
	}
}

// lockRecords returns the leases that a call for some ops reports. It locks their records, and so waits until no call
// on its way reports any of them.
func (n *Node) lockRecords(ops []*op) []*lease {
	var locked []*lease
	n.mu.Lock()

	for _, o := range ops {
		for i := range o.Charges {
			if c := &o.Charges[i]; wire.ForSlots(c) {
				locked = n.appendLease(locked, c)
			}
		}
	}

	n.mu.Unlock()

	// All calls lock in the same order, so no two of them wait for each other.
	slices.SortFunc(locked, func(a, b *lease) int { return cmp.Compare(a.key, b.key) })
	for _, l := range locked {
		l.recordLock <- struct{}{}
	}

	return locked
}

// appendLease appends the lease of a charge to leases that a call reports, unless it is among them, and counts the call
// in reporting. It makes the lease if there is none.
func (n *Node) appendLease(to []*lease, c *store.Charge) []*lease {
	key := n.Names.Leases(&c.Budget)
	l := n.leases[key]
	if l == nil {
		l = &lease{key: key, recordLock: make(chan struct{}, 1), maxReported: maxNodeReported}
		n.leases[key] = l
	}

	// The charge may have a new limit.
	l.charge = *c
	if slices.Contains(to, l) {
		return to
	}

	l.reporting++
	return append(to, l)
}

// writeReports returns the reports of leases as of now, for one copy of a call that has locked their records.
func (n *Node) writeReports(leases []*lease) []wire.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, now := make([]wire.Report, len(leases)), time.Now()
	for i, l := range leases {
		n.sequence++
		all[i] = l.report(n.sequence, n.latestArrival, now)
	}
	return all
}

// report returns the report of a lease as of now. sequence is the number of the report, and latest when the
// last waiter of this node came.
func (l *lease) report(sequence, latest int64, now time.Time) wire.Report {
	r := wire.Report{
		Key: l.key, Budget: l.charge.Budget.Key, Limit: l.charge.Limit.N(), Sequence: sequence, Held: l.held,
		Generation: l.generation, Latest: latest, Most: l.maxReported, Waiters: l.reported(),
	}

	// Redis keeps a record for as long as a lease. If the record may have expired since the last answer, its end is no sign of a loss:
	// with the zero Generation Redis does not look for one.
	if now.Sub(l.answeredAt) > wire.SureLease {
		r.Generation = wire.Generation{}
	}
	r.Elapsed, r.Clock = history.Elapsed(l.askedAt, now)
	return r
}

// reported returns the waiters that are reported: all that were summoned and, for each reserve, the first maxReported of
// the rest. The last of these has in Behind the sum of the costs of the waiters that are left out.
func (l *lease) reported() []wire.Waiter {
	// A part is the waiters of one reserve that were not summoned. There are no more parts than priorities.
	type part struct {
		reserve int
		count   int // of the waiters that are reported
		last    int // the index in all of the last of these
	}

	var all []wire.Waiter
	var parts []part

	// Waiters that need different reserves do not stand behind each other, so each reserve has its own first waiters.
	for _, w := range l.line {
		k := slices.IndexFunc(parts, func(p part) bool { return p.reserve == w.reserve })
		if k < 0 {
			k = len(parts)
			parts = append(parts, part{reserve: w.reserve})
		}

		p := &parts[k]
		if !w.summoned && p.count >= l.maxReported {
			all[p.last].Behind += w.cost
			continue
		}

		if !w.summoned {
			p.count, p.last = p.count+1, len(all)
		}

		all = append(all, wire.Waiter{Arrival: w.arrival, Cost: w.cost, KeepFree: w.reserve})
	}

	return all
}

// learnReports ends what lockRecords began. It notes what Redis answered to the reports of leases, in a call that was
// sent for the first time at sent, summons the waiters that got slots, and sets when each lease is to be renewed.
// Without an answer replies is nil.
func (n *Node) learnReports(leases []*lease, replies []wire.ReportReply, sent time.Time) {
	received := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()

	// The replies are in the order of the leases.
	for i := range replies {
		l, r := leases[i], &replies[i]
		l.generation, l.askedAt, l.answeredAt, l.askAgain = r.Generation, sent, received, r.Again

		// Redis keeps a bounded number of waiters, so each node reports fewer if there are more nodes.
		l.maxReported = max(1, min(maxNodeReported, maxFleetReported/max(1, r.Nodes)))
		l.summon(r.Granted)
	}

	for _, l := range leases {
		n.unlockRecord(l, replies != nil)
	}
}

// unlockRecord lets the next call report a lease, and sets when the lease is to be renewed. answered says that Redis
// answered the report.
func (n *Node) unlockRecord(l *lease, answered bool) {
	l.reporting--

	// Early messages were for waiters that this call has put in line: see Granted.
	l.earlyCalls = l.earlyCalls[:0]
	<-l.recordLock

	after := n.RenewEvery

	// A lease that is not in use is kept until Redis has forgotten it: then renew drops it.
	switch {
	case !l.inUse():
		after = wire.Lease
	case !answered:
		after = renewAgain
	case l.askAgain > 0:
		after = min(after, max(l.askAgain, renewSoon))
	}

	// Each report renews the lease, so the timer begins anew.
	if l.renewTimer == nil {
		l.renewTimer = time.AfterFunc(after, func() { n.renew(l) })
	} else {
		l.renewTimer.Reset(after)
	}
}

// renew reports a lease to Redis once more. It forgets a lease that is not in use, unless a call reports it.
func (n *Node) renew(l *lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.inUse():
		n.postLocked(newReport(l.charge))
	case l.reporting == 0:
		delete(n.leases, l.key)
	}
}

// slotsAnswered notes the answer to an op for slots, or its error. The caller's old place in line is gone. Unless there is
// an error or the caller has left, the caller now holds its slots, stands in line anew, or has neither. If the caller has
// left, deliver gives back what Redis has for it. n.mu is held.
func (n *Node) slotsAnswered(o *op) {
	// No other operation gets slots or a place in line.
	if o.Kind != wire.Reserve {
		return
	}

	for i := range o.Charges {
		c := &o.Charges[i]
		if !wire.ForSlots(c) {
			continue
		}

		// The op's call reported the lease, and keeps it until now. The place in line is gone whatever the answer is.
		l := n.leases[n.Names.Leases(&c.Budget)]
		n.leaveLease(l, o.Arrival)

		switch {
		case o.err != nil, o.left:
		case o.outcome.State == wire.Held:
			l.held += c.Cost
		case o.outcome.State == wire.Waiting && o.outcome.Charge == i:
			o.ready = n.lineUp(l, c, o.outcome.Arrival)
		}
	}
}

// lineUp puts a waiter for a charge in the line of a lease, has the node listen to messages, and returns the waiter's Ready.
func (n *Node) lineUp(l *lease, c *store.Charge, arrival int64) <-chan struct{} {
	w := &waiter{arrival: arrival, cost: c.Cost, reserve: c.KeepFree, ready: make(chan struct{})}
	n.latestArrival = max(n.latestArrival, arrival)
	i, _ := l.find(arrival)
	l.line = slices.Insert(l.line, i, w)
	n.Subs.Retain()

	// The message that summons this waiter may have come before the answer.
	if slices.Contains(l.earlyCalls, arrival) {
		l.summon([]int64{arrival})
	}
	return w.ready
}

// leaveLease takes the waiter with an arrival out of the line of a lease, if there is such a waiter.
func (n *Node) leaveLease(l *lease, arrival int64) {
	if i, ok := l.find(arrival); ok {
		l.line = slices.Delete(l.line, i, i+1)
		n.Subs.Release()
	}
}

// giveUp notes in the leases that a caller gives back the slots of its charges, if it holds them, and the place in line
// of the waiter with an arrival, if there is such a waiter. The next call that reports the leases tells Redis. giveUp
// returns the charges that are for slots.
func (n *Node) giveUp(charges []store.Charge, arrival int64, holds bool) (forSlots []store.Charge) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for i := range charges {
		c := &charges[i]
		if !wire.ForSlots(c) {
			continue
		}

		forSlots = append(forSlots, *c)
		l := n.leases[n.Names.Leases(&c.Budget)]
		if l == nil {
			continue
		}

		n.leaveLease(l, arrival)
		if holds {
			l.held = max(0, l.held-c.Cost)
		}
	}

	return forSlots
}

// Granted summons the waiters that a message names: slots of a budget are set aside for them. The message may come
// before the reply by which the node learns that such a waiter stands in line.
func (n *Node) Granted(m notify.Slots) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.leases[m.Key]
	if l == nil {
		return
	}

	// The answer of a call on its way may put the waiter in line: then lineUp summons it.
	if l.reporting > 0 {
		l.earlyCalls = append(l.earlyCalls, m.Arrivals...)
	}
	l.summon(m.Arrivals)
}

// Subscribed is called when a subscription of a channel has begun. Messages that were sent before are lost. So for this
// node's channel, which tells of slots that are set aside, it reports all leases with waiters. For the shared channel,
// which tells of turns in lines for starts, it may ask how the lines stand: see connected.
func (n *Node) Subscribed(channel string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if channel == n.Names.Shared() {
		n.connected()
	}
	if channel != n.Names.Own() {
		return
	}

	for _, l := range n.leases {
		if len(l.line) > 0 {
			n.postLocked(newReport(l.charge))
		}
	}
}
