package throttle_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP7_AThousandLeaversLeaveNothingTaken: the next caller waits for no longer than if
// they had never come.
func TestP7_AThousandLeaversLeaveNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.LeakyBucket(5, time.Second)))
		ctx, cancel := context.WithCancel(t.Context())
		q := queued(l, 1000, ctx)
		time.Sleep(10050 * ms)
		cancel()
		q.all.Wait()
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		require.Zero(t, st.Waiting)
		require.LessOrEqual(t, took(t, l, t.Context()), 200*ms)
	})
}

// TestP7_LeavingTheLineMovesItUp by one place.
func TestP7_LeavingTheLineMovesItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.PerMinute(1)))
		queued(l, 1, t.Context()).all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left, stay := queued(l, 2, ctx), queued(l, 3, t.Context())
		time.Sleep(10 * time.Second)
		cancel()
		left.all.Wait()
		for _, err := range left.err {
			require.ErrorIs(t, err, context.Canceled)
			require.EqualError(t, err, `throttle: the caller gave up after waiting 10s for policy "p": context canceled`)
		}
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, throttle.Status{Limit: throttle.PerMinute(1), Used: 1, Waiting: 3, Wait: 3*time.Minute + 50*time.Second + 4*us}, st)
		stay.all.Wait()
		require.Equal(t, []time.Duration{time.Minute + us, 2*time.Minute + 2*us, 3*time.Minute + 3*us}, stay.at)
	})
}

// TestP7_ARefundMovesTheLineUp: work that cost less than was booked makes room for the
// waiters at once.
func TestP7_ARefundMovesTheLineUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.PerMinute(100)))
		p, err := l.Acquire(t.Context(), "", 100)
		require.NoError(t, err)
		q := queued(l, 100, t.Context())
		time.Sleep(5 * time.Second)
		require.NoError(t, p.Settle(t.Context(), 40))
		synctest.Wait()
		time.Sleep(250 * ms) // the pace of a minute
		synctest.Wait()
		q.mu.Lock()
		soFar := slices.Clone(q.at)
		q.mu.Unlock()
		for i, at := range soFar {
			if i < 60 {
				require.NotZero(t, at, i)
				require.GreaterOrEqual(t, at, 5*time.Second, i)
			} else {
				require.Zero(t, at, i)
			}
		}
		q.all.Wait()
		require.Less(t, q.at[99], 61*time.Second)
	})
}

// TestMaxWaitInLine: ten wait, so the next one starts in eleven seconds. Only callers
// that cannot wait so long are refused, at once.
func TestMaxWaitInLine(t *testing.T) {
	const wait = 11*time.Second + 11*us
	for _, c := range []struct {
		name     string
		maxWait  time.Duration
		deadline time.Duration
		want     string
	}{
		{"too short", 5 * time.Second, 0, `would wait 11s, but MaxWait is 5s`},
		{"a little too short", wait - 100*ms, 0, `would wait 11s, but MaxWait is 10.9s`},
		{"long enough", wait, 0, ""},
		{"not at all", -1, 0, `would wait 11s, but may not wait at all`},
		{"as long as it takes", 0, 0, ""},
		{"the deadline is too early", 0, 5 * time.Second, `would wait 11s, but the deadline is in 5s`},
		{"the deadline is late enough", 0, wait + ms, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(1)))
				line := queued(l, 11, t.Context())
				ctx := throttle.WithMaxWait(t.Context(), c.maxWait)
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				begin := time.Now()
				err := acquired(l.Acquire(ctx, "", 1))
				if c.want == "" {
					require.NoError(t, err)
					require.Equal(t, wait, time.Since(begin))
					return
				}
				require.EqualError(t, err, `throttle: policy "p" (1/s): `+c.want)
				var limited *throttle.LimitError
				require.ErrorAs(t, err, &limited)
				require.Equal(t, wait, limited.RetryAfter)
				require.Zero(t, time.Since(begin), "at once")
				line.all.Wait()
				require.Equal(t, 10*(time.Second+us), line.at[10], "and it delayed nobody")
			})
		})
	}
}

// TestMaxWaitOfALineThatSlips: more urgent callers go first, so one that could have
// started in time cannot. It is told when that is certain, and nobody waits behind it.
func TestMaxWaitOfALineThatSlips(t *testing.T) {
	for _, c := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want string
		at   time.Duration
	}{
		{"MaxWait", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return throttle.WithMaxWait(ctx, 3*time.Second), func() {}
		}, `would wait 1s, but MaxWait is over`, 3 * time.Second},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3500*ms)
		}, `would wait 750ms, but the deadline is in 250ms`, 3250*ms + 4*us},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(1)))
				front := queued(l, 2, t.Context())
				ctx, cancel := c.ctx(throttle.WithPriority(t.Context(), throttle.Low))
				defer cancel()
				q := queued(l, 1, ctx) // at 2 s
				high := queued(l, 2, throttle.WithPriority(t.Context(), throttle.High))
				q.all.Wait()
				require.EqualError(t, q.err[0], `throttle: policy "p" (1/s): `+c.want)
				require.Equal(t, c.at, q.at[0])
				high.all.Wait()
				front.all.Wait()
				st, err := l.Status(t.Context(), "")
				require.NoError(t, err)
				require.Zero(t, st.Waiting)
			})
		})
	}
}

// TestP2_ALateWaiterTakesAnotherStart: the program was stopped while the
// caller stood in line. Its start is not used, and nobody believes that the store is slow.
func TestP2_ALateWaiterTakesAnotherStart(t *testing.T) {
	for _, late := range []time.Duration{5*ms + us, 10*ms + us, time.Hour} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), newStarts()
				observe := func(_ context.Context, e throttle.Event) {
					if e.Kind == throttle.Waiting && len(store.booked()) == 2 {
						time.Sleep(e.Duration + late)
					}
				}
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Observe: observe, Policies: []throttle.Policy{onePerSecond}}))
				line(t, tr, 2, home)
				line(t, tr, 1, home)
				second := spanOfOne + late
				require.Equal(t, []time.Duration{0, second, second + spanOfOne}, s.seen())
				for _, b := range store.booked() {
					require.Zero(t, b.Spread)
				}
			})
		})
	}
}

// TestP15_NothingIsLeftOfALine when all have left it: no goroutine, and no timer, which
// would keep the store.
func TestP15_NothingIsLeftOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		gone := weak.Make(store)
		func() {
			l := newLimiter(t, store, exactly(throttle.PerHour(1)))
			before := inBubble()
			ctx, cancel := context.WithCancel(t.Context())
			q := queued(l, 100, ctx)
			synctest.Wait()
			require.GreaterOrEqual(t, inBubble(), 100)
			cancel()
			q.all.Wait()
			synctest.Wait()
			require.LessOrEqual(t, inBubble(), before)
			st, err := l.Status(t.Context(), "")
			require.NoError(t, err)
			require.Zero(t, st.Waiting)
		}()
		store = nil
		time.Sleep(time.Second) // timers that were stopped are cleared away by others
		for range 3 {
			runtime.GC()
		}
		require.Nil(t, gone.Value())
	})
}

// inBubble returns how many goroutines there are in the bubbles of the program: goroutines of the
// runtime, and what earlier tests leave for a moment, come and go as they like.
func inBubble() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ", synctest bubble ")
}
