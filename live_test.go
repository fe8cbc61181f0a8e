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
