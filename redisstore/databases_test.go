package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestDatabasesAreApart pauses budgets in one database of a server. They are not
// closed in another, where nobody may take that for news of its own.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	here, there := redistest.Shared(t), redistest.Shared(t)
	require.Equal(t, here.Addr, there.Addr)
	s, neighbour := redisstore.New(here.Client(t), nil), redisstore.New(here.Client(t), nil)
	other := redisstore.New(there.Client(t), nil)
	waits, idle, last := charge("waits", throttle.PerMinute(1)), charge("idle", throttle.PerMinute(1)), charge("last", throttle.PerMinute(1))
	_, news := listening(t, s, waits)
	require.NoError(t, other.Pause(t.Context(), idle, time.Hour))
	require.NoError(t, other.Pause(t.Context(), waits, time.Hour))

	require.NoError(t, neighbour.Pause(t.Context(), last, time.Hour))
	require.Eventually(t, func() bool { return s.Closed(s.Key(last.Budget)) > 0 }, 30*time.Second, time.Millisecond,
		"it is heard after all that was said before")
	require.Empty(t, news)
	require.Negative(t, s.Closed(s.Key(idle.Budget)))
	require.Negative(t, s.Closed(s.Key(waits.Budget)))
	require.Zero(t, book(t, s, idle))
}
