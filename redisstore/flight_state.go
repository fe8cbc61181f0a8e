package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// state appends what the store says of a flight to the arguments of a call: see
// lua/leases.lua.
func (fs *flights) state(n wire.Frame, f *flight) wire.Frame {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.states++
	front := f.front()
	birth, count := f.birth, f.count
	now := time.Now()
	if now.Sub(f.told) > leaseTime-leaseDoubt {
		birth, count = 0, 0 // it may have expired since
	}
	n = n.Add(int64(f.charge.Limit.N()), fs.states, int64(f.held), birth, count, elapsedArg(history.Elapsed(f.sent, now)),
		fs.latest, int64(f.most), int64(len(front)))
	for _, w := range front {
		n = n.Add(w.came, int64(w.cost), int64(w.reserve), int64(w.behind))
	}
	return n
}

// more is what else a call is told: the channel of news; and if it states flights, or
// knows of pauses, how many flights, who states them, what the channels of all begin
// with, and the pauses.
func (s *Store) more(b *batch) []any {
	group := b.callers[0].charges[0].Budget.Group
	more, known := []any{s.sharedChannel(group)}, s.knownPauses(b.callers)
	if len(b.flights) == 0 && len(known) == 0 {
		return more
	}
	return append(append(more, len(b.flights), s.id, s.ownPrefix(group)), known...)
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

// A heard is what a call says of one flight.
type heard struct {
	birth, count int64 // see lua/leases.lua

	crowd int           // how many nodes hold or wait
	aside []int64       // who in our line has room set aside
	again time.Duration // when to ask again at the latest; 0: whenever
}

// perFlight is how many numbers book.lua answers for a flight, those who have
// room left out.
const perFlight = 4

// readFlights reads what an answer says of so many flights, and returns what
// comes after it.
func readFlights(v wire.Frame, count int) (all []heard, rest wire.Frame) {
	for range count {
		if v.Size() < perFlight {
			break
		}
		h, more := heard{birth: v.At(0), count: v.At(1), crowd: int(v.At(2))}, int(v.At(3))
		if v = v.From(perFlight); more < 0 || more > v.Size() {
			break
		}
		for i := range more {
			if came := v.At(i); came > 0 {
				h.aside = append(h.aside, came)
			} else {
				h.again = time.Duration(-came) * time.Microsecond
			}
		}
		all, v = append(all, h), v.From(more)
	}
	return all, v
}

// learn notes what a call said of its flights.
func (fs *flights) learn(b *batch, err error) {
	if err != nil {
		return
	}
	received := time.Now()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range b.flights {
		h := b.heard[i]
		f.birth, f.count, f.sent, f.told, f.again = h.birth, h.count, b.sent, received, h.again
		f.most = max(1, min(lineMost, crowdMost/max(1, h.crowd)))
		f.wake(h.aside)
	}
}
