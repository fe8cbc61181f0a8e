package memstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A start is when a caller of a long window started, and what it cost.
type start struct {
	at   time.Duration
	cost int
}

// starts lets callers of a limit per minute work until a time: each asks again when its last request has started.
// Every sixteenth asks for big, and the others for 1.
func starts(t *testing.T, n, callers, big int, until time.Duration) (all []start) {
	l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerMinute(n), Jitter: -1})
	require.NoError(t, err)

	var mu sync.Mutex
	var load sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		cost := 1
		if i%16 == 0 {
			cost = big
		}
		load.Go(func() {
			for time.Since(begin) < until {
				permit, err := l.Acquire(t.Context(), "", cost)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, start{time.Since(begin), cost})
				mu.Unlock()
				permit.Release()
				time.Sleep(time.Millisecond)
			}
		})
	}
	load.Wait()
	return all
}

// TestP3_LongWindows keeps limits per minute in use for half an hour, with equal and with mixed costs: nearly all is
// used.
func TestP3_LongWindows(t *testing.T) {
	soak.WithoutRace(t)
	for _, n := range []int{100, 600} {
		for _, big := range []int{1, n / 12} {
			synctest.Test(t, func(t *testing.T) {
				used := 0
				for _, s := range starts(t, n, 64, big, 30*time.Minute) {
					if s.at < 30*time.Minute {
						used += s.cost
					}
				}
				require.GreaterOrEqual(t, float64(used), 0.97*float64(30*n), "%d a minute, costs of 1 and %d", n, big)
			})
		}
	}
}

// TestP3_LongWindowsOfABatch starts a queue of several windows at once: it takes no longer than a perfect queue, and the
// 250 ms of each window's starts.
func TestP3_LongWindowsOfABatch(t *testing.T) {
	soak.WithoutRace(t)
	for _, windows := range []int{6, 12, 24} {
		for _, n := range []int{100, 300, 600} {
			synctest.Test(t, func(t *testing.T) {
				l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerMinute(n), Jitter: -1})
				require.NoError(t, err)

				var load sync.WaitGroup
				begin := time.Now()
				for range windows * n {
					load.Go(func() {
						if _, err := l.Acquire(t.Context(), "", 1); err != nil {
							t.Error(err)
						}
					})
				}
				load.Wait()
				require.LessOrEqual(t, time.Since(begin), time.Duration(windows-1)*(time.Minute+300*time.Millisecond)+time.Second)
			})
		}
	}
}
