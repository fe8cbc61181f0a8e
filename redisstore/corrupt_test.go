package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
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

// TestP12_AKeyThatHoldsGarbage: a budget whose key holds something else, or only a
// part of what it should, is as one that Redis has lost, and no script runs on and
// on. Some of these made a search that never ended.
func TestP12_AKeyThatHoldsGarbage(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	limits := []throttle.Limit{
		throttle.PerSecond(3), throttle.CalendarWindow(30, throttle.Day, nil), throttle.TokenBucket(1, time.Second, 5),
		throttle.LeakyBucket(3, time.Second), throttle.FixedWindow(3, time.Second), throttle.Concurrency(20),
	}
	dice := rand.New(rand.NewPCG(5, 2))
	served := 0
	for i := range 300 {
		synctest.Test(t, func(t *testing.T) {
			c := server.Client(t)
			s := atRest(t, redisstore.NewAt(c, nil, bubbleClock))
			limit := limits[i%len(limits)]
			ch := charge(fmt.Sprint("garbage ", i), limit)
			key := s.Key(ch.Budget)
			if limit.Kind() == throttle.KindConcurrency {
				key = s.LeasesKey(ch.Budget)
			}
			for range dice.IntN(6) {
				time.Sleep(time.Duration(dice.IntN(500)) * time.Millisecond)
				book(t, s, ch)
			}
			spoil(t, c, key, dice)

			fresh := atRest(t, redisstore.NewAt(c, nil, bubbleClock))
			_, err := fresh.Status(t.Context(), ch)
			require.NoError(t, err)
			g, err := fresh.Book(t.Context(), booking(ch))
			require.NoError(t, err)
			served += map[bool]int{true: 1}[g.OK]
			require.NoError(t, fresh.Pause(t.Context(), ch, time.Second))
			ttl, err := c.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.Positive(t, ttl, "P10: it has an expiry again")
			fresh.Cancel(booking(ch), g)
		})
	}
	// Of a number that was changed nobody can tell, if it makes some sense.
	require.Greater(t, served, 290)
}

// spoil changes what a key holds: some numbers, some bytes, its length, or all.
func spoil(t *testing.T, c redis.UniversalClient, key string, dice *rand.Rand) {
	t.Helper()
	raw, err := c.Get(t.Context(), key).Bytes()
	if err != nil || dice.IntN(4) == 0 {
		raw = make([]byte, 1+dice.IntN(400))
		for i := range raw {
			raw[i] = byte(dice.IntN(256))
		}
	}
	switch dice.IntN(3) {
	case 0:
		raw = slices.Grow(raw, 8)
		at := min(8*dice.IntN(redisstore.HeadNumbers), max(0, len(raw)-8))
		odd := forgedNumbers[dice.IntN(len(forgedNumbers))]
		copy(raw[at:], binary.LittleEndian.AppendUint64(nil, math.Float64bits(odd)))
	case 1:
		for range 1 + dice.IntN(4) {
			raw[dice.IntN(len(raw))] = byte(dice.IntN(256))
		}
	case 2:
		raw = raw[:dice.IntN(len(raw))]
	}
	require.NoError(t, c.Set(t.Context(), key, raw, redis.KeepTTL).Err())
}
