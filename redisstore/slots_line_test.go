package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP5_InFlightLongLines has many more waiters than a node states. All are
// served in the order in which they came, some at a time, across the fleet.
func TestP5_InFlightLongLines(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		five := charge("five", throttle.Concurrency(5))
		var running []seat
		for range 5 {
			k, g := board(t, a, five)
			running = append(running, seat{a, k, g})
		}
		var line []seat
		for i := range 90 { // thirty of one node, thirty of the other, thirty mixed
			s := seat{node: b}
			if i < 30 || i >= 60 && i%2 == 0 {
				s.node = a
			}
			s.k, s.g = lineUp(t, s.node, five)
			line = append(line, s)
			time.Sleep(time.Millisecond)
		}
		for len(line) > 0 {
			for _, s := range running[:3] {
				s.node.Release(s.k, s.g)
			}
			running = running[3:]
			time.Sleep(soon)
			for i, s := range line {
				require.Equal(t, i < 3, woken(s.g, 0), "%d of %d", i, len(line))
			}
			for _, s := range line[:3] {
				s.g = again(t, s.node, s.k, s.g)
				running = append(running, s)
			}
			line = line[3:]
		}
	})
}

// TestP5_InFlightWholeLineAtOnce lets a large request end, so that many who wait
// have room in one moment.
func TestP5_InFlightWholeLineAtOnce(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		forty := charge("forty", throttle.Concurrency(40))
		all := forty
		all.Cost = 40
		k, g := board(t, b, all)
		var line []seat
		for range 60 {
			s := seat{node: a}
			s.k, s.g = lineUp(t, a, forty)
			line = append(line, s)
		}
		time.Sleep(10 * time.Second) // long enough to state the line again
		b.Release(k, g)
		var order []int
		for len(order) < 40 {
			time.Sleep(soon)
			refused(t, b, forty) // who comes later does not pass them
			for i, s := range line {
				if !slices.Contains(order, i) && woken(s.g, 0) {
					again(t, a, s.k, s.g)
					order = append(order, i)
				}
			}
		}
		for i, who := range order {
			require.Equal(t, i, who)
		}
	})
}

// TestP5_InFlightReserveBehindMany has many of low priority in line. One that
// matters more finds the room that they must leave free.
func TestP5_InFlightReserveBehindMany(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		high := charge("three", throttle.Concurrency(3))
		low := high
		low.Reserve = 1
		board(t, a, low)
		board(t, a, low)
		for range 30 {
			lineUp(t, a, low)
		}
		k, g := board(t, a, high)
		waiting, place := lineUp(t, a, high)
		_, other := lineUp(t, b, high)
		a.Release(k, g)
		require.True(t, woken(place, soon))
		g = again(t, a, waiting, place)
		a.Release(waiting, g)
		require.True(t, woken(other, soon))
	})
}

// TestP5_InFlightLimitBecomesSmaller leaves one in line that asks for more than
// there will ever be. It stops nobody.
func TestP5_InFlightLimitBecomesSmaller(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		large, small := charge("budget", throttle.Concurrency(5)), charge("budget", throttle.Concurrency(2))
		large.Cost = 4
		k, g := board(t, b, small)
		board(t, b, small)
		lineUp(t, a, large)
		waiting, place := lineUp(t, b, small)
		b.Release(k, g)
		require.True(t, woken(place, soon))
		again(t, b, waiting, place)
	})
}

// TestP10_InFlightMemory has large fleets that hold and wait. The key stays small
// and expires.
func TestP10_InFlightMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for nodes, waiters := range map[int]int{1: 300, 40: 30, 100: 5, 120: 0} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				require.NoError(t, client.FlushDB(t.Context()).Err())
				big := charge("big", throttle.Concurrency(nodes))
				var fleet []*redisstore.Store
				for range nodes {
					s := redisstore.NewAt(client, nil, bubbleClock)
					s.Disconnect()
					board(t, s, big)
					fleet = append(fleet, s)
				}
				key := fleet[0].LeasesKey(big.Budget)
				for range 2 {
					for _, s := range fleet {
						for range waiters {
							go s.Book(t.Context(), booking(big)) // a crowd that shares calls
						}
						synctest.Wait()
					}
					size, err := client.MemoryUsage(t.Context(), key).Result()
					require.NoError(t, err)
					require.LessOrEqual(t, size, int64(4096))
					time.Sleep(10 * time.Second) // all have stated themselves again
				}
				left, err := client.PTTL(t.Context(), key).Result()
				require.NoError(t, err)
				require.Positive(t, left)
			})
		})
	}
}
