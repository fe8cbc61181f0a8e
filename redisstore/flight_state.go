package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// report is what the store says of a flight.
func (fs *flights) report(f *flight) wire.Report {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.states++
	now := time.Now()
	r := wire.Report{
		Key: f.key, Budget: f.budget.Key, Limit: f.charge.Limit.N(), Sequence: fs.states, Held: f.held,
		Generation: wire.Generation{ID: f.birth, Count: f.count}, Latest: fs.latest, Most: f.most,
	}
	if now.Sub(f.told) > leaseTime-leaseDoubt {
		r.Generation = wire.Generation{} // it may have expired since
	}
	r.Elapsed, r.ElapsedKnown = history.Elapsed(f.sent, now)
	for _, w := range f.front() {
		r.Waiters = append(r.Waiters, wire.Waiter{Arrival: w.came, Cost: w.cost, Reserve: w.reserve, Behind: w.behind})
	}
	return r
}

// A stated is a waiter that is stated, and the costs of those behind it that
// are not.
type stated struct {
	*waiter
	behind int
}

// front returns who is stated: all who were woken, and the first of the others.
// Those that leave different amounts free do not hide each other.
func (f *flight) front() []stated {
	var front []stated
	var ranks []rank
	for _, w := range f.line {
		r := rankOf(&ranks, w.reserve)
		if !w.woken && r.count >= f.most {
			front[r.last].behind += w.cost
			continue
		}
		if !w.woken {
			r.count, r.last = r.count+1, len(front)
		}
		front = append(front, stated{waiter: w})
	}
	return front
}

// A rank is those who leave the same amount free. There are as many as
// priorities.
type rank struct {
	reserve int
	count   int // of those stated
	last    int // its index
}

// rankOf finds a rank, or adds it.
func rankOf(ranks *[]rank, reserve int) *rank {
	for i := range *ranks {
		if r := &(*ranks)[i]; r.reserve == reserve {
			return r
		}
	}
	*ranks = append(*ranks, rank{reserve: reserve})
	return &(*ranks)[len(*ranks)-1]
}

// learn notes what a call said of its flights.
func (fs *flights) learn(b *batch) {
	received := time.Now()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range b.flights {
		r := &b.reports[i]
		f.birth, f.count, f.sent, f.told, f.again = r.Generation.ID, r.Generation.Count, b.sent, received, r.Again
		f.most = max(1, min(lineMost, crowdMost/max(1, r.Nodes)))
		f.wake(r.Granted)
	}
}
