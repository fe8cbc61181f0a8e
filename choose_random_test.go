package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// TestChoice_FullLoad uses all of three limits together, which change in the middle.
func TestChoice_FullLoad(t *testing.T) {
	for _, callers := range []int{20, 120} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newSite(t, throttle.Config{}, throttle.PerSecond(5), throttle.PerSecond(20), throttle.PerSecond(40))
				const half, all = 5 * time.Second, 10 * time.Second
				time.AfterFunc(half, func() {
					require.NoError(t, s.t.SetPolicies(hostTable(throttle.PerSecond(30), throttle.PerSecond(10), throttle.PerSecond(40))))
				})
				var load sync.WaitGroup
				for range callers {
					load.Go(func() {
						for time.Since(s.begin) < all {
							if err := send(t, c, get(t, home)); err != nil {
								t.Error(err)
							}
						}
					})
				}
				load.Wait()
				used := 0
				for i, host := range []string{"a", "b", "c"} {
					at := s.seen(host)
					require.LessOrEqual(t, most(at, time.Second), []int{30, 20, 40}[i], host)
					used += len(slices.DeleteFunc(at, func(at time.Duration) bool { return at >= all }))
				}
				require.GreaterOrEqual(t, float64(used), 0.98*5*(65+80), "P3: the limits together are not used")
				require.LessOrEqual(t, used, 5*(65+80)+40) // the window in which limits are raised may hold both
			})
		})
	}
}

// A host is one variant of a random run.
type host struct {
	limit   throttle.Limit
	n       int
	per     time.Duration
	closed  []span // by bans
	changed []time.Duration
}

// A span is a time in which something lasts.
type span struct{ from, to time.Duration }

// TestChoice_Random plays callers of several kinds on hosts of several limits, with bans, limits that change
// and callers that leave. By the definition: no window holds more than the limit, nothing starts while
// a host is closed, and nobody waits while a host has had room for longer than a horizon.
func TestChoice_Random(t *testing.T) {
	for seed := range uint64(soak.Seeds(40, 6)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playChoice(t, rand.New(rand.NewPCG(seed, 29))) })
		})
	}
}

func playChoice(t *testing.T, rng *rand.Rand) {
	const lasts = 8 * time.Second
	all := make([]*host, 2+rng.IntN(3))
	var limits []throttle.Limit
	for i := range all {
		h := &host{n: 1 + rng.IntN(20), per: []time.Duration{500 * ms, time.Second, 2 * time.Second}[rng.IntN(3)]}
		h.limit = throttle.SlidingWindow(h.n, h.per)
		all[i], limits = h, append(limits, h.limit)
	}
	s, _ := newSite(t, throttle.Config{}, limits...)
	weights := make([]int, len(all))
	for i := range weights {
		weights[i] = rng.IntN(3)
	}
	c := must(choice.New(s.t, hosts(len(all), weights...)...))
	var others sync.WaitGroup
	for range rng.IntN(4) { // bans: apart, so that none ends early
		h := rng.IntN(len(all))
		from := time.Duration(rng.Int64N(int64(lasts))).Truncate(ms)
		to := from + time.Duration(rng.Int64N(int64(5*time.Second))).Truncate(ms)
		all[h].closed = append(all[h].closed, span{from, to})
		others.Go(func() {
			time.Sleep(from)
			s.pause(t, string(rune('a'+h)), to-from)
		})
	}
	if rng.IntN(2) == 0 { // one host's limit is lowered, and raised again
		i := rng.IntN(len(all))
		h := all[i]
		from := time.Duration(rng.Int64N(int64(lasts))).Truncate(ms)
		h.changed = []time.Duration{from, from + 3*time.Second}
		lower := slices.Clone(limits)
		lower[i] = throttle.SlidingWindow((h.n+1)/2, h.per)
		others.Go(func() {
			time.Sleep(from)
			require.NoError(t, s.t.SetPolicies(hostTable(lower...)))
			time.Sleep(3 * time.Second)
			require.NoError(t, s.t.SetPolicies(hostTable(limits...)))
		})
	}
	var mu sync.Mutex
	var waits []span
	var load sync.WaitGroup
	for range 5 + rng.IntN(40) {
		begins, pause := time.Duration(rng.Int64N(int64(lasts))), 50*ms+time.Duration(rng.Int64N(int64(time.Second)))
		leaves, maxWait := rng.IntN(4) == 0, time.Duration(0)
		if rng.IntN(4) == 0 {
			maxWait = time.Duration(rng.Int64N(int64(2 * time.Second)))
		}
		load.Go(func() {
			time.Sleep(begins)
			for time.Since(s.begin) < lasts {
				ctx, cancel := throttle.WithMaxWait(t.Context(), maxWait), func() {}
				if leaves {
					ctx, cancel = context.WithTimeout(ctx, pause)
				}
				from := time.Since(s.begin)
				err := send(t, c, get(t, home).WithContext(ctx))
				cancel()
				if err != nil && !errors.Is(err, throttle.ErrLimited) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				mu.Lock()
				waits = append(waits, span{from, time.Since(s.begin)})
				mu.Unlock()
				time.Sleep(pause / 8)
			}
		})
	}
	load.Wait()
	others.Wait()
	horizon := time.Duration(0) // of the start that a caller may have elsewhere
	for _, h := range all {
		horizon = max(horizon, h.limit.Horizon())
	}
	for i, h := range all {
		name := string(rune('a' + i))
		h.judge(t, name, s.seen(name), waits, horizon)
		s.checkIdle(t, name)
	}
}

// judge compares the starts of a host, and the waits of all callers, with the definition.
func (h *host) judge(t *testing.T, name string, at []time.Duration, waits []span, horizon time.Duration) {
	slices.Sort(at)
	require.LessOrEqual(t, most(at, h.per), h.n, "P1: %s", name)
	for _, c := range h.closed {
		for _, x := range at {
			require.False(t, x > c.from && x < c.to, "P11: %s starts at %v, and is closed from %v to %v", name, x, c.from, c.to)
		}
	}
	for _, room := range h.room(at) {
		for _, w := range waits {
			idle := min(w.to, room.to) - max(w.from, room.from)
			require.LessOrEqual(t, idle, horizon, "%v: somebody waits from %v to %v, and %s has room from %v to %v; closed %v, starts %v", h.limit, w.from, w.to, name, room.from, room.to, h.closed, at[max(0, len(at)-8):])
		}
	}
}

// room returns when the host is idle: nothing starts, and the window has room. Starts of a full window keep
// a distance, and for as long as a ban lasted they go slowly after it: so room counts from a distance after
// the last start, and from a window after that and after a change.
func (h *host) room(at []time.Duration) (all []span) {
	for i := -1; i < len(at); i++ {
		r := span{0, 1 << 62}
		if i >= 0 {
			r.from = at[i] + h.per/time.Duration(h.n)
		}
		if i+1 < len(at) {
			r.to = at[i+1]
		}
		if k := i + 1 - h.n; k >= 0 {
			r.from = max(r.from, at[k]+h.per+us)
		}
		for _, c := range h.closed {
			switch end := c.to + (c.to - c.from) + h.per; {
			case r.from >= c.from && r.from < end:
				r.from = end
			case r.from < c.from && r.to > c.from:
				r.to = min(r.to, c.from)
			}
		}
		for _, c := range h.changed {
			switch end := c + 3*time.Second + h.per; {
			case r.from >= c && r.from < end:
				r.from = end
			case r.from < c && r.to > c:
				r.to = min(r.to, c)
			}
		}
		if r.from < r.to {
			all = append(all, r)
		}
	}
	return all
}

var _ http.RoundTripper = (*choice.Choice)(nil)
