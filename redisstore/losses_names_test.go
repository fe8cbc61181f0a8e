package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestP12_MoreLossesThanNames: a window has more losses than a row has names of generations. Then
// starts may count twice, if two programs know different ones of generations without a name. No start is missing.
func TestP12_MoreLossesThanNames(t *testing.T) {
	t.Parallel()
	exact, all := 0, 0
	t.Run("", func(t *testing.T) {
		for _, seed := range seeds(soak.Most(100, 3)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				lossesAmongPrograms(t, seed, 20, func(t *testing.T, want, booked int) {
					require.GreaterOrEqual(t, booked, want)
					exact += map[bool]int{true: 1}[booked == want]
					all++
				})
			})
		}
	})
	require.Greater(t, exact, all*9/10)
}

// TestP12_OlderThanAllNames has two programs tell of starts in a generation that is older than all names.
func TestP12_OlderThanAllNames(t *testing.T) {
	t.Parallel()
	const losses = redisstore.Names + 1
	run := func(name string, test func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int)) {
		t.Run(name, func(t *testing.T) {
			forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
				c := charge("budget", store.PerHour(4000))
				a, b := redisstore.NewAt(client, redisstore.Options{}, bubbleClock), redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
				start := func(s *redisstore.Store, times int) {
					for range times {
						require.LessOrEqual(t, bookLost(t, s, c), telling)
					}
				}
				lose := func() {
					time.Sleep(2 * time.Second) // generations rise by the second
					forget()
				}
				test(t, a, b, start, lose, func() int { return booked(t, b, c) })
			})
		})
	}
	// The first program tells first after each loss, and never hears what the second one told then.
	run("one knows all that the other knows", func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int) {
		for i := range 2 * losses {
			lose()
			start(a, 1)
			start(b, 2)
			require.Equal(t, 3*(i+1), booked())
		}
	})
	// The second program is silent for so long that no name is known to both.
	for _, first := range []string{"the row's", "the silent one's"} {
		run("each knows what the other does not, "+first+" first", func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int) {
			start(a, 1)
			start(b, 10)
			for range losses {
				lose()
				start(a, 1)
			}
			lose()
			if first == "the row's" {
				start(a, 1)
				start(b, 1)
			} else {
				start(b, 1)
				start(a, 1)
			}
			all := 11 + losses + 2
			require.GreaterOrEqual(t, booked(), all)
			require.LessOrEqual(t, booked(), all+2, "those may be counted twice that both know, and that have no name")
			lose()
			start(a, 1)
			start(b, 1)
			require.GreaterOrEqual(t, booked(), all+2)
		})
	}
}
