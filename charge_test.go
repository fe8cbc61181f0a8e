package throttle_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func TestSpan(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit  throttle.Limit
		jitter time.Duration
		want   time.Duration
	}{
		{throttle.PerSecond(20), 0, time.Second + us},
		{throttle.PerSecond(20), 35 * ms, 1035*ms + us},
		{throttle.SlidingWindow(1, 1500), 0, 3 * us}, // up to whole microseconds, and one
		{throttle.LeakyBucket(20, time.Second), 0, 50 * ms},
		{throttle.LeakyBucket(20, time.Second), 35 * ms, 51750 * us},
		{throttle.LeakyBucket(3, time.Second), 0, 333334 * us},
		{throttle.TokenBucket(2, time.Second, 40), 0, 20 * time.Second},
		{throttle.TokenBucket(2, time.Second, 40), 35 * ms, 20*time.Second + 35*ms},
		{throttle.TokenBucket(3, time.Second, 1), 0, 333334 * us},
		{throttle.TokenBucket(1, time.Minute, 20), 0, 20 * time.Minute},
		{throttle.TokenBucket(1, day, 366), 0, 366 * day},
		{throttle.FixedWindow(1, time.Second), 35 * ms, 0},
		{throttle.CalendarWindow(1, throttle.Day, nil), 35 * ms, 0},
		{throttle.Concurrency(1), 35 * ms, 0},
	} {
		require.Equal(t, c.want, throttle.Charge{Limit: c.limit, Jitter: c.jitter}.Span(), "%v, %v", c.limit, c.jitter)
	}
}

func TestRefill(t *testing.T) {
	for _, c := range []struct {
		limit          throttle.Limit
		tokens, micros int64
	}{
		{throttle.TokenBucket(2, time.Second, 40), 1, 500_000},
		{throttle.TokenBucket(3, time.Second, 40), 3, 1_000_000},
		{throttle.TokenBucket(1, time.Minute, 20), 1, 60_000_000},
		{throttle.TokenBucket(1, time.Microsecond, 1<<32), 1, 1},
		{throttle.TokenBucket(7, 24*time.Hour, 200), 7, 86_400_000_000},
		{throttle.TokenBucket(7, 24*time.Hour, 204), 1, 12_342_857_143}, // too large to be exact
	} {
		tokens, micros := throttle.Charge{Limit: c.limit}.Refill()
		require.Equal(t, [2]int64{c.tokens, c.micros}, [2]int64{tokens, micros}, "%v", c.limit)
	}
}

// A bucket never fills faster than its limit says, and at most one part in a
// thousand slower; and stores can count it.
func TestRefillIsNeverFaster(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for tried := 0; tried < 20_000; {
		l := throttle.TokenBucket(size(dice, 44), time.Duration(size(dice, 55)), size(dice, 33))
		if l.Validate(0) != nil {
			continue
		}
		tried++
		tokens, micros := throttle.Charge{Limit: l}.Refill()
		require.Positive(t, tokens)
		require.Positive(t, micros)

		per := int64((l.Per() + time.Microsecond - 1) / time.Microsecond)
		want, got := big.NewRat(int64(l.N()), per), big.NewRat(tokens, micros)
		require.LessOrEqual(t, got.Cmp(want), 0, "%v: %d/%d", l, tokens, micros)
		least := new(big.Rat).Mul(want, big.NewRat(1000, 1001))
		require.Positive(t, got.Cmp(least), "%v: %d/%d", l, tokens, micros)

		full := new(big.Int).Mul(big.NewInt(int64(l.Capacity())), big.NewInt(micros))
		require.Negative(t, full.Cmp(big.NewInt(1<<45)), "%v: %d/%d", l, tokens, micros)
	}
}

// size draws a number of any size up to 2^bits.
func size(dice *rand.Rand, bits int) int { return 1 + int(dice.Uint64()>>(64-dice.IntN(bits+1))) }
