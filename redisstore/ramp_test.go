package redisstore_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP11_SlowStartOfACrowd serves many callers with one call after a penalty, when
// one goes first and then few: they start as if each had come by itself.
func TestP11_SlowStartOfACrowd(t *testing.T) {
	t.Parallel()
	const crowd = 80
	server := redistest.Shared(t)
	for _, limit := range []throttle.Limit{
		throttle.PerSecond(40), throttle.PerSecond(1000), throttle.PerHour(1000), throttle.FixedWindow(40, time.Second), throttle.TokenBucket(40, time.Second, 40),
	} {
		for name, pause := range map[string]time.Duration{"closed": 10 * time.Second, "open for one": 1900 * time.Millisecond, "open again": 1500 * time.Millisecond} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, same := server.Client(t), memstore.New()
					c := charge("budget", limit)
					s, _ := loaded(t, client, nil)
					require.NoError(t, s.Pause(t.Context(), c, pause))
					require.NoError(t, same.Pause(t.Context(), c, pause))
					time.Sleep(2 * time.Second)

					tap := newTap(client, isScript)
					bookAside(t.Context(), s, booking(charge("another", limit)))
					var all []**outcome
					for range crowd {
						all = append(all, bookAside(t.Context(), s, booking(c)))
					}
					close(tap.pass)
					synctest.Wait()
					require.Len(t, tap.names(), 2, "one for another budget, one for all who came meanwhile")
					var got, want []time.Duration
					for _, o := range all {
						require.NoError(t, (*o).err)
						got, want = append(got, (*o).grant.Wait), append(want, book(t, same, c))
					}
					slices.Sort(got)
					require.Equal(t, want, got)
				})
			})
		}
	}
}

// TestP11_KeysOutliveABan: a ban that is met again is known for as long as that makes it
// longer, however short the window.
func TestP11_KeysOutliveABan(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	for _, limit := range []throttle.Limit{throttle.PerSecond(40), throttle.LeakyBucket(40, time.Second), throttle.Concurrency(2), throttle.Unlimited()} {
		c := charge(limit.String(), limit)
		_, _, err := s.Refuse(t.Context(), c, throttle.Refusal{Length: time.Minute, Ago: time.Second})
		require.NoError(t, err)
		key := s.Key(c.Budget)
		if limit.Kind() == throttle.KindConcurrency {
			key = s.LeasesKey(c.Budget)
		}
		left, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Greater(t, left, time.Minute+15*time.Second) // some seconds of which are the machine's
	}
}

// TestP11_KeysOutliveASlowStart looks at when the key of a budget expires, right
// after the penalty and after a booking.
func TestP11_KeysOutliveASlowStart(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	for _, limit := range []throttle.Limit{throttle.SlidingWindow(40, 20*time.Second), throttle.FixedWindow(40, 20*time.Second), throttle.TokenBucket(1, time.Second, 60)} {
		c := charge(limit.String(), limit)
		require.NoError(t, s.Pause(t.Context(), c, time.Hour))
		for range 2 {
			left, err := client.PTTL(t.Context(), s.Key(c.Budget)).Result()
			require.NoError(t, err)
			require.Greater(t, left, time.Hour+35*time.Second) // some seconds of which are the machine's
			b := booking(c)
			b.MaxWait = 0
			g, err := s.Book(t.Context(), b)
			require.NoError(t, err)
			require.False(t, g.OK)
		}
	}
}
