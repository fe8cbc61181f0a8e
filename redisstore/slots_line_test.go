package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP5_InFlightLongLines has many more waiters than a node states. All are
// served in the order in which they came, some at a time, across the fleet.
func TestP5_InFlightLongLines(t *testing.T) {
	inFlight(t, 5, func(t *testing.T, a, b *cuttable, five throttle.Charge) {
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
	inFlight(t, 40, func(t *testing.T, a, b *cuttable, forty throttle.Charge) {
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

// TestP10_InFlightMemory has large fleets that hold and wait. The key stays small
// and expires.
func TestP10_InFlightMemory(t *testing.T) {
	t.Parallel()
	for nodes, waiters := range map[int]int{1: 300, 40: 30, 100: 5, 120: 0} {
		runBubble(t, fmt.Sprint(nodes), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
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
			left := lifetime(t, client, key)
			require.Positive(t, left)
		})
	}
}

// TestInFlight_MayNotPublish has a user without permission for channels. All works,
// a little slower.
func TestInFlight_MayNotPublish(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).Do(t.Context(),
		"ACL", "SETUSER", "quiet", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	synctest.Test(t, func(t *testing.T) {
		o := server.Options()
		o.Username, o.Password = "quiet", "secret"
		client := clientOf(t, o)
		a, b := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
		a.Disconnect()
		one := charge("one", throttle.Concurrency(1))
		k, g := board(t, b, one)
		waiting, place := lineUp(t, a, one)
		b.Release(k, g)
		require.True(t, woken(place, 1500*time.Millisecond+soon))
		again(t, a, waiting, place)
	})
}

// TestInFlight_CutSubscription cuts the connection that messages come on, while
// somebody waits, and lets room become free at once. The waiter is called when the
// connection is there again, though nothing is renewed.
func TestInFlight_CutSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	client := server.Client(t)
	a, b := redisstore.New(client, nil), redisstore.New(server.Client(t), nil)
	a.NeverRenew()
	one := charge("one", throttle.Concurrency(1))
	k, g := board(t, b, one)
	for range 3 {
		waiting, place := lineUp(t, a, one)
		listeners(t, client, 1)
		require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		b.Release(k, g)
		<-place.Ready
		g = again(t, a, waiting, place)
		a.Release(waiting, g)
		k, g = board(t, b, one)
	}
	b.Release(k, g)
}

// listeners waits until there are so many subscriptions.
func listeners(t *testing.T, client *redis.Client, want int) {
	t.Helper()
	for {
		channels, err := client.PubSubChannels(t.Context(), "*wake:*").Result()
		require.NoError(t, err)
		if len(channels) == want {
			return
		}
	}
}

// TestP15_NobodyListensWithoutNeed ends the subscription after the last waiter has
// left.
func TestP15_NobodyListensWithoutNeed(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	client := server.Client(t)
	s := redisstore.New(client, nil)
	one := charge("one", throttle.Concurrency(1))
	held, g := board(t, s, one)
	require.Zero(t, s.Subscriptions(), "who holds need not listen")
	k, place := lineUp(t, s, one)
	listeners(t, client, 1)
	s.Cancel(k, place)
	listeners(t, client, 0)
	require.Zero(t, s.Subscriptions())
	s.Release(held, g)
}
