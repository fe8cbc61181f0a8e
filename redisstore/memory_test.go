package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// requireSmall checks every key of the database.
func requireSmall(t *testing.T, c *redis.Client) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		bytes, err := c.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, bytes, int64(4096), key)
		left, err := c.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, left, key)
	}
}

// A use is a way to use a budget; each call is one booking or a pause.
type use struct {
	name string
	ops  int
	step func(rng *rand.Rand, k *throttle.Booking) (pause time.Duration)
}

var uses = []use{
	{"steady", 300, func(_ *rand.Rand, k *throttle.Booking) time.Duration {
		k.MaxWait = 0
		return max(k.Charges[0].Limit.Per(), time.Second) / 700
	}},
	{"bursty", 300, func(rng *rand.Rand, k *throttle.Booking) time.Duration {
		if rng.IntN(40) > 0 {
			return time.Duration(rng.IntN(1000)) * time.Microsecond
		}
		return time.Duration(rng.Int64N(int64(k.Charges[0].Limit.Per())/4 + int64(time.Minute))).Truncate(time.Microsecond)
	}},
	{"deep", 300, func(rng *rand.Rand, k *throttle.Booking) time.Duration {
		k.Charges[0].Cost = 1 + rng.IntN(max(1, k.Charges[0].Limit.N()/20))
		k.Spread = time.Duration(rng.IntN(50_000)) * time.Microsecond
		return time.Duration(rng.IntN(300_000)) * time.Microsecond
	}},
	{"overload", 1500, func(rng *rand.Rand, k *throttle.Booking) time.Duration {
		k.Charges[0].Cost = max(1, k.Charges[0].Limit.N()/250-rng.IntN(1000))
		return time.Duration(rng.Int64N(int64(max(k.Charges[0].Limit.Per(), time.Second)) / 150)).Truncate(time.Microsecond)
	}},
}

// TestP10_Memory uses budgets of every kind in every way. No key is ever larger
// than 4 KB or without an expiry.
func TestP10_Memory(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	limits := []throttle.Limit{
		throttle.PerSecond(20), throttle.PerHour(1_000_000), throttle.SlidingWindow(10_000, 20*time.Second),
		throttle.SlidingWindow(1<<40, 30*24*time.Hour), throttle.SlidingWindow(100, 365*24*time.Hour),
		throttle.FixedWindow(1_000_000, time.Hour), throttle.LeakyBucket(40, time.Second),
		throttle.LeakyBucket(1_000_000, 24*time.Hour), throttle.CalendarWindow(1_000_000, throttle.Month, time.UTC),
	}
	for k, u := range uses {
		for i, limit := range limits {
			if (k+i)%soak.Most(1, 3) > 0 {
				continue
			}
			t.Run(fmt.Sprint(u.name, " ", limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := server.Client(t)
					require.NoError(t, client.FlushDB(t.Context()).Err())
					s := redisstore.NewAt(client, nil, bubbleClock)
					rng := rand.New(rand.NewPCG(10, uint64(i)))
					for op := range u.ops {
						k := booking(charge("budget", limit))
						pause := u.step(rng, k)
						_, err := s.Book(t.Context(), k)
						require.NoError(t, err)
						if op%50 == 0 {
							requireSmall(t, client)
						}
						time.Sleep(pause)
					}
					requireSmall(t, client)
				})
			})
		}
	}
}

// TestP10_TenThousandWaiters has a queue for each kind that is very deep.
func TestP10_TenThousandWaiters(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, limit := range []throttle.Limit{throttle.PerSecond(20), throttle.PerHour(1000), throttle.LeakyBucket(7, time.Second)} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				s, tap := loaded(t, client, isScript)
				c := charge("deep", limit)
				c.Pace = time.Millisecond
				for range 10_000 {
					go s.Book(t.Context(), booking(c))
				}
				synctest.Wait()
				close(tap.pass)
				synctest.Wait()
				st, err := s.Status(t.Context(), c)
				require.NoError(t, err)
				require.GreaterOrEqual(t, st.Waiting, 10_000-limit.N()) // some have started
				require.GreaterOrEqual(t, st.Wait, 10_000/time.Duration(limit.N())*limit.Per())
				requireSmall(t, client)
			})
		})
	}
}

// TestP10_SizeDoesNotGrowWithN fills windows of very different n in the same
// hundred steps.
func TestP10_SizeDoesNotGrowWithN(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, n := range []int{1000, 1_000_000, 1_000_000_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				require.NoError(t, client.FlushDB(t.Context()).Err())
				s := redisstore.NewAt(client, nil, bubbleClock)
				c := charge("budget", throttle.SlidingWindow(n, time.Minute))
				c.Cost = n / 1000
				for range 3000 {
					require.Equal(t, time.Duration(0), book(t, s, c))
					time.Sleep(time.Minute / 980)
				}
				entries, err := client.StrLen(t.Context(), s.Key(c.Budget)).Result()
				require.NoError(t, err)
				require.LessOrEqual(t, entries, int64(2000))
			})
		})
	}
}

// TestP10_IdleKeysExpire lets real time pass, but by so little that a row is
// surely over: its window is a microsecond.
func TestP10_IdleKeysExpire(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	c := charge("brief", throttle.SlidingWindow(1, time.Microsecond))
	book(t, s, c)
	left, err := client.PTTL(t.Context(), s.Key(c.Budget)).Result()
	require.NoError(t, err)
	require.Positive(t, left)
	require.LessOrEqual(t, left, 1001*time.Millisecond)

	require.NoError(t, s.Pause(t.Context(), c, time.Hour))
	left, err = client.PTTL(t.Context(), s.Key(c.Budget)).Result()
	require.NoError(t, err)
	require.Greater(t, left, time.Hour)
}
