//go:build unix

package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestP9_ServerClock: the server's clock is set back, and what was spent stays spent. It is set forward, and
// windows end earlier by so much, as with memstore.
func TestP9_ServerClock(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	set := &clockSet{Database: sqlstore.NewDatabase(open(t, dsn))}
	stores := []store.Store{must(rowstore.New(set, rowstore.Options{})), must(rowstore.New(set, rowstore.Options{}))}
	now := func(i int) bool {
		ok, err := book(stores[i%2], 2, time.Minute)
		require.NoError(t, err)
		return ok
	}
	require.True(t, now(0))
	require.True(t, now(1))
	for i, step := range []time.Duration{0, -time.Millisecond, -59 * time.Minute, -3 * time.Hour, -2*time.Hour - 10*time.Minute} {
		set.by = step
		require.False(t, now(i), "at %v", step)
		require.Equal(t, 2, used(t, stores[i%2], 2))
	}
	set.by = 2 * time.Hour
	require.True(t, now(0))
	require.True(t, now(1))
	require.False(t, now(0))
}

// A clockSet is a database whose clock is set.
type clockSet struct {
	sqlstore.Database
	by time.Duration
}

// A shifted is a transaction with that clock.
type shifted struct {
	rowstore.Tx
	by time.Duration
}

func (tx shifted) Now() time.Time   { return tx.Tx.Now().Add(tx.by) }
func (tx shifted) Asked() time.Time { return tx.Tx.(rowstore.Asker).Asked() }

func (c *clockSet) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return c.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error { return do(shifted{tx, c.by}) })
}

func (c *clockSet) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return c.Database.Read(ctx, group, keys, func(tx rowstore.Tx) error { return do(shifted{tx, c.by}) })
}
