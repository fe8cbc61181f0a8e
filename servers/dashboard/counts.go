package dashboard

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A tracked is a budget that the program has used, and what was counted of it.
type tracked struct {
	charge store.Charge // of cost 1
	starts int64        // that were handed on, ever
	cost   int64        // what they were charged
	last   time.Time    // when somebody wanted a start
}

// counts know the budgets that a program uses. They are on each request's way: one lock that few share, and
// nothing is allocated for a budget that is known.
type counts struct {
	shards [16]struct {
		mu  sync.Mutex
		all map[[16]byte]*tracked
	}
	full     atomic.Bool  // a budget found no room
	requests atomic.Int64 // that were handed on, ever
}

const (
	mostInShard = 256         // 4,096 budgets in all
	forgotten   = time.Hour   // a budget that nobody used for so long is forgotten
	soonAgain   = time.Minute // or for so long, if there is no room
)

// add counts the starts of a booking: 1 for a start that it got, -1 for one that was given back, 0 for none. now
// says that the start is now: only such a start takes slots.
func (c *counts) add(b *store.Booking, starts int64, now bool) {
	request := b.Horizon > 0 // slots for a start that has come are booked by a booking of their own
	for i := range b.Charges {
		charge, n := &b.Charges[i], starts
		if charge.Limit.Kind() != store.KindConcurrency {
			request = true
		} else if !now {
			n = 0
		}

		c.change(charge, func(t *tracked) {
			t.starts += n
			t.cost += n * int64(charge.Cost)
			t.last = time.Now()
		})
	}

	if request {
		c.requests.Add(starts)
	}
}

// change changes what is known of a charge's budget.
func (c *counts) change(charge *store.Charge, change func(*tracked)) {
	s := &c.shards[charge.Budget.Key[0]%16]
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.all[charge.Budget.Key]
	if t == nil {
		if len(s.all) >= mostInShard {
			forget(s.all, soonAgain)
		}

		if len(s.all) >= mostInShard {
			c.full.Store(true)
			return
		}

		if s.all == nil {
			s.all = make(map[[16]byte]*tracked)
		}

		t = new(tracked)
		s.all[charge.Budget.Key] = t
	}

	own := *charge
	own.Cost, own.KeepFree, own.Pace = 1, 0, 0
	t.charge = own
	change(t)
}

// forget forgets budgets that nobody used for so long.
func forget(all map[[16]byte]*tracked, idle time.Duration) {
	for key, t := range all {
		if time.Since(t.last) > idle {
			delete(all, key)
		}
	}
}

// read returns a copy of all that is known.
func (c *counts) read() (all []tracked) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		forget(s.all, forgotten)
		for _, t := range s.all {
			all = append(all, *t)
		}
		s.mu.Unlock()
	}
	return all
}

// A histogram counts lengths of time, each bucket a fifth longer than the one before, from a millisecond to
// twelve hours. It is safe for concurrent use.
type histogram [buckets]atomic.Int64

const buckets = 100

// perDouble is how many buckets there are from a length to twice the length.
const perDouble = 4

func (h *histogram) add(d time.Duration) {
	at := 0
	if ms := float64(d) / float64(time.Millisecond); ms > 1 {
		at = min(int(math.Ceil(perDouble*math.Log2(ms))), len(h)-1)
	}
	h[at].Add(1)
}

// read returns the numbers of all buckets.
func (h *histogram) read() (n [buckets]int64) {
	for i := range h {
		n[i] = h[i].Load()
	}
	return n
}

// quantile returns the length, in milliseconds, that a share of what was counted from before to now does not
// exceed, and how much that was.
func quantile(before, now *[buckets]int64, share float64) (ms int64, count int) {
	var sum [buckets]int64
	total := int64(0)
	for i := range now {
		total += now[i] - before[i]
		sum[i] = total
	}
	at := slices.IndexFunc(sum[:], func(n int64) bool { return float64(n) >= share*float64(total) })
	if total == 0 || at <= 0 {
		return 0, int(total)
	}
	return int64(math.Round(math.Exp2(float64(at) / perDouble))), int(total)
}
