//go:build unix

package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/internal/lab/processes"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestTransactions: what a Database promises, and stores on it whose replies are lost.
func TestTransactions(t *testing.T) {
	t.Parallel()
	rowtest.Transactions(t, databases(table(t)), rowstore.Options{})
}

// TestConnection: connections that are lost, that stand still, and that are refused.
func TestConnection(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	rowtest.Connection(t, config.Addr, func(t *testing.T, address string) rowstore.Database {
		c := config.Clone()
		c.Addr = address
		return databases(c.FormatDSN())(t)
	})
}

// TestContract: the contract of stores, one and two of them.
func TestContract(t *testing.T) {
	soak.Only(t)
	rowtest.Run(t, databases(table(t)), rowstore.Options{})
}

func databases(dsn string) func(t *testing.T) rowstore.Database {
	return func(t *testing.T) rowstore.Database { return sqlstore.NewDatabase(open(t, dsn)) }
}

// shared is the store of several processes, with a lease whose end tests see soon, and within which a process of a busy machine comes to renew it.
var shared = processes.Store{
	Role: "sqlstore", Lease: 4 * time.Second,
	Open: func(dsn string, lease time.Duration) (s store.Store, close func(), err error) {
		db, err := openDB(dsn)
		if err != nil {
			return nil, nil, err
		}
		s, err = sqlstore.New(db, sqlstore.Options{Rows: rowstore.Options{Lease: lease}})
		return s, func() { _ = db.Close() }, err
	},
}

// TestProcesses is what processes that share a database are promised.
func TestProcesses(t *testing.T) {
	shared.Run(t, func(t *testing.T) string { return table(t) })
}

func TestMain(m *testing.M) {
	shared.Main()
	os.Exit(mysqltest.Main(m))
}

// open opens a database, and closes it when the test ends.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := openDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func openDB(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }

// table returns the data source name of a database that has an empty table.
func table(t testing.TB) string {
	t.Helper()
	dsn := mysqltest.Shared(t)
	require.NoError(t, sqlstore.CreateTable(t.Context(), open(t, dsn)))
	return dsn
}

// add adds to a row, and returns what the row was and the time.
func add(db rowstore.Database, key string, meanwhile func()) (was string, now time.Time, err error) {
	err = db.Transact(context.Background(), "group", []string{key}, func(tx rowstore.Tx) error {
		values, err := tx.Get(key)
		if err != nil {
			return err
		}
		if meanwhile != nil {
			meanwhile()
		}
		was, now = string(values[0]), tx.Now()
		tx.Put(key, []byte(was+"+"), time.Hour)
		return nil
	})
	return was, now, err
}

// exec runs statements.
func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// number returns the number that a query returns.
func number(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// hourly is a budget of which what is spent stays spent during a test.
func hourly(n int) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: store.PerHour(n), Cost: 1}
}

// book books a start now, if there is one within a moment.
func book(s store.Store, n int, patience time.Duration) (ok bool, err error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	g, err := s.Book(ctx, &store.Booking{Charges: []store.Charge{hourly(n)}})
	return g.OK, err
}

func used(t *testing.T, s store.Store, n int) int {
	t.Helper()
	st, err := s.Status(t.Context(), hourly(n))
	require.NoError(t, err)
	return st.Used
}

// TestP1_ServerIsKilled: starts that callers were told of are there when the server is there again, and the pool's
// connections to the former server are in nobody's way.
func TestP1_ServerIsKilled(t *testing.T) {
	t.Parallel()
	const most = 1_000_000
	server := mysqltest.Start(t)
	dsn := server.Database(t, "one")
	require.NoError(t, sqlstore.CreateTable(t.Context(), open(t, dsn)))
	var told, failed atomic.Int64
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	stores := []store.Store{must(sqlstore.New(open(t, dsn), sqlstore.Options{})), must(sqlstore.New(open(t, dsn), sqlstore.Options{}))}
	for i := range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				switch ok, err := book(stores[i%2], most, time.Minute); {
				case errors.Is(err, syscall.ECONNREFUSED): // nothing was sent
				case err != nil:
					failed.Add(1)
				case ok:
					told.Add(1)
				}
			}
		})
	}
	for range 2 {
		before := told.Load()
		require.Eventually(t, func() bool { return told.Load() > before+100 }, time.Minute, time.Millisecond)
		server.Kill()
		require.NoError(t, server.Run())
	}
	before := told.Load()
	require.Eventually(t, func() bool { return told.Load() > before+100 }, time.Minute, time.Millisecond, "stores do not go on")
	end()
	all.Wait()
	t.Logf("%d starts, %d errors of connections", told.Load(), failed.Load())
	u := used(t, stores[0], most)
	require.GreaterOrEqual(t, u, int(told.Load()), "starts were lost")
	require.LessOrEqual(t, u, int(told.Load()+failed.Load()))
}

// TestPrimary: a server that is not the primary any more is refused by name, and its connections are closed.
func TestPrimary(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t, "one")
	root := open(t, dsn)
	require.NoError(t, sqlstore.CreateTable(t.Context(), root))
	exec(t, root, "CREATE USER program@'%'", "GRANT SELECT, INSERT, UPDATE, DELETE ON one.* TO program@'%'")
	db := open(t, strings.Replace(dsn, "root@", "program@", 1))
	store := sqlstore.NewDatabase(db)
	_, _, err := add(store, "a", nil)
	require.NoError(t, err)
	exec(t, root, "SET GLOBAL read_only = 1")
	_, _, err = add(store, "a", nil)
	require.ErrorContains(t, err, "needs the primary")
	require.Zero(t, db.Stats().OpenConnections)
	exec(t, root, "SET GLOBAL read_only = 0")
	was, _, err := add(store, "a", nil)
	require.NoError(t, err)
	require.Equal(t, "+", was)
}

// TestP8_ServerStandsStill: callers of a server that does not answer wait for as long as they want to, and their stores go on
// when it goes on.
func TestP8_ServerStandsStill(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.Database(t, "one")
	require.NoError(t, sqlstore.CreateTable(t.Context(), open(t, dsn)))
	store := must(sqlstore.New(open(t, dsn), sqlstore.Options{}))
	ok, err := book(store, 10, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, server.Pause())
	_, err = book(store, 10, 100*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, server.Continue())
	ok, err = book(store, 10, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.Eventually(t, func() bool { return used(t, store, 10) == 2 }, time.Minute, time.Millisecond, "the start of the caller that left")
}

// TestP3_LostReplies: a transaction is made once, whether the connection ends before the server has got COMMIT, or before
// its reply has arrived.
func TestP3_LostReplies(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	c := new(cutter)
	store := must(sqlstore.New(c.open(t, dsn), sqlstore.Options{}))
	ok, err := book(store, 10, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	for i, how := range []int32{cutBefore, cutAfter, cutAfter, cutBefore} {
		c.next.Store(how)
		ok, err := book(store, 10, time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, c.next.Load(), "nothing was cut")
		require.Equal(t, i+2, used(t, store, 10))
	}
}

// A cutter cuts connections.
type cutter struct{ next atomic.Int32 }

// How the next connection that commits is cut.
const (
	cutBefore = 1 + iota // COMMIT does not get to the server
	cutAfter             // the reply does not get back
)

var errCut = errors.New("the connection is cut")

func (c *cutter) open(t *testing.T, dsn string) *sql.DB {
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &cutConn{conn, c}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// A cutConn is a connection that a cutter may cut.
type cutConn struct {
	net.Conn
	*cutter
}

func (c *cutConn) Write(b []byte) (int, error) {
	how := int32(0)
	if bytes.Contains(b, []byte("COMMIT")) && !bytes.Contains(b, []byte("READ COMMITTED")) {
		how = c.next.Swap(0)
	}
	if how == cutBefore {
		return 0, errors.Join(errCut, c.Close())
	}
	n, err := c.Conn.Write(b)
	if how == cutAfter && err == nil {
		_, err = c.Read(make([]byte, 1)) // it has answered
		err = errors.Join(err, c.Close())
	}
	return n, err
}
