package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP15_NothingToClose: a connection that nobody uses is closed, and that of the listener soon after nobody listens. A store has
// no other.
func TestP15_NothingToClose(t *testing.T) {
	soak.Only(t)
	server := newServer(t)
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	stop, err := db.(rowstore.Notifier).Listen("g", "me", func() {})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return pgstore.Hears(db) }, time.Minute, time.Millisecond)
	admin := connect(t, server)
	sessions := func(n int) func() bool {
		return func() bool {
			var found int
			require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'throttle'").Scan(&found))
			return found == n
		}
	}
	require.True(t, sessions(2)())
	stop()
	require.Eventually(t, sessions(1), 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, sessions(0), 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
}

// TestP12_LockOfAnother: a session that does something else has the lock of a group, so nobody ends that session. The server ends the wait of a
// program that may be gone.
func TestP12_LockOfAnother(t *testing.T) {
	soak.Only(t)
	server := newServer(t)
	db, admin, other := pgstore.NewDatabase(t, server.URL(), pgstore.Options{}), connect(t, server), connect(t, server)
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
	exec(t, other, "BEGIN")
	exec(t, other, "LOCK TABLE "+pgstore.LockTable(db, "g")+" IN EXCLUSIVE MODE")
	busy := make(chan error, 1)
	go func() {
		_, err := other.Exec(context.Background(), "SELECT pg_sleep(3600)")
		busy <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Scan(&n))
		return n == 1
	}, time.Minute, time.Millisecond)
	began := time.Now()
	err := db.Transact(t.Context(), "g", nil, put)
	require.ErrorIs(t, err, rowstore.ErrAway)
	require.ErrorContains(t, err, "lock timeout")
	require.Less(t, time.Since(began), time.Minute)
	exec(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
	require.ErrorContains(t, <-busy, "canceling statement")
	exec(t, other, "ROLLBACK")
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
}
