package throttle_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A restlessStore answers anything but that the caller may start, and calls whoever waits at once.
type restlessStore struct {
	throttle.Store
	rand *rand.Rand
	asks []time.Time
}

func (s *restlessStore) ask() { s.asks = append(s.asks, time.Now()) }

func (s *restlessStore) Book(context.Context, *throttle.Booking) (throttle.Grant, error) {
	s.ask()
	called := make(chan struct{})
	close(called)
	wait := []time.Duration{0, time.Nanosecond, 10 * time.Millisecond}[s.rand.IntN(3)]
	switch s.rand.IntN(3) {
	case 0: // a start that is too old
		return throttle.Grant{OK: true, Wait: wait, Age: time.Hour, Held: throttle.NotHeld, Handle: throttle.Handle{Start: 1}}, nil
	case 1: // a start that is lost before it comes
		return throttle.Grant{OK: true, Wait: 10 * time.Millisecond, Held: 0, Handle: throttle.Handle{Start: 1}}, nil
	}
	return throttle.Grant{Ready: called, Wait: wait, Held: 0}, nil
}

func (s *restlessStore) Cancel(*throttle.Booking, throttle.Grant) {}

func (s *restlessStore) Watch(_ *throttle.Booking, _ throttle.Grant, news chan<- struct{}) throttle.Watch {
	w := &restlessWatch{s, news}
	w.tell()
	return w
}

type restlessWatch struct {
	*restlessStore
	news chan<- struct{}
}

func (w *restlessWatch) Confirm(context.Context, time.Duration) (bool, error) {
	w.ask()
	w.tell()
	return w.rand.IntN(2) == 0, nil
}

func (*restlessWatch) Stop() {}

func (w *restlessWatch) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// TestP4_NoAnswerMakesACallerSpin: whatever a store answers, a caller asks at most 8 times
// in 8 ms, and obeys MaxWait and its context.
func TestP4_NoAnswerMakesACallerSpin(t *testing.T) {
	for seed := range soak.Most[uint64](2000, 100) {
		synctest.Test(t, func(t *testing.T) {
			store := &restlessStore{Store: memstore.New(), rand: rand.New(rand.NewPCG(seed, 5))}
			maxWait, deadline := time.Second, time.Hour
			if seed%2 == 0 {
				maxWait, deadline = 0, time.Second
			}
			limiter, err := throttle.NewLimiters(throttle.Config{
				Store: store, MaxWait: maxWait, Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(10)}},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			begin := time.Now()
			_, _ = limiter.Acquire(ctx, throttle.Demand{Policy: "api"}) // it may get a start
			require.LessOrEqual(t, time.Since(begin), 1200*time.Millisecond)
			for i := 16; i < len(store.asks); i++ {
				require.GreaterOrEqual(t, store.asks[i].Sub(store.asks[i-16]), 8*time.Millisecond, "seed %d", seed)
			}
		})
	}
}

// TestP4_AfterMaxWaitNoPlaceIsKept: a caller asks once more when its MaxWait is over, and takes
// no further place in line, whatever the store gives.
func TestP4_AfterMaxWaitNoPlaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &placeStore{Store: memstore.New()}
		limiter, err := throttle.NewLimiters(throttle.Config{
			Store: store, MaxWait: time.Second, Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(10)}},
		})
		require.NoError(t, err)
		_, err = limiter.Acquire(t.Context(), throttle.Demand{Policy: "api"})
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Equal(t, 2, store.asks)
		require.Equal(t, 1, store.cancelled)
	})
}

// A placeStore gives everybody a place in line with a wait of 0, and calls nobody.
type placeStore struct {
	throttle.Store
	asks, cancelled int
}

func (s *placeStore) Book(context.Context, *throttle.Booking) (throttle.Grant, error) {
	s.asks++
	return throttle.Grant{Ready: make(chan struct{})}, nil
}

func (s *placeStore) Cancel(*throttle.Booking, throttle.Grant) { s.cancelled++ }
