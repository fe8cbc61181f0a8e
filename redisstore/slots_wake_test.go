package redisstore_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestInFlight_NobodyPolls lets fifty wait for a minute. All that is sent for them
// is one renewal every second and a half.
func TestInFlight_NobodyPolls(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), nil)
		one := charge("one", throttle.Concurrency(1))
		board(t, s, one)
		for range 50 {
			lineUp(t, s, one)
		}
		time.Sleep(soon)
		scripts(tap)
		time.Sleep(time.Minute)
		require.Equal(t, 40, scripts(tap))
	})
}

// scripts counts the script calls since the tap was last asked.
func scripts(p *tap) (n int) {
	for _, name := range p.names() {
		if strings.HasPrefix(name, "eval") {
			n++
		}
	}
	return n
}

// TestInFlight_LostMessages loses all messages: the next renewal says the same.
func TestInFlight_LostMessages(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
		a.Disconnect()
		k, g := board(t, b, one)
		waiting, place := lineUp(t, a, one)
		b.Release(k, g)
		require.True(t, woken(place, 1500*time.Millisecond+soon))
		again(t, a, waiting, place)
	})
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
		client := redis.NewClient(o)
		defer client.Close()
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

// TestP15_ListensForAMomentLonger ends the subscription within a second, and not
// while waiters come and go.
func TestP15_ListensForAMomentLonger(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
		held, g := board(t, b, one)
		for range 10 {
			k, place := lineUp(t, a, one)
			a.Cancel(k, place)
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 1, a.Subscriptions())
		}
		time.Sleep(900 * time.Millisecond)
		require.Zero(t, a.Subscriptions())
		b.Release(held, g)
		time.Sleep(time.Minute)
		require.Zero(t, a.Leases()+b.Leases())
	})
}
