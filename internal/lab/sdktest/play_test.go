package sdktest

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// programs is how many programs share a store in each test. Each has a client of
// its own.
const programs = 3

// play runs programs against a platform, in virtual time, and judges them.
func play(t *testing.T, p platform, run func(*testing.T, *upstream)) {
	t.Helper()
	t.Parallel()
	playAlone(t, p, run)
}

// playAlone is play for an SDK with one client for a process, while no other test runs.
func playAlone(t *testing.T, p platform, run func(*testing.T, *upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, p)
		defer u.stop()
		begin := time.Now()
		run(t, u)
		u.judge(time.Since(begin))
	})
}

// clients makes one client for each program.
func clients[T any](make func() T) []T {
	made := []T{}
	for range programs {
		made = append(made, make())
	}
	return made
}

// calls makes n calls, numbered from first, by so many workers at a time. All must
// succeed.
func (u *upstream) calls(first, n, workers int, call func(worker, i int) error) {
	u.t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := call(w, first+i); err != nil {
					u.t.Errorf("call %d: %v", first+i, err)
				}
			}
		})
	}
	wg.Wait()
}

// requireUsed is for the stretch without refusals: it took hardly longer than the
// limits ask for, from the first to the last arrival of a budget.
func (u *upstream) requireUsed(name string, atLeast time.Duration) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.budget(name)
	took := b.last.Sub(b.first)
	used := atLeast.Seconds() / took.Seconds()
	u.t.Logf("%s: %d in %v, %.1f %% used", name, b.total, took.Round(time.Millisecond), 100*used)
	require.GreaterOrEqual(u.t, used, 0.9, name)
	require.Zero(u.t, u.refused)
}

// requireOnce is for what must be done once, neither lost nor doubled.
func (u *upstream) requireOnce(name string) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Equal(u.t, 1, u.effects[name], name)
}

// judge requires that the rules were kept and every form of refusal was met.
func (u *upstream) judge(took time.Duration) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.t.Logf("%d arrivals in %v of virtual time, %d refused: %v", u.arrivals, took.Round(time.Second), u.refused, u.times)
	require.Empty(u.t, u.over, "windows above a limit")
	require.Empty(u.t, u.early, "sent while closed")
	for _, r := range u.refusals {
		require.NotZero(u.t, u.times[r.name], "%s was not tried", r.name)
	}
}
