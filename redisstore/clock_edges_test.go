package redisstore_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// oddWindows are lengths that divide no second, or no day.
var oddWindows = []time.Duration{1399 * time.Millisecond, 700 * time.Millisecond, 3_333_333 * time.Microsecond, 86_399 * time.Second}

// edgeAfter returns when the next window of a length begins by the server's clock.
func edgeAfter(c *skewed, per time.Duration) int64 {
	return (c.now()/per.Microseconds() + 1) * per.Microseconds()
}

// TestP1_EdgesOfOddWindows books a microsecond before the edge of a window, on it, and a
// microsecond after it, until times at which Lua's numbers have no digit left. A window is what
// the definition in whole numbers says.
func TestP1_EdgesOfOddWindows(t *testing.T) {
	const twoYears = 2 * 365 * 24 * time.Hour
	each(t, append(oddWindows, 3*time.Microsecond, 999_983*time.Microsecond), func(t *testing.T, per time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			rng := rand.New(rand.NewPCG(uint64(per), 53))
			length := per.Microseconds()
			for i := range 60 {
				c.step(twoYears + time.Duration(rng.Int64N(int64(twoYears))).Truncate(time.Microsecond))
				edge := edgeAfter(c, per)
				for _, off := range []int64{-1, 0, 1} {
					c.step(time.Duration(edge+off-c.now()) * time.Microsecond)
					one := charge(fmt.Sprint("one ", i, off), throttle.FixedWindow(1, per))
					require.Zero(t, book(t, s, one))
					left := new(big.Int).Sub(big.NewInt(length), new(big.Int).Mod(big.NewInt(edge+off), big.NewInt(length)))
					require.Equal(t, time.Duration(left.Int64())*time.Microsecond, book(t, s, one), "%d %+d", edge, off)
				}
			}
			require.Greater(t, c.now(), int64(1)<<52)
		})
	})
}

// TestP1_OddWindows compares random operations on windows that divide no second with the
// definition: half a million, in make soak.
func TestP1_OddWindows(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(1000, 4)) {
		storetest.RandomWindows(t, func(t *testing.T) throttle.Store {
			client := server.Client(t)
			forgets(t, client)
			return atRest(t, redisstore.NewAt(client, nil, bubbleClock))
		}, 1000+seed, 500)
	}
}
