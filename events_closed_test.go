package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// only leaves out the events of other kinds.
func (e *events) only(kinds ...throttle.EventKind) (all []throttle.Event) {
	for _, ev := range e.told() {
		for _, k := range kinds {
			if ev.Kind == k {
				all = append(all, ev)
			}
		}
	}
	return all
}

// TestEventsOfABudgetThatIsClosedElsewhere: whatever number of callers meets it, and
// whether they wait or not, it is told once, with its length and the operator's note,
// and once that it is open.
func TestEventsOfABudgetThatIsClosedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		note := throttle.PauseNote{By: "anna", Reason: "the shop moves"}
		store := noted{memstore.New(), note}
		tr, seen, about := watched(t, throttle.Config{Store: store, Base: answer(200, "")})
		operator := must(must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{onePerSecond}})).Limiter("p"))
		require.NoError(t, operator.Pause(t.Context(), "", time.Minute))
		time.Sleep(10 * time.Second)
		for range 2 {
			r := get(t, home)
			require.ErrorIs(t, send(t, tr, r.WithContext(throttle.WithMaxWait(r.Context(), -1))), throttle.ErrLimited)
		}
		closed := event(about, throttle.Closed, 50*time.Second, nil)
		closed.Paused, closed.Note = true, note
		require.Equal(t, []throttle.Event{closed}, seen.only(throttle.Closed))
		for _, e := range seen.only(throttle.Refused) {
			require.Equal(t, note, e.Note)
		}
		begin := time.Now()
		line(t, tr, 3, home)
		require.Greater(t, time.Since(begin), 50*time.Second)
		require.Equal(t, []throttle.Event{closed, event(about, throttle.Opened, 50*time.Second, nil)}, seen.only(throttle.Closed, throttle.Opened))

		// The next time is told again, and Resume, too.
		require.NoError(t, operator.Pause(t.Context(), "", time.Minute))
		time.AfterFunc(7*time.Second, func() { _ = operator.Resume(context.Background(), "") })
		line(t, tr, 2, home)
		all := seen.only(throttle.Closed, throttle.Opened)
		require.Len(t, all, 4)
		require.Equal(t, 7*time.Second, all[3].Duration.Truncate(time.Second))
	})
}

// TestEventsOfABudgetThatIsClosedHere: an answer of its own is no news from elsewhere. A
// penalty that is repeated lasts for longer than its answer says: that is told.
func TestEventsOfABudgetThatIsClosedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, LongWait: -1, Policies: []throttle.Policy{exact("p", throttle.PerSecond(5))}}))
		for range 2 {
			p := must(l.Acquire(t.Context(), need("p", "")))
			require.NoError(t, p.Penalize(t.Context(), 10*time.Second))
		}
		must(l.Acquire(t.Context(), need("p", "")))
		kinds := []throttle.EventKind{}
		for _, e := range seen.only(throttle.Penalized, throttle.Closed, throttle.Opened) {
			kinds = append(kinds, e.Kind)
		}
		require.Equal(t, []throttle.EventKind{throttle.Penalized, throttle.Opened, throttle.Penalized, throttle.Closed, throttle.Opened}, kinds)
		require.Empty(t, seen.only(throttle.StillWaiting))

		// Callers that come after the end that the answer told hear of the true one.
		p := must(l.Acquire(t.Context(), need("p", "")))
		require.NoError(t, p.Penalize(t.Context(), 10*time.Second))
		time.Sleep(11 * time.Second)
		require.ErrorIs(t, acquired(l.TryAcquire(t.Context(), need("p", ""))), throttle.ErrLimited)
		require.Len(t, seen.only(throttle.Closed), 2)
		require.Greater(t, seen.only(throttle.Closed)[1].Duration, time.Second)
	})
}

// TestEventsOfALongWait: in line and before a booked start, after LongWait and after
// twice as long.
func TestEventsOfALongWait(t *testing.T) {
	for _, limit := range []throttle.Limit{throttle.PerMinute(1), throttle.Concurrency(1)} {
		synctest.Test(t, func(t *testing.T) {
			seen := &events{}
			begin := time.Now()
			l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, LongWait: 7 * time.Second, Policies: []throttle.Policy{exact("p", limit)}}))
			first := must(l.Acquire(t.Context(), need("p", "")))
			time.AfterFunc(time.Minute, first.Release)
			done := make(chan struct{})
			for range 2 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
					defer cancel()
					if p, err := l.Acquire(throttle.WithMaxWait(ctx, 65*time.Second), need("p", "")); err == nil {
						p.Release()
					}
					done <- struct{}{}
				}()
			}
			for range 2 {
				<-done
			}
			require.LessOrEqual(t, time.Since(begin), 70*time.Second)
			still := seen.only(throttle.StillWaiting)
			require.NotEmpty(t, still)
			var at []time.Duration
			for _, e := range still {
				require.Equal(t, "p", e.Policy)
				at = append(at, e.Duration)
				if limit.Kind() == throttle.KindSlidingWindow {
					require.Equal(t, time.Minute+us, e.Duration+e.Left, "what is left is known")
				} else {
					require.Zero(t, e.Left)
					require.Equal(t, 2, e.Callers)
				}
			}
			require.Subset(t, []time.Duration{7 * time.Second, 14 * time.Second, 28 * time.Second, 56 * time.Second}, at)
			require.Contains(t, at, 56*time.Second)
			require.NoError(t, acquired(l.Acquire(throttle.WithMaxWait(t.Context(), time.Hour), need("p", ""))))
		})
	}
}

// TestEventsOfManyClosedBudgets: what is known of them is bounded.
func TestEventsOfManyClosedBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, MaxWait: -1, Policies: []throttle.Policy{exact("p", throttle.PerSecond(5))}}))
		one := must(l.Limiter("p"))
		for i := range 1100 {
			key := fmt.Sprint(i)
			require.NoError(t, one.Pause(t.Context(), key, time.Minute))
			require.ErrorIs(t, acquired(one.Acquire(t.Context(), key, 1)), throttle.ErrLimited)
		}
		require.Len(t, seen.only(throttle.Closed), 1024)
		time.Sleep(2 * time.Minute)
		require.NoError(t, one.Pause(t.Context(), "next", time.Minute))
		require.ErrorIs(t, acquired(one.Acquire(t.Context(), "next", 1)), throttle.ErrLimited)
		require.Len(t, seen.only(throttle.Closed), 1025, "those that are over make room")
	})
}
