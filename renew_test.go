package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// A renewal is what a permit is renewed for: one that a [throttle.Limiter] gave, and one
// that [throttle.Limiters] gave.
type renewal struct {
	store   *spyStore
	seen    *events
	acquire func(context.Context) (*throttle.Permit, error)
	budget  *throttle.Limiter
}

// renewals runs a test for permits of one policy and of several.
func renewals(t *testing.T, p throttle.Policy, test func(*testing.T, renewal)) {
	for _, several := range []bool{false, true} {
		t.Run(map[bool]string{false: "one", true: "several"}[several], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := renewal{store: newSpy(), seen: &events{}}
				l := must(throttle.NewLimiters(throttle.Config{Store: r.store, Observe: r.seen.observe, Policies: []throttle.Policy{p, {Name: "other", Limit: throttle.PerHour(100)}}}))
				r.budget = must(l.Limiter(p.Name))
				r.acquire = func(ctx context.Context) (*throttle.Permit, error) { return r.budget.Acquire(ctx, "", 1) }
				if several {
					r.acquire = func(ctx context.Context) (*throttle.Permit, error) {
						return l.Acquire(ctx, need("other", ""), need(p.Name, ""))
					}
				}
				test(t, r)
			})
		})
	}
}

// TestP2_RenewOfAFreshStart asks nobody.
func TestP2_RenewOfAFreshStart(t *testing.T) {
	renewals(t, onePerSecond, func(t *testing.T, r renewal) {
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * ms)
		require.NoError(t, p.Renew(t.Context()))
		time.Sleep(5 * ms) // it is confirmed
		require.NoError(t, p.Renew(t.Context()))
		require.Len(t, r.store.booked(), 1)
		require.Zero(t, r.store.cancelled())
		require.Equal(t, []throttle.EventKind{throttle.Started}, r.seen.kinds())
	})
}

// TestP2_RenewOfAStaleStart books another one instead: never two for one.
func TestP2_RenewOfAStaleStart(t *testing.T) {
	renewals(t, throttle.Policy{Name: "p", Limit: throttle.PerSecond(2)}, func(t *testing.T, r renewal) {
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(11 * ms)
		require.NoError(t, p.Renew(t.Context()))
		require.Equal(t, throttle.Hold{}, p.Held())
		require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Stale}, r.seen.kinds())
		renewed := time.Now()
		st, err := r.budget.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, 1, st.Used, "the first is given back")

		// The renewed start is where the window begins.
		require.NoError(t, acquired(r.acquire(t.Context())))
		require.NoError(t, acquired(r.acquire(t.Context())))
		require.Equal(t, spanOfOne, time.Since(renewed))
	})
}

// TestP2_RenewWaits behind a start that another has booked meanwhile, and the permit says
// so.
func TestP2_RenewWaits(t *testing.T) {
	renewals(t, onePerSecond, func(t *testing.T, r renewal) {
		begin := time.Now()
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		next := make(chan time.Duration)
		go func() {
			_, err := r.acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- time.Since(begin)
		}()
		time.Sleep(600 * ms) // the next has a start
		require.NoError(t, p.Renew(t.Context()))
		renewed := time.Since(begin)
		require.Equal(t, spanOfOne, <-next)
		require.Equal(t, 2*spanOfOne, renewed)
		require.Equal(t, throttle.Hold{Duration: 2*spanOfOne - 600*ms, Policy: "p"}, p.Held())
	})
}

// TestP11_RenewOfAClosedBudget waits until it is open, and is refused if it may not.
func TestP11_RenewOfAClosedBudget(t *testing.T) {
	for _, c := range []struct {
		limit   throttle.Limit
		maxWait time.Duration
	}{{throttle.PerSecond(5), 0}, {throttle.PerSecond(5), time.Second}, {throttle.Concurrency(1), 0}, {throttle.Concurrency(1), time.Second}} {
		renewals(t, throttle.Policy{Name: "p", Limit: c.limit}, func(t *testing.T, r renewal) {
			p, err := r.acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, r.budget.Pause(t.Context(), "", time.Minute))
			time.Sleep(10 * ms)
			closed := time.Now()
			err = p.Renew(throttle.WithMaxWait(t.Context(), c.maxWait))
			if c.maxWait == 0 {
				require.NoError(t, err)
				require.Equal(t, time.Minute-10*ms, time.Since(closed).Truncate(ms))
				require.Equal(t, "p", p.Held().Policy)
				require.True(t, p.Held().Paused)
				require.Equal(t, time.Since(closed), p.Held().Duration)
				p.Release()
			} else {
				var limited *throttle.LimitError
				require.ErrorAs(t, err, &limited)
				require.True(t, limited.Paused)
				require.Equal(t, throttle.Refused, r.seen.all[len(r.seen.all)-1].Kind)
				require.EqualError(t, p.Renew(t.Context()), "throttle: the permit was released, or could not be renewed before: acquire another")
				p.Release()
				require.NoError(t, p.Settle(t.Context(), 3))
			}
			require.NoError(t, r.budget.Resume(t.Context(), ""))
			_, err = r.budget.TryAcquire(t.Context(), "", 1)
			require.NoError(t, err, "nothing is held any more")
		})
	}
}

// TestP7_RenewThatIsCancelled gives back what it had.
func TestP7_RenewThatIsCancelled(t *testing.T) {
	renewals(t, throttle.Policy{Name: "p", Limit: throttle.PerHour(1), Jitter: -1}, func(t *testing.T, r renewal) {
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.budget.Pause(t.Context(), "", time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		time.Sleep(10 * ms)
		err = p.Renew(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, throttle.GaveUp, r.seen.all[len(r.seen.all)-1].Kind)
		require.NoError(t, r.budget.Resume(t.Context(), ""))
		require.NoError(t, acquired(r.budget.TryAcquire(t.Context(), "", 1)), "the start was given back")
	})
}

// TestP6_ReleaseDuringRenew releases what Renew gets.
func TestP6_ReleaseDuringRenew(t *testing.T) {
	renewals(t, throttle.Policy{Name: "p", Limit: throttle.Concurrency(1)}, func(t *testing.T, r renewal) {
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.budget.Pause(t.Context(), "", time.Minute))
		time.Sleep(10 * ms)
		time.AfterFunc(time.Second, p.Release)
		require.Error(t, p.Renew(t.Context()))
		require.Error(t, p.Renew(t.Context()))
		require.NoError(t, acquired(r.budget.TryAcquire(t.Context(), "", 1)))
	})
}

// TestRenewAfterSettle gives back what the work costs by now.
func TestRenewAfterSettle(t *testing.T) {
	renewals(t, throttle.Policy{Name: "p", Limit: throttle.PerHour(10)}, func(t *testing.T, r renewal) {
		p, err := r.acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.SettleBudget(t.Context(), "p", "", 4))
		time.Sleep(time.Second)
		require.NoError(t, p.Renew(t.Context()))
		st, err := r.budget.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, 4, st.Used)
	})
}

// TestRenewByACallerThatNeverWaits keeps not waiting.
func TestRenewByACallerThatNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newSpy(), onePerSecond)
		p, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		go func() { _, _ = l.Acquire(t.Context(), "", 1) }()
		time.Sleep(600 * ms)
		require.ErrorIs(t, p.Renew(t.Context()), throttle.ErrLimited)
		time.Sleep(time.Second)
	})
}
