package throttle_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// exactly is a policy without jitter that every request matches.
func exactly(l throttle.Limit) throttle.Policy {
	return throttle.Policy{Name: "p", Limit: l, Jitter: -1}
}

// after changes the policies at a moment of the bubble's time.
func after(t *testing.T, d time.Duration, tr *throttle.Transport, policies ...throttle.Policy) {
	time.AfterFunc(d, func() {
		if err := tr.SetPolicies(policies); err != nil {
			t.Error(err)
		}
	})
}

func TestSetPoliciesReachesWaiters(t *testing.T) {
	const change = 10 * time.Second
	for _, c := range []struct {
		name  string
		first throttle.Limit
		next  []throttle.Policy
		want  time.Duration // the second start; the first is at 0
		books int
	}{
		{"raised", throttle.PerMinute(1), []throttle.Policy{exactly(throttle.PerSecond(1))}, change, 3},
		{"lowered", throttle.PerMinute(1), []throttle.Policy{exactly(throttle.PerHour(1))}, time.Hour + us, 4},
		{"another kind", throttle.PerMinute(1), []throttle.Policy{exactly(throttle.FixedWindow(1, 30*time.Second))}, 30 * time.Second, 4},
		{"unchanged", throttle.PerMinute(1), []throttle.Policy{exactly(throttle.PerMinute(1))}, time.Minute + us, 3},
		{"spelled differently", throttle.PerMinute(1), []throttle.Policy{exactly(throttle.SlidingWindow(1, 60*time.Second))}, time.Minute + us, 3},
		{"removed", throttle.PerMinute(1), nil, change, 2},
		{"matches no more", throttle.PerMinute(1), []throttle.Policy{
			{Name: "p", Match: "example.org/", Limit: throttle.PerMinute(1), Jitter: -1},
		}, change, 2},
		{"shadow from now on", throttle.PerMinute(1), []throttle.Policy{
			{Name: "p", Limit: throttle.PerMinute(1), Jitter: -1, Shadow: true},
		}, change, 3},
		{"renamed: a new budget", throttle.PerMinute(1), []throttle.Policy{
			{Name: "q", Limit: throttle.PerMinute(1), Jitter: -1},
		}, change, 3},
		{"another one beside it", throttle.PerMinute(1), []throttle.Policy{
			exactly(throttle.PerMinute(1)), {Name: "q", Limit: throttle.PerHour(1)},
		}, time.Minute + us, 4},
		{"another one that it does not match", throttle.PerMinute(1), []throttle.Policy{
			{Name: "q", Match: "example.org/", Limit: throttle.PerHour(1)}, exactly(throttle.PerMinute(1)),
		}, time.Minute + us, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), newStarts()
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{exactly(c.first)}}))
				after(t, change, tr, c.next...)
				waiting := func(d time.Duration) (n int) {
					time.Sleep(d)
					st, err := newLimiter(t, store, exactly(c.first)).Status(t.Context(), "")
					require.NoError(t, err)
					return st.Waiting
				}
				var before, then int
				var look sync.WaitGroup
				look.Go(func() { before, then = waiting(change-ms), waiting(2*ms) })
				line(t, tr, 2, home)
				look.Wait()
				require.Equal(t, []time.Duration{0, c.want}, s.seen())
				require.Len(t, store.booked(), c.books)
				require.Equal(t, 1, before)
				require.Equal(t, c.want > change, then == 1, "a place that is not used is given back")
				require.Zero(t, waiting(2*ms))
			})
		})
	}
}

func TestSetPoliciesRefusesAtOnceWhatCannotFitAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, exactly(throttle.PerMinute(1)))
		require.NoError(t, send(t, tr, get(t, home)))
		after(t, 10*time.Second, tr, exactly(throttle.PerHour(1)))
		r := get(t, home)
		err := send(t, tr, r.WithContext(throttle.WithMaxWait(r.Context(), 2*time.Minute)))
		require.EqualError(t, err, `throttle: policy "p" (1/h): would wait 59m50s, but MaxWait is 1m50s`)
		require.Equal(t, 10*time.Second, time.Since(s.begin))
	})
}

func TestSetPoliciesKeepsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, exactly(throttle.PerMinute(1)))
		require.NoError(t, send(t, tr, get(t, home)))
		time.Sleep(30 * time.Second)
		require.NoError(t, tr.SetPolicies(nil))
		require.NoError(t, send(t, tr, get(t, home)), "no limit in between")
		require.NoError(t, tr.SetPolicies([]throttle.Policy{exactly(throttle.SlidingWindow(1, 2*time.Minute))}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []time.Duration{0, 30 * time.Second, 2*time.Minute + us}, s.seen(), "the first start still counts")
	})
}

func TestSetPoliciesWithAMistakeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newSpy(), newStarts()
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{exactly(throttle.PerMinute(1))}}))
		answered := make(chan error, 1)
		time.AfterFunc(time.Second, func() {
			answered <- tr.SetPolicies([]throttle.Policy{exactly(throttle.PerHour(9)), {Name: "bad"}})
		})
		line(t, tr, 3, home)
		var mistake *throttle.ConfigError
		require.ErrorAs(t, <-answered, &mistake)
		require.Equal(t, "bad", mistake.Policy)
		require.Equal(t, []time.Duration{0, time.Minute + us, 2*time.Minute + 2*us}, s.seen())
		require.Len(t, store.booked(), 1+2*2, "a place in line and then a start for each that waits")
	})
}

// TestP1_LoweredUnderLoad lowers a limit while hundreds wait: from then on no
// window holds more than the new limit, what started before included, as far as
// that allows.
func TestP1_LoweredUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const change = 2500 * ms
		s := newStarts()
		tr := newTransport(t, s, exactly(throttle.PerSecond(40)))
		after(t, change, tr, exactly(throttle.PerSecond(20)))
		line(t, tr, 400, home)

		all := s.seen()
		require.Len(t, all, 400)
		require.Equal(t, 40, most(all, time.Second), "never above the first limit")
		slices.Sort(all)
		next, _ := slices.BinarySearch(all, change)
		require.Less(t, next, 400, "some were still waiting")
		for i, at := range all[next:] {
			since, _ := slices.BinarySearch(all, at-time.Second)
			require.LessOrEqual(t, next+i-since+1, 20, "starts in the second that ends at %v", at)
		}
	})
}

// TestP1_ChangedAgainAndAgain switches between two limits under load, from
// another goroutine: no window holds more than the larger one.
func TestP1_ChangedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tables := [][]throttle.Policy{
			{exactly(throttle.PerSecond(40))},
			{exactly(throttle.PerSecond(20)), {Name: "other", Limit: throttle.PerSecond(1000)}},
		}
		tr := newTransport(t, s, tables[0]...)
		var load, changes sync.WaitGroup
		done := make(chan struct{})
		changes.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(70 * ms):
				}
				if err := tr.SetPolicies(tables[i%2]); err != nil {
					t.Error(err)
				}
			}
		})
		for range 50 {
			r := get(t, home)
			load.Go(func() {
				for range 5 {
					if err := send(t, tr, r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		load.Wait()
		close(done)
		changes.Wait()
		require.Len(t, s.seen(), 250)
		require.LessOrEqual(t, most(s.seen(), time.Second), 40)
	})
}

func TestSetPoliciesTwiceDuringOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, exactly(throttle.PerMinute(1)))
		after(t, 10*time.Second, tr, exactly(throttle.PerHour(1)))
		after(t, 20*time.Second, tr, exactly(throttle.SlidingWindow(1, 25*time.Second)))
		line(t, tr, 2, home)
		require.Equal(t, []time.Duration{0, 25*time.Second + us}, s.seen())
	})
}

func TestSetPoliciesThatCannotPriceAWaitingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{exactly(throttle.PerMinute(3))}}))
		line(t, tr, 3, home)
		next := exactly(throttle.PerMinute(3))
		next.Cost = cost
		after(t, time.Second, tr, next)
		err := send(t, tr, get(t, home+"?cost=4"))
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, throttle.Never, limited.RetryAfter)
		require.Equal(t, throttle.Status{Limit: throttle.PerMinute(3), Used: 3, Wait: time.Minute - time.Second + us},
			status(t, store, tr, get(t, home+"?cost=1")), "its place is given back")
	})
}
