package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A silentStore answers no call until it speaks.
type silentStore struct {
	*absentStore
	speaks chan struct{} // closed: it does
	asked  int           // how often, meanwhile
}

func (s *silentStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	s.asked++
	select {
	case <-s.speaks:
		return s.absentStore.Book(ctx, b)
	case <-ctx.Done():
		return store.Grant{}, context.Cause(ctx)
	}
}

var (
	counted = throttle.Policy{Name: "counted", Match: "example.com/", Limit: throttle.PerHour(1), Shadow: true}
	slots   = throttle.Policy{Name: "slots", Match: "example.com/", Limit: throttle.Concurrency(1), Shadow: true}
)

// usedOf returns how much of a policy's budget a store has counted.
func usedOf(t *testing.T, store throttle.Store, p throttle.Policy) int {
	t.Helper()
	p.Match = ""
	l := must(throttle.NewLimiter(store, p))
	return must(l.Status(t.Context(), "")).Used
}

// TestP12_ShadowsDoNotWait: requests and work whose policies are all in shadow mode start at once while
// the store is away, and are counted again afterwards.
func TestP12_ShadowsDoNotWait(t *testing.T) {
	ways := map[string]func(*testing.T, throttle.Config) func() error{
		"transport": func(t *testing.T, c throttle.Config) func() error {
			tr := must(throttle.New(c))
			return func() error { return send(t, tr, get(t, home)) }
		},
		"limiter": func(t *testing.T, c throttle.Config) func() error {
			l := must(must(throttle.New(c)).Limiter("counted"))
			return func() error {
				p, err := l.Acquire(t.Context(), "", 1)
				if err == nil {
					err = errors.Join(p.Renew(t.Context()), p.Tell(t.Context(), throttle.Answer{}.WithCost(1)))
					p.Release()
				}
				return err
			}
		},
		"limiters": func(t *testing.T, c throttle.Config) func() error {
			c.Base = nil
			l := must(throttle.NewLimiters(c))
			return func() error {
				p, err := l.Acquire(t.Context(), throttle.Demand{Policy: "counted"}, throttle.Demand{Policy: "slots"})
				if err == nil {
					err = p.Renew(t.Context())
					p.Release()
				}
				return err
			}
		},
	}
	for name, way := range ways {
		for _, maxWait := range []time.Duration{0, -1, time.Minute} {
			t.Run(name+" "+maxWait.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := absent([2]time.Duration{time.Second, time.Minute})
					var failures atomic.Int32
					run := way(t, throttle.Config{
						Store: store, MaxWait: maxWait, Base: answer(429, "", "Retry-After", "5"), Policies: []throttle.Policy{counted, slots},
						Observe: func(_ context.Context, e throttle.Event) {
							if e.Kind == throttle.EventStoreFailed {
								failures.Add(1)
							}
						},
					})
					for i := range 3 {
						require.NoError(t, run())
						require.Equal(t, i+1, usedOf(t, store, counted))
					}
					time.Sleep(10 * time.Second)
					begin := time.Now()
					for range 100 {
						require.NoError(t, run())
					}
					require.Zero(t, time.Since(begin))
					require.Equal(t, 3, usedOf(t, store, counted))
					require.EqualValues(t, 1, failures.Load(), "one caller asked")
					time.Sleep(time.Minute)
					require.NoError(t, run())
					require.Equal(t, 4, usedOf(t, store, counted))
					require.Zero(t, usedOf(t, store, slots), "no slot is left taken")
				})
			})
		}
	}
}

// TestP12_ShadowsHardlyWaitForSilence: while the store says nothing at all, one caller in a second and a
// half waits for half a second, and no other one.
func TestP12_ShadowsHardlyWaitForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{absent(), make(chan struct{}), 0}
		base := newStarts()
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: base, Policies: everywhere(counted)}))
		var slow, all int
		for begin := time.Now(); time.Since(begin) < 30*time.Second; all++ {
			sent := time.Now()
			require.NoError(t, send(t, tr, get(t, home)))
			if d := time.Since(sent); d > 0 {
				require.Equal(t, 500*time.Millisecond, d)
				slow++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, slow, store.asked)
		require.LessOrEqual(t, slow, 20)
		require.Greater(t, all, 1900)
		close(store.speaks)
		time.Sleep(time.Second)
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, 1, usedOf(t, store.absentStore, counted))
	})
}

// TestP12_AShadowBesideALimitWaits: a request that a limit may hold waits for the store, and a context
// that has ended ends a request that is only counted, too.
func TestP12_AShadowBesideALimitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := absent([2]time.Duration{0, time.Minute})
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: answer(200, ""), Policies: everywhere(counted, onePerSecond)}))
		begin := time.Now()
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, time.Minute, time.Since(begin))

		silent := &silentStore{absent(), make(chan struct{}), 0}
		tr = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: silent, Base: answer(200, ""), Policies: everywhere(counted)}))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, home, nil)
		require.NoError(t, err)
		begin = time.Now()
		require.ErrorIs(t, send(t, tr, r), context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))
	})
}
