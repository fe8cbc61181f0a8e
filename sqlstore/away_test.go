//go:build unix

package sqlstore_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/sqlstore"
)

// TestP12_CallersWaitForTheServer: callers wait for a server that refuses connections, and get their starts when it takes
// them. A caller that does not wait is told at once.
func TestP12_CallersWaitForTheServer(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(table(t))
	require.NoError(t, err)
	var away atomic.Bool
	var refused atomic.Int64
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if away.Load() {
			refused.Add(1)
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := sqlstore.MySQL(db, nil)

	away.Store(true)
	_, err = store.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(10)}})
	require.ErrorIs(t, err, rowstore.ErrAway)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	got := make(chan error, 1)
	go func() {
		_, err := store.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(10)}, MaxWait: throttle.AnyWait})
		got <- err
	}()
	before := refused.Load()
	require.Eventually(t, func() bool { return refused.Load() > before }, time.Minute, time.Millisecond)
	away.Store(false)
	require.NoError(t, <-got)
}

// TestP12_RefusalsAreToldAtOnce: callers do not wait for what only somebody can change: here the database was closed, or has no table.
func TestP12_RefusalsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	db, err := openDB(table(t))
	require.NoError(t, err)
	wants := &throttle.Booking{Charges: []throttle.Charge{hourly(10)}, MaxWait: throttle.AnyWait}
	_, err = db.Exec("DROP TABLE throttle_rows")
	require.NoError(t, err)
	_, err = sqlstore.MySQL(db, nil).Book(t.Context(), wants)
	require.ErrorContains(t, err, "CreateTable")
	require.NotErrorIs(t, err, rowstore.ErrAway)
	require.NoError(t, db.Close())
	_, err = sqlstore.MySQL(db, nil).Book(t.Context(), wants)
	require.ErrorContains(t, err, "database is closed")
	require.NotErrorIs(t, err, rowstore.ErrAway)
}
