package fleet

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/stretchr/testify/require"
)

// run lets a fleet of 4 processes go for 40 a second.
func run(t *testing.T, c Config) Report {
	t.Helper()
	c.Redis, c.Limit = redistest.Single(t).URL(), "40/s"
	c.Processes = 4
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	t.Log("\n" + Header() + "\n" + r.String())
	return r
}

// The upstream counts arrivals, up to 30 ms after their grants, and bans.
func TestP2_BanningUpstream(t *testing.T) {
	r := run(t, Config{Name: "banning", Workers: 16, Load: 12 * time.Second, Delay: 30 * ms, Ban: 5 * time.Second})
	require.Zero(t, r.Bans)
	require.LessOrEqual(t, r.ArrivalsWorst, 40)
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Useful, 0.95)
}

// Nearly every request has to dial and to shake hands first, and that takes
// many times longer than a grant may be old.
func TestP2_SlowHandshakes(t *testing.T) {
	r := run(t, Config{Name: "handshakes", Workers: 16, Load: 12 * time.Second, Handshake: 300 * ms, Ban: 5 * time.Second})
	require.Zero(t, r.Bans)
	require.LessOrEqual(t, r.ArrivalsWorst, 40)
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Useful, 0.80)
}

// Without jitter the store's clock alone counts, and the limit is used up. All
// workers begin at once, so they come back in bunches of 40: the hardest case
// for a window, where no order among those that come together is fair or unfair.
func TestP1_StoreClock(t *testing.T) {
	r := run(t, Config{Name: "store clock", Workers: 16, Load: 10 * time.Second, Jitter: -1})
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Used, 0.97)
	require.LessOrEqual(t, r.Trips, 1.2)
	require.Zero(t, r.Overtaken)
	require.LessOrEqual(t, r.Longest, 2300*ms)
}

// With two windows' worth of workers, first come, first served means that each
// is served in every other window, wherever it runs.
func TestP5_FirstComeFirstServed(t *testing.T) {
	r := run(t, Config{Name: "first come", Limiter: "acquire", Workers: 20, Load: 10 * time.Second, Jitter: -1})
	require.Zero(t, r.Overtaken)
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Jain, 0.98)
	require.LessOrEqual(t, r.Longest, 2300*ms)
}
