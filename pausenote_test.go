package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A noted store knows what was said of every pause.
type noted struct {
	throttle.Store
	note throttle.PauseNote
}

func (n noted) PauseNote(throttle.Budget) throttle.PauseNote { return n.note }

// TestPauseNote: callers learn from their errors who paused a budget, and why.
func TestPauseNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := noted{memstore.New(), throttle.PauseNote{By: "anna@desk", Reason: "the shop moves\x1b[2J"}}
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(5)})
		require.NoError(t, err)
		require.NoError(t, l.Pause(t.Context(), "", time.Minute))

		_, err = l.TryAcquire(t.Context(), "", 1)
		require.EqualError(t, err, `throttle: policy "shop" (5/s): paused by anna@desk: "the shop moves\x1b[2J", would wait 1m0s, but may not wait at all`)

		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		_, err = l.Acquire(ctx, "", 1)
		require.EqualError(t, err, `throttle: the caller gave up after waiting 1s for policy "shop", paused by anna@desk: "the shop moves\x1b[2J": context canceled`)
	})
}

func TestPauseNoteText(t *testing.T) {
	require.Equal(t, "paused", throttle.PauseNote{}.String())
	require.Equal(t, `paused by a\nb`, throttle.PauseNote{By: "a\nb"}.String())
	require.Equal(t, `paused: "why"`, throttle.PauseNote{Reason: "why"}.String())
}
