package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// toldFleet returns programs that share a Redis, and a charge whose limit the upstream tells.
func toldFleet(c *redis.Client, programs int) (all []*redisstore.Store, api store.Charge) {
	for range programs {
		all = append(all, redisstore.NewAt(c, redisstore.Options{}, bubbleClock).Frugal())
	}
	return all, charge("api", store.Told())
}

// tells has a store hear what an answer says.
func tells(t *testing.T, s store.Store, c store.Charge, q store.Quota) {
	t.Helper()
	require.NoError(t, s.Reconcile(t.Context(), c, q))
}

// TestP1_ToldByOneKeptByAll: the answer to one program tells the limit, and from then on all programs together keep it: a
// program that was there before, and one that came later.
func TestP1_ToldByOneKeptByAll(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		forgets(t, c)
		all, api := toldFleet(c, 3)
		for _, s := range all {
			startNow(t, s, 20, api)
		}

		tells(t, all[0], api, store.Quota{Told: store.PerMinute(6)})
		newcomer := redisstore.NewAt(c, redisstore.Options{}, bubbleClock).Frugal()
		for range 2 {
			startNow(t, all[1], 1, api)
			startNow(t, newcomer, 1, api)
			startNow(t, all[0], 1, api)
		}
		for _, s := range append(all, newcomer) {
			require.Equal(t, time.Minute+time.Microsecond, refused(t, s, api).Wait)
			require.Equal(t, store.PerMinute(6), status(t, s, api).Told)
		}
	})
}

// TestP1_ToldCallsFew: a limit that is told with every answer costs a call to Redis now and then, and a limit that changes with
// every answer ten a second at the most.
func TestP1_ToldCallsFew(t *testing.T) {
	for name, tell := range map[string]func(i int) store.Limit{
		"the same": func(int) store.Limit { return store.PerMinute(6000) },
		"another":  func(i int) store.Limit { return store.PerMinute(6000 + i%7) },
	} {
		t.Run(name, func(t *testing.T) {
			onTap(t, nil, func(t *testing.T, c *redis.Client, s *redisstore.Store, tap *tap) {
				s.Frugal()
				forgets(t, c)
				api := charge("api", store.Told())
				tells(t, s, api, store.Quota{Told: tell(0)})
				startNow(t, s, 1, api)

				calls := func() (n int) {
					tap.mu.Lock()
					defer tap.mu.Unlock()
					for _, cmd := range tap.cmds {
						if isReconcile(cmd) {
							n++
						}
					}
					return n
				}
				before := calls()
				for i := range 2000 { // in a minute
					startNow(t, s, 1, api)
					tells(t, s, api, store.Quota{Told: tell(i)})
					time.Sleep(30 * time.Millisecond)
				}
				t.Logf("%d calls for 2000 answers", calls()-before)
				most := map[string]int{"the same": 3, "another": 601}[name]
				require.LessOrEqual(t, calls()-before, most)
			})
		})
	}
}

// TestP12_ToldAndLost: a Redis that lost its data has forgotten what was told, so nothing is held. The next answer that tells
// the limit closes nothing for longer than the limit: the starts that programs remember count in its window.
func TestP12_ToldAndLost(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		forgets(t, c)
		all, api := toldFleet(c, 2)
		limit := store.SlidingWindow(4, 10*time.Second)
		tells(t, all[0], api, store.Quota{Told: limit})
		for _, s := range all {
			startNow(t, s, 2, api)
		}

		time.Sleep(time.Second)
		forgets(t, c)
		for _, s := range all {
			startNow(t, s, 3, api)
			require.Zero(t, status(t, s, api).Told)
		}

		time.Sleep(40 * time.Second)
		tells(t, all[1], api, store.Quota{Told: limit})
		longest := time.Duration(0)
		for i := range 8 {
			longest = max(longest, book(t, all[i%2], api))
		}
		require.LessOrEqual(t, longest, 22*time.Second, fmt.Sprint(longest))
	})
}
