//go:build unix

package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestP1_ClockIsReadAfterTheLock: the time of a transaction is not from before it waited for another one, and the
// moment at which it was asked for is neither later than that nor long before.
func TestP1_ClockIsReadAfterTheLock(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db, admin := sqlstore.NewDatabase(open(t, dsn)), open(t, dsn)
	const held = 200 * time.Millisecond
	var lost error
	for range 10 {
		locked, goOn, released := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() { released <- holds(t, db, locked, goOn) }()
		<-locked
		called := time.Now()
		var now, asked, had time.Time
		ended := make(chan error, 1)
		go func() {
			ended <- db.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
				now, asked, had = tx.Now(), tx.(rowstore.Asker).Asked(), time.Now()
				return nil
			})
		}()
		require.Eventually(t, func() bool { return number(t, admin, waitForRows) == 1 || len(released) > 0 }, time.Minute, time.Millisecond)
		time.Sleep(held) // the wait has to be longer than what the machine stalls for between two lines
		last := time.Now()
		close(goOn)
		require.NoError(t, <-ended)

		// On a busy machine the first program may stand still for as long as the server waits. Then the lock was free before.
		lost = <-released
		if lost == nil {
			require.False(t, now.Before(last), "the server has the clock of this machine")
			require.WithinRange(t, asked, called.Add(held), had)
			require.Less(t, asked.Sub(now), 10*time.Millisecond, "it was asked before it answered")
			return
		}
	}
	require.NoError(t, lost)
}

// waitForRows counts the statements that wait for the row of a group.
const waitForRows = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT 1 FROM throttle_rows%'"

// holds has a transaction lock the group until goOn is closed, and returns an error if it has lost the lock before. It does not stand still: the
// server hears of it again and again.
func holds(t *testing.T, db rowstore.Database, locked chan<- struct{}, goOn <-chan struct{}) error {
	calls := 0
	return db.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
		calls++
		if calls > 1 {
			return errors.New("the lock was lost")
		}
		close(locked)
		for i := 0; ; i++ {
			select {
			case <-goOn:
				return nil
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := tx.Get(fmt.Sprint("none ", i)); err != nil {
				return err
			}
		}
	})
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

// impatient has each wait for a lock end after a second, so that a transaction waits 21 seconds in all, however busy the machine is.
const impatient = "&innodb_lock_wait_timeout=1"

// TestP8_HolderStandsStill: a program that has locked a group stands still. Others go on after a second, and
// what the program does when it goes on is not saved.
func TestP8_HolderStandsStill(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	slow, fast := sqlstore.NewDatabase(open(t, dsn)), sqlstore.NewDatabase(open(t, dsn+impatient))
	locked, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	began := time.Now() // before the server's clock starts
	go func() {
		_, _, err := add(slow, "a", sync.OnceFunc(func() {
			close(locked)
			<-goOn
		}))
		ended <- err
	}()
	<-locked

	// If the server did not end the session, this transaction would fail after its last wait for the lock.
	require.NoError(t, fast.Transact(t.Context(), "group", []string{"a"}, func(tx rowstore.Tx) error {
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

// TestAMissingGroupIsNoSuccess: a try that has only made the row of its group has not run the transaction. If no other try follows, it is certain
// that nothing was saved.
func TestAMissingGroupIsNoSuccess(t *testing.T) {
	t.Parallel()
	tries := 0
	makesGroup := func() (bool, error) { tries++; return true, nil }
	err := sqlstore.Repeat(t.Context(), makesGroup)
	require.ErrorIs(t, err, rowstore.ErrNotSaved)
	require.ErrorIs(t, err, rowstore.ErrAway)
	require.Equal(t, sqlstore.MaxRepeats+1, tries)

	ctx, leave := context.WithCancel(t.Context())
	leave()
	tries = 0
	err = sqlstore.Repeat(ctx, makesGroup)
	require.ErrorIs(t, err, rowstore.ErrNotSaved)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, tries)
}

// TestDeadlocks: a transaction that the server undoes because of a deadlock is repeated, as is one that has waited for too long.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	db := open(t, dsn)
	store := sqlstore.NewDatabase(open(t, dsn+impatient))
	for _, key := range []string{"a", "b"} {
		_, _, err := add(store, key, nil)
		require.NoError(t, err)
	}
	calls := 0
	var other *sql.Tx
	err := store.Transact(t.Context(), "group", []string{"a", "b"}, func(tx rowstore.Tx) error {
		calls++
		if calls == 1 {
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
		calls++
		if calls == 2 {
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

	// The server's clock was an hour ahead, and is set back.
	sqlstore.Sweep(store, time.Now().Add(time.Hour))
	exec(t, db, fmt.Sprintf("INSERT INTO throttle_rows (name, value, minute) VALUES ('back', '', %d)", time.Now().Unix()/60-1))
	sqlstore.Sweep(store, time.Now())
	require.Eventually(t, func() bool { return number(t, db, "SELECT COUNT(*) FROM throttle_rows WHERE name = 'back'") == 0 }, time.Minute, time.Millisecond)

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

// An endingContext ends when a flag is set, and tells nobody who does not ask. If it is late, only its deadline has passed then.
type endingContext struct {
	context.Context
	over *atomic.Bool
	late bool
}

func (c endingContext) Err() error {
	if c.over.Load() && !c.late {
		return context.Canceled
	}
	return nil
}

func (c endingContext) Deadline() (end time.Time, ok bool) {
	return time.Now(), c.over.Load() && c.late
}

// A lastConn breaks when it is to send a transaction, and then a context is over.
type lastConn struct {
	net.Conn
	over *atomic.Bool
}

func (c lastConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("FOR UPDATE")) {
		c.over.Store(true)
		return 0, errCut
	}
	return c.Conn.Write(b)
}

// TestContextEndsWithTheConnection: a context ends while its connection breaks, or breaks the connection. The error is that of the context.
func TestContextEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(table(t))
	require.NoError(t, err)
	var over atomic.Bool
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return lastConn{conn, &over}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for late, want := range map[bool]error{false: context.Canceled, true: context.DeadlineExceeded} {
		over.Store(false)
		err := sqlstore.NewDatabase(db).Transact(endingContext{context.Background(), &over, late}, "group", nil, func(rowstore.Tx) error { return nil })
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, rowstore.ErrAway)
	}
}

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

// A tornConn loses its server when it is to send the rows of a transaction, once, after a part of them.
type tornConn struct {
	net.Conn
	part func(length int) int
	next *atomic.Bool
}

func (c *tornConn) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), "INSERT INTO throttle_rows") || !c.next.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}

	n, err := c.Conn.Write(b[:c.part(len(b))])
	if err == nil {
		err = errors.Join(c.Conn.Close(), &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET})
	}
	return n, err
}

// TestP8_RowsThatAreNotSent: the connection is lost before the server has got all of the rows, because the program stood still, for example. Nothing
// was saved, so the transaction is made again.
func TestP8_RowsThatAreNotSent(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func(int) int{
		"none of them": func(int) int { return 0 },
		"half of them": func(length int) int { return length / 2 },
		"nearly all":   func(length int) int { return length - 1 },
	} {
		config, err := mysql.ParseDSN(table(t))
		require.NoError(t, err)

		next := new(atomic.Bool)
		config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &tornConn{conn, part, next}, err
		}
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		pool := sql.OpenDB(connector)
		db := sqlstore.NewDatabase(pool)

		for i := range 3 {
			next.Store(i == 1)
			was, _, err := add(db, "a", nil)
			require.NoError(t, err, name)
			require.Equal(t, strings.Repeat("+", i), was, name)
			require.False(t, next.Load(), name)
		}
		require.NoError(t, pool.Close())
	}
}

// An unreadConn reads nothing while its program stands still.
type unreadConn struct {
	net.Conn
	stands *atomic.Bool
	ended  <-chan struct{}
}

func (c *unreadConn) Read(b []byte) (int, error) {
	if c.stands.Load() {
		<-c.ended
	}
	return c.Conn.Read(b)
}

// TestP8_UnreadAnswer: a program that has locked a group stands still, and the server has more to send to it than the network takes. Others
// go on all the same.
func TestP8_UnreadAnswer(t *testing.T) {
	t.Parallel()
	soak.Only(t)                      // it takes as long as the server waits for a program
	const rows, length = 800, 8 << 10 // more than the buffers of a connection hold
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Params = map[string]string{"net_write_timeout": "3600"} // the server's own patience ends nothing here

	var stands atomic.Bool
	ended := make(chan struct{})
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		return &unreadConn{conn, &stands, ended}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	slow, fast := sqlstore.NewDatabase(db), sqlstore.NewDatabase(open(t, dsn+impatient))

	var keys []string
	for i := range rows {
		keys = append(keys, fmt.Sprint("row-", i))
	}
	for i := 0; i < rows; i += 10 { // so few that the program does not stand still for long between the trips
		require.NoError(t, fast.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
			for _, key := range keys[i : i+10] {
				tx.Put(key, make([]byte, length), time.Hour)
			}
			return nil
		}))
	}
	_, _, err = add(slow, "a", nil)
	require.NoError(t, err)

	stands.Store(true)
	standing, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = slow.Transact(standing, "group", keys, func(rowstore.Tx) error { return nil })
	}()
	root := open(t, dsn)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, root.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query' AND info LIKE 'SELECT TIMESTAMPDIFF%'").Scan(&n))
		return n > 0
	}, time.Minute, time.Millisecond, "the server is not sending")
	// If the server did not end the session, this transaction would fail after its last wait for the lock.
	require.NoError(t, fast.Transact(t.Context(), "group", []string{"a"}, func(tx rowstore.Tx) error {
		_, err := tx.Get("a")
		tx.Put("a", []byte("+"), time.Hour)
		return err
	}))
	leave()
	close(ended)
	<-left
}

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
		return number(t, root, waitForRows) == 0
	}, 30*time.Second, 10*time.Millisecond, "statements wait that nobody waits for")
	require.NoError(t, other.Rollback())
}

// TestWrongSetUp: how connections are set up is refused at once where a step would take eight round trips, or would not be
// saved, with what to write. All mistakes are told together.
func TestWrongSetUp(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	plain := strings.Replace(dsn, "?multiStatements=true", "", 1)
	const line, leave = `add multiStatements=true to the data source name, as in "user:password@tcp(host:3306)/database?multiStatements=true"`, "leave autocommit out of the data source name"
	for _, c := range []struct {
		dsn   string
		o     sqlstore.Options
		wrong []string
	}{
		{dsn, sqlstore.Options{}, nil},
		{dsn + "&interpolateParams=true&parseTime=true", sqlstore.Options{Rows: rowstore.Options{Lease: time.Second}}, nil},
		{plain, sqlstore.Options{}, []string{line}},
		{plain + "?multiStatements=false", sqlstore.Options{}, []string{line}},
		{plain + "?interpolateParams=true", sqlstore.Options{}, []string{line}},
		{dsn + "&autocommit=0", sqlstore.Options{}, []string{leave}},
		{dsn, sqlstore.Options{Rows: rowstore.Options{Rows: -1}}, []string{"rowstore: Options.Rows: -1 is negative"}},
		{plain + "?autocommit=0", sqlstore.Options{Rows: rowstore.Options{Lease: 10}}, []string{leave, line, "rowstore: Options.Lease: 10ns is too short"}},
	} {
		s, err := sqlstore.New(open(t, c.dsn), c.o)
		require.Equal(t, len(c.wrong) == 0, err == nil, "%s: %v", c.dsn, err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, wrong)
			require.ErrorAs(t, err, new(*store.OptionError))
			require.Equal(t, 1, strings.Count(err.Error(), wrong))
		}
	}

	_, err := sqlstore.New(nil, sqlstore.Options{Rows: rowstore.Options{Rows: -1}})
	require.ErrorContains(t, err, "sqlstore: db: is nil")
	require.ErrorContains(t, err, "rowstore: Options.Rows")
}

// TestRefusedLogin: what the server refuses is told by New, and a server that is away is not.
func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	_, err := sqlstore.New(open(t, strings.Replace(table(t), "root@", "nobody:secret@", 1)), sqlstore.Options{})
	require.ErrorContains(t, err, "Access denied")
	require.NotContains(t, err.Error(), "secret")

	s, err := sqlstore.New(open(t, "root@tcp(127.0.0.1:1)/none"), sqlstore.Options{})
	require.NoError(t, err)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorIs(t, err, rowstore.ErrAway)
}

// TestStandsStillWhenOpened: a server that does not answer holds New for a moment only. A wrong name is then told by the
// first booking, at once, and not waited for.
func TestStandsStillWhenOpened(t *testing.T) {
	t.Parallel()
	plain := strings.Replace(table(t), "?multiStatements=true", "", 1)
	db := open(t, plain)
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	s, err := sqlstore.New(db, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, held.Close())
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: store.AnyWait})
	require.ErrorAs(t, err, new(*store.OptionError))
	require.ErrorContains(t, err, "multiStatements=true")
}

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

// A countingConn counts the writes with a text.
type countingConn struct {
	net.Conn
	text  string
	count *atomic.Int32
}

func (c countingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		c.count.Add(1)
	}
	return c.Conn.Write(b)
}

// TestP12_GroupMayNotBeMade: a server that refuses to make the row of a group is asked once, and not again and again.
func TestP12_GroupMayNotBeMade(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	user := config.DBName + "user@'%'"
	exec(t, open(t, dsn), "CREATE USER "+user+" IDENTIFIED BY 'secret'", "GRANT SELECT, UPDATE, DELETE ON "+config.DBName+".throttle_rows TO "+user)
	config.User, config.Passwd = config.DBName+"user", "secret"
	var inserts atomic.Int32
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countingConn{conn, "INSERT IGNORE", &inserts}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })

	_, _, err = add(sqlstore.NewDatabase(pool), "a", nil)
	require.ErrorContains(t, err, "needs SELECT, INSERT, UPDATE and DELETE")
	require.ErrorIs(t, err, rowstore.ErrNotSaved)
	require.EqualValues(t, 1, inserts.Load())
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
