//go:build unix

package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestP1_ClockIsReadAfterTheLock: the time of a transaction is not from before it waited for another one, and the
// moment at which it was asked for is neither later than that nor long before.
func TestP1_ClockIsReadAfterTheLock(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := sqlstore.NewDatabase(open(t, dsn))
	const held = 300 * time.Millisecond
	locked, released := make(chan struct{}), make(chan time.Time, 1)
	go func() {
		_, _, err := add(db, "a", func() {
			close(locked)
			time.Sleep(held) // others wait meanwhile, or come later: both are good
		})
		released <- time.Now()
		require.NoError(t, err)
	}()
	<-locked
	var now, asked time.Time
	began := time.Now()
	require.NoError(t, db.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
		now, asked = tx.Now(), tx.(rowstore.Asker).Asked()
		require.False(t, asked.After(time.Now()))
		return nil
	}))
	<-released
	require.Greater(t, now.Sub(began), held/2, "the server has the clock of this machine")
	require.Greater(t, asked.Sub(began), held/2)
	require.Less(t, asked.Sub(now), 10*time.Millisecond, "it was asked before it answered")
}

// TestClockHasNoZone: the time does not depend on the time zones of the server and of connections.
func TestClockHasNoZone(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	for _, zone := range []string{"%27%2B13%3A00%27", "%27-09%3A30%27"} {
		_, now, err := add(sqlstore.NewDatabase(open(t, dsn+"&time_zone="+zone)), "a", nil)
		require.NoError(t, err)
		require.Less(t, time.Since(now).Abs(), time.Minute)
	}
}

// TestP8_HolderStandsStill: a program that has locked a group stands still. Others go on after a second, and
// what the program does when it goes on is not saved.
func TestP8_HolderStandsStill(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	slow, fast := sqlstore.NewDatabase(open(t, dsn)), sqlstore.NewDatabase(open(t, dsn))
	locked, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, _, err := add(slow, "a", sync.OnceFunc(func() {
			close(locked)
			<-goOn
		}))
		ended <- err
	}()
	<-locked
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // many times as long as that takes
	defer stop()
	require.NoError(t, fast.Transact(ctx, "group", []string{"a"}, func(tx rowstore.Tx) error {
		values, err := tx.Get("a")
		require.Nil(t, values[0])
		tx.Put("a", []byte("+"), time.Hour)
		return err
	}))
	require.Greater(t, time.Since(began), sqlstore.Standstill*time.Second/2, "it did not wait")
	close(goOn)
	saved := "+"
	if <-ended == nil {
		saved = "++" // MySQL says why the connection was closed, so it was repeated
	}
	was, _, err := add(fast, "a", nil)
	require.NoError(t, err)
	require.Equal(t, saved, was)
}

// TestDeadlocks: a transaction that the server undoes because of a deadlock is repeated, as is one that has waited for too long.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := open(t, dsn)
	store := sqlstore.NewDatabase(open(t, dsn+"&innodb_lock_wait_timeout=1"))
	for _, key := range []string{"a", "b"} {
		_, _, err := add(store, key, nil)
		require.NoError(t, err)
	}
	calls := 0
	var other *sql.Tx
	err := store.Transact(t.Context(), "group", []string{"a", "b"}, func(tx rowstore.Tx) error {
		if calls++; calls == 1 {
			var err error
			other, err = db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			// It has done more, so it is not the one that the server undoes.
			_, err = other.Exec("INSERT INTO throttle_rows (name, value, minute) VALUES ('1', '', 1), ('2', '', 1), ('3', '', 1), ('4', '', 1)")
			require.NoError(t, err)
			_, err = other.Exec("UPDATE throttle_rows SET value = 'other' WHERE name = 'b'")
			require.NoError(t, err)
			go func() {
				_, err := other.Exec("UPDATE throttle_rows SET value = 'other' WHERE name IN ('a', 'group group')")
				err = errors.Join(err, other.Commit())
				if err != nil {
					t.Error(err)
				}
			}()
		}
		tx.Put("b", []byte("new"), time.Hour)
		tx.Put("a", []byte("new"), time.Hour)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, calls, 1)
	was, _, err := add(store, "b", nil)
	require.NoError(t, err)
	require.Equal(t, "new", was)

	other, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.Exec("SELECT * FROM throttle_rows WHERE name = 'a' FOR UPDATE")
	require.NoError(t, err)
	calls = 0
	require.NoError(t, store.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
		if calls++; calls == 2 {
			require.NoError(t, other.Rollback())
		}
		tx.Put("a", []byte("later"), time.Hour)
		return nil
	}))
	require.Equal(t, 2, calls)
}

// TestGroupsThatAreNew: callers that use a group for the first time do not deadlock.
func TestGroupsThatAreNew(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	var all sync.WaitGroup
	for range 8 {
		db := sqlstore.NewDatabase(open(t, dsn))
		all.Go(func() {
			for i := range 20 {
				calls := 0
				if err := db.Transact(t.Context(), fmt.Sprint("group", i), nil, func(tx rowstore.Tx) error {
					calls++
					tx.Put(fmt.Sprint("row", i), []byte("a"), time.Hour)
					return nil
				}); err != nil || calls != 1 {
					t.Errorf("%d calls, %v", calls, err)
				}
			}
		})
	}
	all.Wait()
}

// TestConnectionsAreLeftAsTheyWere: programs may use the same pool for other work.
func TestConnectionsAreLeftAsTheyWere(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := open(t, dsn+"&wait_timeout=77&net_write_timeout=66&innodb_lock_wait_timeout=55&lock_wait_timeout=44")
	db.SetMaxOpenConns(1)
	read := func() (state string) {
		level := "@@tx_isolation"
		if _, err := db.ExecContext(t.Context(), "DO @@tx_isolation"); err != nil {
			level = "@@transaction_isolation" // MySQL's
		}
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT CONCAT_WS(' ', CONNECTION_ID(), @@wait_timeout, @@net_write_timeout, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@autocommit, @@time_zone, @@sql_mode, "+level+")").Scan(&state))
		return state
	}
	store, before := sqlstore.NewDatabase(db), read()
	require.Contains(t, before, " 77 66 55 44 ")
	_, _, err := add(store, "a", nil)
	require.NoError(t, err)
	require.NoError(t, store.Read(t.Context(), "group", []string{"a"}, func(rowstore.Tx) error { return nil }))
	no := errors.New("no")
	require.ErrorIs(t, store.Transact(t.Context(), "group", nil, func(rowstore.Tx) error { return no }), no)
	require.Equal(t, before, read())
}

// TestRowsAreRemoved when they do not matter any more, and no others.
func TestRowsAreRemoved(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := open(t, dsn)
	store := sqlstore.NewDatabase(db)
	_, _, err := add(store, "new", nil)
	require.NoError(t, err)
	var text strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&text, ",('old%d', '', %d)", i, time.Now().Unix()/60-1)
	}
	exec(t, db, "INSERT INTO throttle_rows (name, value, minute) VALUES "+text.String()[1:])
	sqlstore.Sweep(store, time.Now())
	require.Equal(t, 2502, number(t, db, "SELECT COUNT(*) FROM throttle_rows"), "twice in a minute")
	sqlstore.Sweep(store, time.Now().Add(time.Minute))
	require.Eventually(t, func() bool { return number(t, db, "SELECT COUNT(*) FROM throttle_rows") <= 2 }, time.Minute, time.Millisecond)
	sqlstore.Sweep(store, time.Now().Add(59*time.Minute))
	was, _, err := add(store, "new", nil)
	require.NoError(t, err)
	require.Equal(t, "+", was)

	exec(t, db, fmt.Sprintf("INSERT INTO throttle_rows (name, value, minute) VALUES ('late', '', %d)", time.Now().Unix()/60-1))
	another := sqlstore.NewDatabase(db)
	sqlstore.Sweep(another, time.Now().Add(-2*time.Minute))
	_, _, err = add(another, "new", nil) // sweeps, because its database has not for a minute
	require.NoError(t, err)
	require.Eventually(t, func() bool { return number(t, db, "SELECT COUNT(*) FROM throttle_rows WHERE name = 'late'") == 0 }, time.Minute, time.Millisecond)
}

// TestErrors say what to do.
func TestErrors(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.Shared(t)
	db := open(t, dsn)
	try := func(dsn string) error {
		_, _, err := add(sqlstore.NewDatabase(open(t, dsn)), "a", nil)
		return err
	}
	require.ErrorContains(t, try(dsn), "sqlstore.CreateTable")
	require.NoError(t, sqlstore.CreateTable(t.Context(), db))
	require.NoError(t, sqlstore.CreateTable(t.Context(), db), "it is there")
	require.ErrorContains(t, try(dsn+"&autocommit=0"), "autocommit=0")

	c, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	user := c.DBName + "user"
	exec(t, db, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE ON "+c.DBName+".throttle_rows TO "+user+"@'%'")
	c.User, c.Passwd = user, "secret"
	less := sqlstore.NewDatabase(open(t, c.FormatDSN()))
	_, _, err = add(less, "a", nil)
	require.NoError(t, err, "DELETE is for rows that do not matter any more")
	exec(t, db, "REVOKE UPDATE ON "+c.DBName+".throttle_rows FROM "+user+"@'%'")
	require.ErrorContains(t, try(c.FormatDSN()), "needs SELECT, INSERT, UPDATE and DELETE")
	require.ErrorContains(t, sqlstore.CreateTable(t.Context(), open(t, c.FormatDSN())), "CreateTable needs CREATE")
	exec(t, db, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+c.DBName+".throttle_rows TO "+user+"@'%'")
	require.NoError(t, try(c.FormatDSN()))
}

// TestContextEnds: a transaction that waits for a lock ends with its context.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := open(t, dsn)
	store := sqlstore.NewDatabase(db)
	_, _, err := add(store, "a", nil)
	require.NoError(t, err)
	other, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.Exec("SELECT * FROM throttle_rows FOR UPDATE")
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	require.ErrorIs(t, store.Transact(ctx, "group", nil, func(rowstore.Tx) error { return nil }), context.DeadlineExceeded)
	require.NoError(t, other.Rollback())
	was, _, err := add(store, "a", nil)
	require.NoError(t, err)
	require.Equal(t, "+", was)
}
