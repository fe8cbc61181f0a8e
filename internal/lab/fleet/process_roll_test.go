//go:build unix

package fleet

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// When each process changes its limit, each at a moment of its own, and for how long
// that goes on.
const (
	rollUp, rollDown = 1500 * ms, 4 * time.Second
	rolling          = time.Second
)

func init() { testLimiters["rolled"] = rolled }

// rolled is throttle's transport in a process whose limit is changed twice.
func rolled(m Member) (http.RoundTripper, error) {
	store, err := m.store()
	if err != nil {
		return nil, err
	}
	with := func(n int) []throttle.Policy {
		p := m.policy()
		p.Limit = throttle.PerSecond(n)
		return []throttle.Policy{p}
	}
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: with(20), Base: m.Base, Observe: m.events.observe})
	if err != nil {
		return nil, err
	}
	for at, n := range map[time.Duration]int{rollUp: 40, rollDown: 10} {
		time.AfterFunc(at+rand.N(rolling), func() {
			_ = transport.SetPolicies(with(n)) // it was checked by New
		})
	}
	return transport, nil
}

// TestP1_RollingChange changes a limit over a fleet, from 20 up to 40 and down to 10.
// While it is mixed the larger one counts, and a window after the last change the new
// one.
func TestP1_RollingChange(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	tr := troupeOf(t, "rolled", 8*time.Second)
	slack := tr.end()
	require.LessOrEqual(t, tr.up.Worst(), 40+slack)
	// A process counts from its own begin, which is a little before that of all.
	at, _ := tr.between(0, rollUp-500*ms)
	require.LessOrEqual(t, stat.Most(at, time.Second), 20+slack)
	at, _ = tr.between(rollDown+rolling+1200*ms, 8*time.Second)
	require.LessOrEqual(t, stat.Most(at, time.Second), 10+slack)
	require.Greater(t, len(at), 5)
}
