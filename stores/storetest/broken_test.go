package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A broken store is an oracle of which one method was replaced.
type broken struct {
	*oracle
	book   func(*oracle, *store.Booking) store.Grant
	cancel func(*oracle, *store.Booking, store.Grant)
	pause  func(o *oracle, c store.Charge, d, ago time.Duration) // for Refuse, too. ago is 0 for a pause
	status func(*oracle, store.Charge, *store.Status)
	settle func(*oracle, entry, []int)
	states func(*oracle, store.Charge, store.Quota)
	refuse func(o *oracle, c store.Charge, at int64) (from, to float64)

	release func(*oracle, *store.Booking, store.Grant)
	late    bool                           // what was known when a watch began is no news
	watch   func(*oracleWatch) store.Watch // what a watch that began is given out as
	resume  func(*oracle, store.Charge)
}

func (s broken) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if s.book != nil {
		return s.book(s.oracle, b), nil
	}
	return s.oracle.Book(ctx, b)
}

func (s broken) Cancel(b *store.Booking, g store.Grant) {
	if s.cancel != nil {
		s.cancel(s.oracle, b, g)
		return
	}
	s.oracle.Cancel(b, g)
}

func (s broken) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	if s.pause != nil {
		s.pause(s.oracle, c, d, 0)
		return nil
	}
	return s.oracle.Pause(ctx, c, d)
}

// Refuse implements store.Store. If there is a refuse, it says the ceilings. If there is a pause alone, it closes the budget.
func (s broken) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	e, ok := s.booked[r.Start.Handle.Start]
	switch {
	case ok && s.refuse != nil:
		from, to = s.refuse(s.oracle, c, e.at)
		r.Start = store.Grant{}
		_, _, err = s.oracle.Refuse(ctx, c, r)
		return from, to, err
	case s.pause == nil:
		return s.oracle.Refuse(ctx, c, r)
	case ok:
		from, to = s.ledger.learn(c, e.at, s.clock())
	}
	s.pause(s.oracle, c, r.Length, max(tick, r.Ago))
	return from, to, nil
}

func (s broken) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	st, err := s.oracle.Status(ctx, c)
	if s.status != nil {
		s.status(s.oracle, c, &st)
	}
	return st, err
}

func (s broken) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if s.settle != nil {
		s.settle(s.oracle, s.booked[g.Handle.Start], slices.Clone(costs))
		s.recost(g.Handle.Start, costs)
		return nil
	}
	return s.oracle.Settle(ctx, b, g, costs)
}

func (s broken) Release(b *store.Booking, g store.Grant) {
	if s.release != nil {
		s.release(s.oracle, b, g)
		return
	}
	s.oracle.Release(b, g)
}

// Watch implements store.Store.
func (s broken) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	first := news
	if s.late {
		first = nil
	}
	v := s.oracle.Watch(b, g, first).(*oracleWatch)
	v.news = news
	if s.watch != nil {
		return s.watch(v)
	}
	return v
}

func (s broken) Resume(ctx context.Context, c store.Charge) error {
	if s.resume != nil {
		s.resume(s.oracle, c)
		return nil
	}
	return s.oracle.Resume(ctx, c)
}

// honest books as the oracle does.
func honest(o *oracle, b *store.Booking) store.Grant {
	g, _ := o.Book(context.Background(), b)
	return g
}

// charging books with charges that are not what the caller said.
func charging(change func(*store.Charge)) broken {
	return broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		other.Charges = slices.Clone(b.Charges)
		for i := range other.Charges {
			change(&other.Charges[i])
		}
		return honest(o, &other)
	}}
}

// ofKind is charging for limits of one kind.
func ofKind(kind store.Kind, change func(*store.Charge)) broken {
	return charging(func(c *store.Charge) {
		if c.Limit.Kind() == kind {
			change(c)
		}
	})
}

// asking books something that the caller did not ask for.
func asking(change func(*store.Booking)) broken {
	return broken{book: func(o *oracle, b *store.Booking) store.Grant {
		other := *b
		change(&other)
		return honest(o, &other)
	}}
}

// saying answers something else than what was booked.
func saying(change func(*store.Grant)) broken {
	return broken{book: func(o *oracle, b *store.Booking) store.Grant {
		g := honest(o, b)
		change(&g)
		return g
	}}
}

// resized returns a limit of the same kind; a calendar's stays as it is.
func resized(l store.Limit, n int, per time.Duration) store.Limit {
	switch {
	case l.Per() == 0 || n < 1:
		return l
	case l.Kind() == store.KindSlidingWindow:
		return store.SlidingWindow(n, per)
	case l.Kind() == store.KindFixedWindow:
		return store.FixedWindow(n, per)
	case l.Kind() == store.KindTokenBucket:
		return store.TokenBucket(n, per, l.Capacity())
	default:
		return store.LeakyBucket(n, per)
	}
}

// A recorder is a tb that remembers the first failure.
type recorder struct {
	ctx     context.Context
	mu      sync.Mutex
	failure string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs one check on a store that may be broken and returns its first
// message, or "".
func failure(t *testing.T, c check, newStore func() store.Store) string {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.ctx = t.Context()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(newBench(r, newStore(), c.name))
		}()
		<-done
	})
	return r.failure
}

// caught reports whether one of the checks whose names begin with the prefix
// fails, for the reason that it is named for.
func caught(t *testing.T, checks []check, prefix string, newStore func() store.Store) bool {
	return slices.ContainsFunc(checks, func(c check) bool {
		promise, _, _ := strings.Cut(c.name, "_")
		return strings.HasPrefix(c.name, prefix) &&
			strings.HasPrefix(failure(t, c, newStore), promise+" (")
	})
}

// without returns the contract's checks that are not in the list.
func without(list []check) []check {
	return slices.DeleteFunc(contract(), func(c check) bool {
		return slices.ContainsFunc(list, func(l check) bool { return l.name == c.name })
	})
}
