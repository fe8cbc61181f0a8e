package sqlstore_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/sqlstore"
	"github.com/fleetthrottle/throttle/sqlstore/internal/mysqltest"
)

func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m)) }

// open opens a database, and closes it when the test ends.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// table returns the data source name of a database that has an empty table.
func table(t *testing.T) string {
	t.Helper()
	dsn := mysqltest.Shared(t)
	require.NoError(t, sqlstore.CreateTable(t.Context(), open(t, dsn)))
	return dsn
}

// A bubble is the databases of several stores in a bubble of package synctest: their clock is the bubble's, and
// they tell each other news at once, because a bubble's hours would be very many looks.
type bubble struct {
	arrivals ledger.Arrivals
	mu       sync.Mutex
	wakes    map[string]func() // by node
}

// A bubbleDatabase is that of one of the stores.
type bubbleDatabase struct {
	*bubble
	sqlstore.Database
}

// newBubble empties a table, and returns what opens stores that use it.
func newBubble(t *testing.T, dsn string) func() *rowstore.Store {
	db := open(t, dsn)
	_, err := db.ExecContext(t.Context(), "DELETE FROM throttle_rows")
	require.NoError(t, err)
	b := &bubble{wakes: make(map[string]func())}
	return func() *rowstore.Store {
		return rowstore.New(bubbleDatabase{b, sqlstore.NewDatabase(open(t, dsn))}, &rowstore.Options{Lease: lease})
	}
}

// Arrivals lets stores count arrivals together, as if no two callers came within a microsecond.
func (b *bubble) Arrivals() *ledger.Arrivals { return &b.arrivals }

func (b bubbleDatabase) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	var tx bubbleTx
	err := b.Database.Transact(ctx, group, keys, func(of rowstore.Tx) error {
		tx = bubbleTx{Tx: of, now: time.Now()}
		return do(&tx)
	})
	if err == nil && tx.all {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, wake := range b.wakes {
			wake()
		}
	}
	return err
}

func (b bubbleDatabase) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return b.Database.Read(ctx, group, keys, func(of rowstore.Tx) error { return do(&bubbleTx{Tx: of, now: time.Now()}) })
}

// Listen implements [rowstore.Notifier].
func (b *bubble) Listen(_, node string, wake func()) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakes[node] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.wakes, node)
	}, nil
}

// A bubbleTx has the time of the bubble.
type bubbleTx struct {
	rowstore.Tx
	now time.Time
	all bool
}

func (tx *bubbleTx) Now() time.Time   { return tx.now }
func (tx *bubbleTx) Asked() time.Time { return tx.now }
func (tx *bubbleTx) Wake(...string)   { tx.all = true }
