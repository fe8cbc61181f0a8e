package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// own makes a charge one of the node alone.
func own(c throttle.Charge) throttle.Charge {
	c.Node = true
	return c
}

// TestNode_KeepsItsOwn shares a limit between two nodes, and gives each another
// for itself. The latter never reaches Redis.
func TestNode_KeepsItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		a, tap := loaded(t, client, nil)
		b := redisstore.NewAt(client, nil, bubbleClock)
		mine := own(charge("mine", throttle.PerSecond(1)))
		require.Zero(t, book(t, a, mine))
		require.Zero(t, book(t, b, mine))
		require.Equal(t, span, book(t, a, mine))
		require.NoError(t, a.Pause(t.Context(), mine, time.Minute))
		require.Equal(t, time.Minute, book(t, a, mine))
		require.Equal(t, 2*span, book(t, b, mine)+span)
		st, err := a.Status(t.Context(), mine)
		require.NoError(t, err)
		require.Equal(t, time.Minute, st.Paused)
		require.Empty(t, tap.names())
	})
}

// TestP6_NodeAndFleet books in both or in none, at one start, with one call.
func TestP6_NodeAndFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), nil)
		mine, all := own(charge("mine", throttle.PerSecond(2))), charge("all", throttle.PerMinute(3))
		require.Zero(t, book(t, s, mine, all))
		require.Zero(t, book(t, s, all, mine))
		require.Equal(t, span, book(t, s, mine, all), "the node's limit decides")
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, mine, all), "the fleet's limit decides")
		require.Len(t, tap.names(), 4)

		k := booking(mine, all)
		k.MaxWait = 10 * time.Second
		g, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.False(t, g.OK)
		require.Equal(t, 1, g.Held)
		require.Equal(t, 2*span, book(t, s, mine)+span, "a refusal spends nothing")

		k.MaxWait = -1
		g, err = s.Book(t.Context(), k)
		require.NoError(t, err)
		require.NoError(t, s.Settle(t.Context(), k, g, []int{2, 3}))
		k.Charges[0].Cost, k.Charges[1].Cost = 2, 3
		s.Cancel(k, g)
		k.Charges[0].Cost, k.Charges[1].Cost = 1, 1
		again, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, g.Wait, again.Wait, "cancelling gives back in both")
	})
}

// TestP1_NodeAndFleetTogether lets many callers of two nodes book both, and
// counts the starts of each budget.
func TestP1_NodeAndFleetTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				a, _ := loaded(t, client, nil)
				nodes := []*redisstore.Store{a, redisstore.NewAt(client, nil, bubbleClock)}
				rng := rand.New(rand.NewPCG(seed, 6))
				mine, all := throttle.PerSecond(3), throttle.SlidingWindow(7, 2*time.Second)
				var logs [3]log // of each node, and of the fleet
				var callers sync.WaitGroup
				for range 120 {
					which, gone := rng.IntN(2), rng.IntN(4) == 0
					callers.Go(func() {
						k := booking(own(charge("mine", mine)), charge("all", all))
						g, err := nodes[which].Book(t.Context(), k)
						if err != nil || !g.OK {
							t.Errorf("refused: %v", err)
							return
						}
						if gone {
							nodes[which].Cancel(k, g)
							return
						}
						time.Sleep(g.Wait)
						logs[which].add(1)
						logs[2].add(1)
					})
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				}
				callers.Wait()
				require.Greater(t, len(logs[2].all), 60)
				logs[0].requireWithin(t, mine)
				logs[1].requireWithin(t, mine)
				logs[2].requireWithin(t, all)
			})
		})
	}
}
