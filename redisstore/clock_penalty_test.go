package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

var settings = []time.Duration{
	-24 * time.Hour, -time.Hour, -100 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Hour, 24 * time.Hour,
}

// afterSet runs f for a limit of each kind and each way to set the clock, once with
// the keys that were there, and once without those that have expired by it.
func afterSet(t *testing.T, limits []throttle.Limit, f func(t *testing.T, s *redisstore.Store, set func(), limit throttle.Limit, by time.Duration)) {
	for _, limit := range limits {
		for _, by := range settings {
			for _, gone := range []bool{false, true} {
				if gone && by < time.Hour {
					continue
				}
				runBubble(t, fmt.Sprint(limit, " ", by, " ", gone), func(t *testing.T, server *redistest.Server) {
					client, c := server.Client(t), &skewed{}
					f(t, redisstore.NewAt(client, nil, c.now), func() {
						if c.step(by); gone {
							forgets(t, client)
						}
					}, limit, by)
					time.Sleep(2 * time.Second) // calls that are repeated come to their end
				})
			}
		}
	}
}

// TestP9_PenaltiesKeepTheirLength sets the clock two seconds after a penalty of five
// began. It does not end sooner than three seconds later, nor is it longer again than
// it was.
func TestP9_PenaltiesKeepTheirLength(t *testing.T) {
	t.Parallel()
	limits := append(slices.Clone(stepLimits), throttle.Unlimited())
	afterSet(t, limits, func(t *testing.T, s *redisstore.Store, set func(), limit throttle.Limit, by time.Duration) {
		c := charge("closed", limit)
		board(t, s, c)
		require.NoError(t, s.Pause(t.Context(), c, 5*time.Second))
		refused(t, s, c)
		time.Sleep(2 * time.Second)
		set()
		g := ask(t, s, &throttle.Booking{Charges: []throttle.Charge{c}})
		require.False(t, g.OK)
		require.GreaterOrEqual(t, g.Wait, 3*time.Second)
		longest := 5 * time.Second
		if by > 0 {
			longest = 3 * time.Second // the program knows how long it has been
		}
		require.LessOrEqual(t, g.Wait, longest+windowLength(limit))
	})
}

// TestP9_PenaltiesOfSeatsKeepTheirLength does so with a budget of requests in flight.
func TestP9_PenaltiesOfSeatsKeepTheirLength(t *testing.T) {
	each(t, settings[:5], func(t *testing.T, by time.Duration) { // by more a key expires, and a penalty with it
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			two := charge("two", throttle.Concurrency(2))
			k, g := board(t, s, two)
			require.NoError(t, s.Pause(t.Context(), two, 5*time.Second))
			refused(t, s, two)
			time.Sleep(2 * time.Second)
			c.step(by)
			g2 := ask(t, s, booking(two))
			require.GreaterOrEqual(t, g2.Wait, 3*time.Second, by)
			require.LessOrEqual(t, g2.Wait, 5*time.Second, by)
			s.Release(k, g)
			time.Sleep(2 * time.Second)
		})
	})
}

// TestP9_NobodyIsStuck sets the clock when a budget was just used up. Nothing starts at
// once, and a window later at the latest something does.
func TestP9_NobodyIsStuck(t *testing.T) {
	t.Parallel()
	afterSet(t, stepLimits, func(t *testing.T, s *redisstore.Store, set func(), limit throttle.Limit, _ time.Duration) {
		c := charge("used up", limit)
		for g := ask(t, s, &throttle.Booking{Charges: []throttle.Charge{c}}); g.OK; {
			g = ask(t, s, &throttle.Booking{Charges: []throttle.Charge{c}})
		}
		set()
		wait := bookLost(t, s, c)
		require.NotZero(t, wait)
		require.LessOrEqual(t, wait, windowLength(limit))
	})
}

// TestP9_Slewing lets the clock run a tenth too fast or too slowly. Its windows are a
// tenth shorter or longer, and no more than that.
func TestP9_Slewing(t *testing.T) {
	each(t, []time.Duration{10, -10}, func(t *testing.T, part time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			const n = 10
			var starts log
			for range 2000 {
				time.Sleep(10 * time.Millisecond)
				c.step(10 * time.Millisecond / part)
				if ask(t, s, &throttle.Booking{Charges: []throttle.Charge{charge("slewed", throttle.PerSecond(n))}}).OK {
					starts.add(1)
				}
			}
			per := time.Second - time.Second/11
			if part < 0 {
				per = time.Second
			}
			starts.judgeWindows(t, per, func(time.Time) int { return n })
			require.Greater(t, len(starts.all), 20*n*85/100)
		})
	})
}
