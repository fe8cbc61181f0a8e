package throttle_test

import (
	"errors"
	"testing"

	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

func newLimiter(t *testing.T, s throttle.Store, p throttle.Policy) *throttle.Limiter {
	t.Helper()
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

// acquired is the error of an Acquire whose permit is of no interest.
func acquired(_ *throttle.Permit, err error) error { return err }

func TestLimiterOfABrokenStore(t *testing.T) {
	down := errors.New("down")
	l := newLimiter(t, brokenStore{down}, onePerHour)
	_, status := l.Status(t.Context(), "")
	for _, err := range []error{
		acquired(l.Acquire(t.Context(), "", 1)), acquired(l.TryAcquire(t.Context(), "", 1)), l.Pause(t.Context(), "", time.Second), status,
	} {
		require.ErrorIs(t, err, down)
		var failed *throttle.StoreError
		require.ErrorAs(t, err, &failed)
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1 << 30)})
	ctx := t.Context()
	for _, key := range []string{"", "some key"} {
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			p, err := l.Acquire(ctx, key, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}), "key %q", key)
	}
}
