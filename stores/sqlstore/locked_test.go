//go:build unix

package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestP12_RowsAreLocked: somebody else has locked the rows for long. Programs try again and again, and the server does not keep what it has of the
// former tries.
func TestP12_RowsAreLocked(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db, root := open(t, dsn), open(t, dsn)
	store := sqlstore.NewDatabase(db)
	_, _, err := add(store, "a", nil)
	require.NoError(t, err)
	other, err := root.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.Exec("SELECT * FROM throttle_rows FOR UPDATE")
	require.NoError(t, err)
	for range 3 {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, store.Transact(ctx, "group", nil, func(rowstore.Tx) error { return nil }), context.DeadlineExceeded)
		stop()
	}
	require.Eventually(t, func() bool {
		return number(t, root, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT 1 FROM throttle_rows%'") == 0
	}, 30*time.Second, 10*time.Millisecond, "statements wait that nobody waits for")
	require.NoError(t, other.Rollback())
}
