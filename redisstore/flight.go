package redisstore

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A flight is what this store holds of one budget of requests in flight, and who
// waits here for more; see docs/in-flight.md. It exists while there is either, and
// as long as Redis is sure to keep the budget after that.
type flight struct {
	key    string
	budget throttle.Budget
	floor  chan struct{} // full while a call states the flight: there is one at a time

	// The lock of the flights guards the rest.
	charge throttle.Charge // one of the budget, as it was last seen
	held   int             // by granted bookings that were not released
	line   []*waiter       // in the order in which they came
	most   int             // how many of the line are stated
	birth  int64           // of what Redis has: see lua/leases.lua
	count  int64           // how often it was written, as far as we know
	sent   time.Time       // when we asked
	told   time.Time       // when we heard of that
	again  time.Duration   // when to ask again at the latest; 0: whenever
	calls  int             // how many state the flight, or will soon
	early  []int64         // who was called while a call was on its way
	next   *time.Timer     // calls due
}

// A waiter is one place in line.
type waiter struct {
	came    int64 // by the server's clock: its name
	cost    int
	reserve int
	ready   chan struct{} // the caller's Grant.Ready
	woken   bool          // ready is closed
}

// flights are all of a store.
type flights struct {
	mu     sync.Mutex
	all    map[string]*flight // by key
	states int64              // how many statements were made
	latest int64              // when the last waiter of this store came
	every  time.Duration      // renewEvery, unless a test wants none
}

const (
	leaseTime  = wire.Lease
	leaseDoubt = time.Second // near its end a lease may have ended
	renewEvery = 1500 * time.Millisecond
	renewAgain = time.Second      // after a call that failed
	renewSoon  = time.Millisecond // to see what should be over by now
)

const (
	lineMost  = 8   // how many of a line are stated for each reserve
	crowdMost = 150 // how many the whole fleet states, roughly
)

// flightKey returns the key of a budget of requests in flight. It ends unlike
// that of any other form.
func (s *Store) flightKey(b *throttle.Budget) string { return s.key(b) + ":flight" }

// takeFloors finds the flights that a call for these callers states, and waits
// until no other call does. They are in the order of their keys, so that two calls
// never wait for each other.
func (s *Store) takeFloors(callers []*caller) []*flight {
	var taken []*flight
	s.flights.mu.Lock()
	for _, c := range callers {
		for i := range c.Charges {
			if ch := &c.Charges[i]; wire.Holds(ch) {
				taken = s.flights.use(taken, s.flightKey(&ch.Budget), ch)
			}
		}
	}
	s.flights.mu.Unlock()
	slices.SortFunc(taken, func(a, b *flight) int { return cmp.Compare(a.key, b.key) })
	for _, f := range taken {
		f.floor <- struct{}{}
	}
	return taken
}

// use appends the flight of that key, unless it is there already.
func (fs *flights) use(to []*flight, key string, c *throttle.Charge) []*flight {
	f := fs.all[key]
	if f == nil {
		f = &flight{key: key, budget: c.Budget, floor: make(chan struct{}, 1), most: lineMost}
		fs.all[key] = f
	}
	if f.charge = *c; slices.Contains(to, f) {
		return to
	}
	f.calls++
	return append(to, f)
}

// leaveFloors ends what takeFloors began, and sees to it that what is held or
// waited for is renewed.
func (s *Store) leaveFloors(left []*flight, answered bool) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	for _, f := range left {
		f.calls--
		f.early = f.early[:0]
		<-f.floor
		after := s.flights.every
		switch {
		case !f.live():
			after = leaseTime
		case !answered:
			after = renewAgain
		case f.again > 0:
			after = min(after, max(f.again, renewSoon))
		}
		if f.next == nil {
			f.next = time.AfterFunc(after, func() { s.due(f) })
		} else {
			f.next.Reset(after)
		}
	}
}

// live reports whether the store holds something or waits.
func (f *flight) live() bool { return f.held > 0 || len(f.line) > 0 }

// due renews a flight, or forgets it, when there was no call for some time.
func (s *Store) due(f *flight) {
	s.flights.mu.Lock()
	live, c := f.live(), f.charge
	if !live && f.calls == 0 {
		delete(s.flights.all, f.key)
	}
	s.flights.mu.Unlock()
	if live {
		s.lanes.join(stating(c))
	}
}

// stating returns a caller that asks for nothing, so that its charges' flights
// are stated. Nobody waits for it.
func stating(charges ...throttle.Charge) *caller {
	return &caller{Op: wire.Op{Kind: wire.Cancel, Charges: charges}, done: make(chan struct{}, 1)}
}
