//go:build unix

package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// put is a transaction that saves a row.
func put(tx rowstore.Tx) error {
	tx.Put("g/a", []byte("value"), time.Hour)
	return nil
}

// TestTransact: what becomes of transactions that the server refuses, undoes, or of which nobody knows.
func TestTransact(t *testing.T) {
	server := newServer(t)
	admin := connect(t, server)
	newDB := func(t *testing.T) rowstore.Database { return pgstore.NewDatabase(t, server.URL(), pgstore.Options{}) }

	t.Run("undone", func(t *testing.T) {
		for code, times := range map[string]int{"40001": 3, "40P01": 3, "23505": 1} {
			exec(t, admin, `CREATE SEQUENCE test_tries; CREATE FUNCTION test_undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('test_tries') < 3 THEN RAISE 'undone' USING ERRCODE = '`+code+`'; END IF; RETURN NEW;
			END $$; CREATE TRIGGER test_undo BEFORE INSERT ON throttle.budgets FOR EACH ROW EXECUTE FUNCTION test_undo()`)
			calls := 0
			err := newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
				calls++
				return put(tx)
			})
			require.Equal(t, times, calls, code)
			require.Equal(t, times == 1, err != nil, code)
			exec(t, admin, "DROP TRIGGER test_undo ON throttle.budgets; DROP FUNCTION test_undo; DROP SEQUENCE test_tries")
		}
	})

	t.Run("the COMMIT is lost", func(t *testing.T) {
		r := newRelay(t, server)
		var loses atomic.Bool
		r.lose = func() bool { return loses.CompareAndSwap(true, false) }
		calls := 0
		err := pgstore.NewDatabase(t, r.url(t, server), pgstore.Options{}).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			calls++
			loses.Store(true)
			return put(tx)
		})
		require.ErrorIs(t, err, rowstore.ErrAway)
		require.Equal(t, 1, calls, "it may have been saved")
	})

	t.Run("given up by the server", func(t *testing.T) {
		err := newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			_, err := tx.Get("\xff")
			require.Error(t, err)
			return nil
		})
		require.ErrorContains(t, err, "COMMIT was answered by ROLLBACK")
	})

	t.Run("warning of something else", func(t *testing.T) {
		require.NoError(t, newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			require.NoError(t, pgstore.Exec(tx, "DO $$ BEGIN RAISE WARNING 'of no concern'; END $$"))
			return put(tx)
		}))
	})

	t.Run("dead connections", func(t *testing.T) {
		db := newDB(t)
		for range 2 {
			require.NoError(t, db.Transact(t.Context(), "g", nil, put))
			kill(t, admin)
			require.NoError(t, db.Transact(t.Context(), "g", nil, put), "it was lost before anything was sent")
			kill(t, admin)
			require.NoError(t, db.(rowstore.Reader).Read(t.Context(), "g", nil, func(rowstore.Tx) error { return nil }))
		}
	})

	t.Run("connections", func(t *testing.T) {
		db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{Connections: 1})
		require.NoError(t, db.Transact(t.Context(), "g", nil, func(rowstore.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := db.Transact(ctx, "other", nil, put)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "all connections are in use")
			return nil
		}))
	})

	t.Run("defaults of the role", func(t *testing.T) {
		url := server.URL() + "&default_transaction_read_only=on&default_transaction_isolation=serializable"
		db := pgstore.NewDatabase(t, url, pgstore.Options{})
		for range 2 {
			require.NoError(t, db.Transact(t.Context(), "g", nil, put))
		}
	})

	t.Run("many nodes are woken", func(t *testing.T) {
		require.NoError(t, newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			for i := range 1000 {
				tx.(rowstore.Waker).Wake(fmt.Sprintf("a-node-with-a-long-name-%d", i))
			}
			return nil
		}))
	})

	t.Run("sweeps", func(t *testing.T) {
		db := newDB(t)
		require.NoError(t, db.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			tx.Put("g/old", nil, -time.Hour)
			return nil
		}))
		pgstore.SweepNext(db)
		require.NoError(t, db.Transact(t.Context(), "g", nil, put))
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM throttle.budgets WHERE key = 'g/old'").Scan(&n))
			return n == 0
		}, time.Minute, time.Millisecond)
	})

	t.Run("refused", func(t *testing.T) {
		exec(t, admin, "CREATE SCHEMA newer; CREATE TABLE newer.version AS SELECT 2 AS version")
		for url, schema := range map[string]string{
			server.URL(): "newer", // another version
			fmt.Sprintf("postgres://nobody@%s/postgres", server.Addr()): "",
			fmt.Sprintf("postgres://test@%s/nowhere", server.Addr()):    "",
			server.URL() + "&search_path=public":                        "none",
		} {
			s, err := pgstore.New(url, pgstore.Options{Schema: schema})
			require.NoError(t, err)
			_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: time.Minute})
			require.Error(t, err)
			require.NotErrorIs(t, err, rowstore.ErrAway, "nobody waits for an administrator")
		}
	})
}

// kill ends the sessions of programs, and waits until they have ended.
func kill(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = 'throttle'`).Scan(&n))
		return n == 0
	}, time.Minute, time.Millisecond)
}

// A tornConn loses the end of what is written, and all that comes later. The server is not told, as if the network
// had failed in the middle of a trip.
type tornConn struct {
	net.Conn
	next *atomic.Bool // the next trip of a step is torn
	torn atomic.Bool
}

// syncLength is that of the message that ends a trip.
const syncLength = 5

func (c *tornConn) Write(b []byte) (int, error) {
	if c.torn.Load() {
		return len(b), nil
	}
	if bytes.Contains(b, []byte("/node-")) && c.next.CompareAndSwap(true, false) {
		c.torn.Store(true)
		_, err := c.Conn.Write(b[:len(b)-syncLength])
		return len(b), err
	}
	return c.Conn.Write(b)
}

func (c *tornConn) Close() error {
	if c.torn.Load() {
		return nil
	}
	return c.Conn.Close()
}

// TestP12_TornTrip: a program has the lock, and the server has not got the end of the program's trip. Then the server does
// not count how long the program stands still. Others go on all the same: whoever waits in vain for the lock ends that session.
func TestP12_TornTrip(t *testing.T) {
	soak.Only(t) // it takes as long as programs wait for a lock
	server := newServer(t)
	admin := connect(t, server)

	var next atomic.Bool
	stands := pgstore.NewDatabase(t, server.URL(), pgstore.Options{BeforeConnect: func(_ context.Context, c *pgx.ConnConfig) error {
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return &tornConn{Conn: conn, next: &next}, err
		}
		return nil
	}})
	others := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	for _, db := range []rowstore.Database{stands, others} { // statements are prepared now
		require.NoError(t, db.Transact(t.Context(), "g", []string{"g/node-1"}, put))
	}

	next.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() { left <- stands.Transact(ctx, "g", []string{"g/node-1"}, put) }()

	holders := func() (n int) {
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE granted AND mode = 'ExclusiveLock'
			AND relation = to_regclass($1)`, pgstore.LockTable(stands, "g")).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return holders() == 1 }, time.Minute, time.Millisecond)
	require.False(t, next.Load())
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.Equal(t, 1, holders(), "the server does not know that the program has left")

	// If nobody ended the session, this transaction would fail after its last wait for the lock.
	require.NoError(t, others.Transact(t.Context(), "g", []string{"g/node-1"}, put))
	require.Zero(t, holders())
}

// TestP15_NothingToClose: a connection that nobody uses is closed, and that of the listener soon after nobody listens. A store has
// no other.
func TestP15_NothingToClose(t *testing.T) {
	soak.Only(t)
	server := newServer(t)
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	stop, err := db.(rowstore.Notifier).Listen("g", "me", func() {})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return pgstore.Hears(db) }, time.Minute, time.Millisecond)
	require.NoError(t, db.Transact(t.Context(), "g", nil, put)) // on a connection of its own
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
	err := db.Transact(t.Context(), "g", nil, put) // it has no end of its own
	require.ErrorIs(t, err, rowstore.ErrAway)
	require.ErrorContains(t, err, "lock timeout")
	exec(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
	require.ErrorContains(t, <-busy, "canceling statement")
	exec(t, other, "ROLLBACK")
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
}

// TestP12_TheWaitForTheLockKeepsTheConnection: a transaction that waits too long for the lock, because many others do, ends its wait before its time is over, and goes on
// with its connection. Otherwise new connections would leave a busy server no time for transactions.
func TestP12_TheWaitForTheLockKeepsTheConnection(t *testing.T) {
	server := newServer(t)
	db, admin, other := pgstore.NewDatabase(t, server.URL(), pgstore.Options{}), connect(t, server), connect(t, server)
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
	pids := func() (pids []int32) {
		rows, err := admin.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = 'throttle' ORDER BY pid")
		require.NoError(t, err)
		pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		require.NoError(t, err)
		return pids
	}
	unlocked := "g"
	for pgstore.LockTable(db, unlocked) == pgstore.LockTable(db, "g") {
		unlocked += "g"
	}

	exec(t, other, "BEGIN")
	exec(t, other, "LOCK TABLE "+pgstore.LockTable(db, "g")+" IN EXCLUSIVE MODE")
	done := make(chan struct{})
	go func() { // the session that has the lock does not stand still
		defer close(done)
		_, _ = other.Exec(context.Background(), "SELECT pg_sleep(3600)")
	}()

	var before []int32
	for late, try := true, 1; late; try++ {
		require.NoError(t, db.Transact(t.Context(), unlocked, nil, put))
		require.Eventually(t, func() bool { before = pids(); return len(before) == 1 }, time.Minute, 10*time.Millisecond)
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
		err := db.Transact(ctx, "g", nil, put)
		late = ctx.Err() != nil && try < 10
		stop()

		// On a busy machine the server's answer may come when the time is over, and a connection that was asked for something is lost then.
		if !late {
			require.ErrorIs(t, err, rowstore.ErrAway)
			require.ErrorContains(t, err, "lock timeout")
			require.Equal(t, before, pids())
		}
	}

	exec(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
	<-done
	exec(t, other, "ROLLBACK")
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
	require.Equal(t, before, pids())
}

// TestP10_PlansAreMadeBeforeTheLock: the first transaction of a session has the server make the plans of all later ones, so that no statement costs a trip more
// while the transaction has the lock and other programs wait.
func TestP10_PlansAreMadeBeforeTheLock(t *testing.T) {
	server := pgtest.Start(t)
	require.NoError(t, pgstore.Setup(t.Context(), server.URL(), pgstore.Options{}))
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	require.NoError(t, db.Transact(t.Context(), "g", []string{"key"}, func(rowstore.Tx) error { return nil }))
	prepared, err := pgstore.Prepared(t.Context(), db)
	require.NoError(t, err)
	require.Subset(t, prepared, pgstore.LockedStatements(db))
}

// TestP10_AListenerNeedsOneConnection: without a pooler, the listener finds out over its own connection whether messages arrive.
func TestP10_AListenerNeedsOneConnection(t *testing.T) {
	server := pgtest.Start(t)
	require.NoError(t, pgstore.Setup(t.Context(), server.URL(), pgstore.Options{}))
	var made atomic.Int32
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{BeforeConnect: func(context.Context, *pgx.ConnConfig) error {
		made.Add(1)
		return nil
	}})
	stop, err := db.(rowstore.Notifier).Listen("g", "me", func() {})
	require.NoError(t, err)
	defer stop()
	require.Eventually(t, func() bool { return pgstore.Hears(db) }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, made.Load())
}

// TestP11_ListensAnew: a node begins to listen while the connection of an earlier node still ends. The end of that connection is not the end of the
// new one.
func TestP11_ListensAnew(t *testing.T) {
	server := newServer(t)
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	bell := db.(rowstore.Notifier)
	holds, held, goOn := new(atomic.Bool), make(chan struct{}), make(chan struct{})
	stop, err := bell.Listen("g", "you", func() {
		if holds.CompareAndSwap(true, false) {
			close(held)
			<-goOn
		}
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return pgstore.Hears(db) }, time.Minute, time.Millisecond)

	// A message keeps the connection busy while it ends.
	holds.Store(true)
	require.NoError(t, db.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
		tx.(rowstore.Waker).Wake("you")
		return nil
	}))
	<-held
	stop()
	pgstore.EndIfAlone(db)

	stop, err = bell.Listen("g", "me", func() {})
	require.NoError(t, err)
	defer stop()
	time.Sleep(500 * time.Millisecond) // enough for a second connection, if the listener made one now
	close(goOn)
	time.Sleep(100 * time.Millisecond) // enough for the end of the first
	require.Eventually(t, func() bool { return pgstore.HearsFor(db, "me") }, 20*time.Second, time.Millisecond)
}

// TestP11_Messages: a node hears of each transaction that wakes it or everybody, and of no other, without that anybody looks: what is for another
// node does not reach its program. It hears again when its connection was lost.
func TestP11_Messages(t *testing.T) {
	server := newServer(t)
	r := newRelay(t, server)
	hears := pgstore.NewDatabase(t, r.url(t, server), pgstore.Options{})
	tells := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	woken := make(chan struct{}, 1)
	stop, err := hears.(rowstore.Notifier).Listen("g", "me", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	require.NoError(t, err)
	defer stop()
	await := func() {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody is woken")
		}
	}
	told := 0
	tell := func(group string, nodes ...string) {
		if len(nodes) == 0 || slices.Contains(nodes, "me") {
			told++
		}
		require.NoError(t, tells.Transact(t.Context(), group, nil, func(tx rowstore.Tx) error {
			tx.(rowstore.Waker).Wake(nodes...)
			return nil
		}))
	}
	for range 2 {
		require.Eventually(t, func() bool { return pgstore.Hears(hears) }, time.Minute, time.Millisecond)
		await() // there may have been news before
		tell("g", "me", "you")
		await()
		tell("g")
		await()
		tell("g", "you")
		tell("other")
		require.Eventually(t, func() bool { return pgstore.Heard(hears) == told }, time.Minute, time.Millisecond)
		require.Empty(t, woken)
		r.cut()
		require.Eventually(t, func() bool { return !pgstore.Hears(hears) }, time.Minute, time.Millisecond)
	}

	// While no connection can be made, the node looks itself, again and again.
	server.Kill()
	for len(woken) > 0 {
		<-woken
	}
	for range 4 {
		await()
	}
}
