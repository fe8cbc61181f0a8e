//go:build unix

package sqlstore_test

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
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

	away.Store(true)
	s := must(sqlstore.New(db, sqlstore.Options{}))
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(10)}})
	require.ErrorIs(t, err, rowstore.ErrAway)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	got := make(chan error, 1)
	go func() {
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(10)}, MaxWait: store.AnyWait})
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
	wants := &store.Booking{Charges: []store.Charge{hourly(10)}, MaxWait: store.AnyWait}
	_, err = db.Exec("DROP TABLE throttle_rows")
	require.NoError(t, err)
	_, err = must(sqlstore.New(db, sqlstore.Options{})).Book(t.Context(), wants)
	require.ErrorContains(t, err, "CreateTable")
	require.NotErrorIs(t, err, rowstore.ErrAway)
	require.NoError(t, db.Close())
	_, err = sqlstore.New(db, sqlstore.Options{})
	require.ErrorContains(t, err, "database is closed")
	require.NotErrorIs(t, err, rowstore.ErrAway)
}

// TestP12_RightIsTakenAway: a right is missing that is needed only to save. It is certain that nothing was saved, so callers are told at once, and
// go on when they have the right.
func TestP12_RightIsTakenAway(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	root := open(t, dsn)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	rows, user := config.DBName+".throttle_rows", config.DBName+"user@'%'"
	exec(t, root, "CREATE USER "+user+" IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE ON "+rows+" TO "+user)
	config.User, config.Passwd = config.DBName+"user", "secret"
	s := must(sqlstore.New(open(t, config.FormatDSN()), sqlstore.Options{}))
	ok, err := book(s, 10, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	exec(t, root, "REVOKE INSERT ON "+rows+" FROM "+user)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(10)}, MaxWait: store.AnyWait})
	require.ErrorContains(t, err, "needs SELECT, INSERT, UPDATE and DELETE")
	require.NotContains(t, err.Error(), "not known")
	exec(t, root, "GRANT INSERT ON "+rows+" TO "+user)
	ok, err = book(s, 10, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 2, used(t, s, 10))
}

// A plainConn hides its socket, so the driver cannot see before it writes that the server has closed the connection.
type plainConn struct{ net.Conn }

// TestP12_IdleConnectionIsGone: a connection that the server closed while nobody used it costs a transaction and a look a
// second try, and is no error.
func TestP12_IdleConnectionIsGone(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return plainConn{conn}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	admin := open(t, dsn)

	db := sqlstore.NewDatabase(pool)
	_, _, err = add(db, "a", nil)
	require.NoError(t, err)

	for name, use := range map[string]func() error{
		"transaction": func() error { _, _, err := add(db, "a", nil); return err },
		"look": func() error {
			return db.Read(t.Context(), "group", []string{"a"}, func(rowstore.Tx) error { return nil })
		},
	} {
		exec(t, admin, "KILL "+strconv.Itoa(number(t, pool, "SELECT CONNECTION_ID()")))
		require.NoError(t, use(), name)
	}
}
