package acquire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestPace has the distances that callers ask for: those of a long window are wide only while one of the last starts has
// cost more than was booked for it, and not less because the store is far away.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	minute, second := store.PerMinute(100), store.PerSecond(100)
	for _, c := range []struct {
		name    string
		limit   store.Limit
		cost    int
		spread  time.Duration
		settled []int // at what starts that were booked at 10 were settled
		want    time.Duration
	}{
		{"short", second, 1, 0, nil, 9 * ms},
		{"short, of a far store", second, 1, 4 * ms, nil, 5 * ms},
		{"short, costly", second, 2, 0, nil, 0},
		{"short, more than was booked", second, 1, 0, []int{11}, 9 * ms},
		{"long", minute, 1, 0, nil, 2500 * time.Microsecond},
		{"long, of a far store", minute, 1, 4 * ms, nil, 0},
		{"long, costly", minute, 50, 0, nil, 2500 * time.Microsecond},
		{"long, as booked", minute, 50, 0, []int{10, 10}, 2500 * time.Microsecond},
		{"long, less than was booked", minute, 50, 0, []int{1, 1}, 2500 * time.Microsecond},
		{"long, more than was booked", minute, 50, 0, []int{11}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked, cost of one", minute, 1, 0, []int{11, 5}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked, of a far store", minute, 1, 40 * ms, []int{11}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked some time ago", minute, 50, 0, append([]int{11}, make([]int, lowMemory)...), 2500 * time.Microsecond},
		{"fixed, more than was booked", store.FixedWindow(100, time.Minute), 50, 0, []int{11}, 0},
	} {
		e := &Engine{}
		for _, cost := range c.settled {
			e.NoteCost("p", 10, cost)
		}
		var caller Caller
		caller.Init(e)
		caller.SetCharges([]store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: c.limit, Cost: c.cost, Pace: c.limit.Pace(), Jitter: 35 * ms}})
		caller.Booking.Spread = c.spread
		caller.adjustPace()
		require.Equal(t, c.want, caller.Booking.Charges[0].Pace, c.name)

		e.NoteCost("another", 10, 11)
		caller.adjustPace()
		require.Equal(t, c.want, caller.Booking.Charges[0].Pace, c.name)
	}
}
