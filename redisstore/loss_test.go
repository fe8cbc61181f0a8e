package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_SleepersTellWhatWasLost empties Redis while a program sleeps that alone
// knows of its starts. Another one's call makes it tell, though it makes none.
func TestP12_SleepersTellWhatWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	require.NoError(t, client.FlushDB(t.Context()).Err())
	first, second := redisstore.New(server.Client(t), nil), redisstore.New(server.Client(t), nil)
	limit := charge("long", throttle.PerHour(5))
	book(t, first, limit)
	for range 4 {
		book(t, second, limit)
	}
	sleeper := booking(limit)
	g, err := second.Book(t.Context(), sleeper)
	require.NoError(t, err)
	require.Greater(t, g.Wait, 59*time.Minute)
	w := second.Watch(sleeper, g, make(chan struct{}, 1))
	defer w.Stop()
	booked := time.Now()
	require.Eventually(t, func() bool { return second.Complete(limit.Budget.Group, booked.Add(3*time.Second)) }, 10*time.Second, 5*time.Millisecond)

	require.NoError(t, client.FlushDB(t.Context()).Err())
	book(t, first, limit) // it knew of one start
	require.Eventually(t, func() bool {
		st, err := first.Status(t.Context(), limit)
		require.NoError(t, err)
		return st.Used+st.Waiting >= 6
	}, 10*time.Second, 5*time.Millisecond, "nobody told")
}
