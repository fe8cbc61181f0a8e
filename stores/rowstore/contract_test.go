package rowstore_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestDatabase: stores on a database that can do all that a database may be able to do.
func TestDatabase(t *testing.T) {
	one := newMemory()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return notifier{one} }, rowstore.Options{})
}

// TestServerOnABusyMachine: minutes pass for a server while no time passes in a bubble, because the machine has other work. The
// checks in bubbles do not depend on that.
func TestServerOnABusyMachine(t *testing.T) {
	passed := time.Duration(0)
	one := newMemory()
	one.clock = func() time.Time {
		now := time.Now()
		if now.Year() < 2020 { // in a bubble
			passed += 10 * time.Minute
			now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(passed)
		}
		return now
	}
	rowtest.Transactions(t, func(*testing.T) rowstore.Database { return notifier{one} }, rowstore.Options{})
}

// TestContractOfTwoStores: two nodes, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	storetest.RunWithin(t, twostores.Slack, func(*testing.T) store.Store {
		m, o := notifier{newMemory()}, rowstore.Options{Lease: store.MaxAhead}
		return twostores.New(must(rowstore.New(m, o)), must(rowstore.New(m, o)))
	})
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestOptimisticDatabase: stores on a database without locks and without news, whose transactions
// are refused if what they read has changed.
func TestOptimisticDatabase(t *testing.T) {
	one := newOptimistic()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return one }, rowstore.Options{})
}

// An optimistic is a Database of a test that compares and swaps.
type optimistic struct {
	arrivals ledger.Arrivals

	mu       sync.Mutex
	rows     map[string][]byte
	versions map[string]int

	// commit is called in place of saving a transaction, with what saves it. With nil the transaction is saved.
	commit func(tx *optimisticTx, save func() bool) (saved bool, err error)
}

func newOptimistic() *optimistic {
	return &optimistic{rows: make(map[string][]byte), versions: make(map[string]int)}
}

// Arrivals lets stores count arrivals together.
func (m *optimistic) Arrivals() *ledger.Arrivals { return &m.arrivals }

type optimisticTx struct {
	*optimistic
	now  time.Time
	read map[string]int // versions
	put  map[string][]byte
}

func (tx *optimisticTx) Now() time.Time {
	if tx.now.IsZero() {
		tx.now = time.Now()
	}
	return tx.now
}

// Get implements [rowstore.Tx]. The version of a row that counts is the one of its first Get.
func (tx *optimisticTx) Get(keys ...string) ([][]byte, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	all := make([][]byte, len(keys))
	for i, k := range keys {
		if _, ok := tx.read[k]; !ok {
			tx.read[k] = tx.versions[k]
		}
		all[i] = tx.rows[k]
	}
	return all, nil
}

func (tx *optimisticTx) Put(key string, value []byte, _ time.Duration) { tx.put[key] = value }

// save saves the transaction, if nothing that it read has changed.
func (tx *optimisticTx) save() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for k, v := range tx.read {
		if tx.versions[k] != v {
			return false
		}
	}
	for k := range tx.put {
		tx.versions[k]++
	}
	maps.Copy(tx.rows, tx.put)
	return true
}

// Transact implements [rowstore.Database].
func (m *optimistic) Transact(ctx context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	for ctx.Err() == nil {
		tx := &optimisticTx{optimistic: m, read: make(map[string]int), put: make(map[string][]byte)}
		if err := do(tx); err != nil {
			return err
		}
		saved, err := m.end(tx)
		if saved || err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// end ends a transaction by commit, or saves it if there is none.
func (m *optimistic) end(tx *optimisticTx) (saved bool, err error) {
	if m.commit != nil {
		return m.commit(tx, tx.save)
	}
	return tx.save(), nil
}
