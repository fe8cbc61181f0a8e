// Package rowtest tests a [rowstore.Database]: its promises about transactions, and the whole contract of a
// [store.Store] for stores on it. Only the standard library is used: authors of databases inherit nothing.
//
//	func TestDatabase(t *testing.T) {
//		rowtest.Run(t, func(t *testing.T) rowstore.Database { return mydb.New(address) }, rowstore.Options{})
//		rowtest.Connection(t, address, func(t *testing.T, address string) rowstore.Database { return mydb.New(address) })
//	}
package rowtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// Run tests a Database. It calls open some forty times: each Database that open returns plays the part of a program of its own, and has
// connections of its own. A mutex or a connection that all of them shared would hide that the database does not isolate them. Each check has
// a group and keys of its own, so all Databases may have one table. The options o are those for which the Database is made; Run chooses
// Name and Lease itself.
//
// Most checks run in a bubble of testing/synctest, in which time passes when nothing happens. There the Store
// uses the bubble's clock, not the clock of the Database. The Database itself is opened and runs outside of bubbles: it may
// have goroutines, pauses, and connections of any library.
//
// If a check of [Transactions] fails, the contract is not run: mend what fails first. With -short the contract is run for one store
// only, and not for two.
//
// One mistake stays unseen: a Database that reads the clock (Tx.Now) shortly before it locks the group, or reads the rows. As long as all
// programs do so equally early, their times are still in order. Only a program that stands still between the clock and the lock gets a
// time that is too old.
func Run(t *testing.T, open func(t *testing.T) rowstore.Database, o rowstore.Options) {
	Transactions(t, open, o)
	if t.Failed() {
		return
	}

	s := newSuite(open, o)
	t.Run("contract", func(t *testing.T) {
		db := s.outside(t)
		storetest.RunWithin(t, storetest.Slack{Far: true}, func(t *testing.T) store.Store { return s.stores(t, db, 1, nil)[0] })
	})

	t.Run("contract of two stores", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes long: not with -short")
		}

		db := s.outside(t)
		storetest.RunWithin(t, twostores.Slack, func(t *testing.T) store.Store {
			return twostores.New(s.stores(t, db, 2, nil)...)
		})
	})
}

// Transactions is Run without the contract, which takes a minute on a database. It tests the promises of a Database, and then, if these
// hold, a fleet of stores by the database's clock, and lost replies.
func Transactions(t *testing.T, open func(t *testing.T) rowstore.Database, o rowstore.Options) {
	s := newSuite(open, o)
	if !t.Run("transactions", s.transactions) {
		t.Log("mend the transactions first: what needs them is not run")
		return
	}

	t.Run("fleet", s.fleet)
	t.Run("lost replies", func(t *testing.T) {
		db := s.outside(t)
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				twostores.Differ(t, seed, moves, memstore.New(), twostores.New(s.stores(t, db, 2, loseSome(seed))...))
			})
		}
	})
}

// How much is tried with lost replies.
const (
	seeds = uint64(6) // random runs
	moves = 200       // of each run
)

// A suite tests the Databases that open returns.
type suite struct {
	open func(t *testing.T) rowstore.Database
	with rowstore.Options // of all stores, but for Name and Lease
}

func newSuite(open func(t *testing.T) rowstore.Database, o rowstore.Options) *suite {
	return &suite{open: open, with: o}
}

// store returns a store of a Database. The test ends if the options are wrong.
func (s *suite) store(t *testing.T, db rowstore.Database, o rowstore.Options) *rowstore.Store {
	t.Helper()
	st, err := rowstore.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// outside opens a Database that goroutines in bubbles may call. Call outside itself outside of bubbles.
func (s *suite) outside(t *testing.T) rowstore.Database { return newOutside(t, s.open(t)) }

// stores returns n stores of one Database, in a bubble. They share budgets. fates says what goes wrong: see bubbled.
func (s *suite) stores(t *testing.T, db rowstore.Database, n int, fates func() fate) (all []store.Store) {
	db = inBubble(db, fates)
	o := s.with
	o.Name, o.Lease = rand.Text(), store.MaxAhead
	for range n {
		all = append(all, s.store(t, db, o))
	}
	return all
}

// rows: a row that is put can be got by its key, and put again. A row that was never put is nil.
func (g *group) rows() {
	large := bytes.Repeat([]byte{0, 0xff, '\'', '\\'}, 2048)
	g.transact(func(tx rowstore.Tx) error {
		tx.Put(g.key("large"), large, time.Hour)
		tx.Put(g.key("small"), []byte{0}, time.Hour)
		return nil
	}, g.key("small"))

	// One key is unknown, so a Database that leaves out missing rows gives the wrong order.
	values := g.get(g.key("small"), g.key("none"), g.key("large"))
	if values[1] != nil {
		g.Errorf("Get of a row that does not exist returned %d bytes that are not nil", len(values[1]))
	}

	if !bytes.Equal(values[0], []byte{0}) || !bytes.Equal(values[2], large) {
		g.Fatalf("a transaction put a row of 1 byte and a row of %d bytes, and returned nil. Get of both, with a row that does not exist between them, returned %d and %d bytes, or other bytes: "+
			"is each Put saved? Does Get return values in the order of its keys?", len(large), len(values[0]), len(values[2]))
	}

	g.transact(func(tx rowstore.Tx) error {
		values, err := tx.Get(g.key("large")) // its key is not among the keys of Transact
		if err == nil && !bytes.Equal(values[0], large) {
			g.Errorf("a key that was not known beforehand: %d bytes", len(values[0]))
		}

		tx.Put(g.key("large"), []byte("shorter"), time.Hour)
		return err
	})

	if v := g.get(g.key("large")); string(v[0]) != "shorter" {
		g.Errorf("a row that was put twice: %d bytes", len(v[0]))
	}
}

// errors: Transact returns the error of do, and nothing of the transaction is saved.
func (g *group) errors() {
	no := errors.New("no")
	err := g.db.Transact(g.Context(), g.name, []string{g.key("a")}, func(tx rowstore.Tx) error {
		tx.Put(g.key("a"), []byte("a"), time.Hour)
		return no
	})
	if !errors.Is(err, no) {
		g.Errorf("Transact returned %v, and not the error of do", err)
	}
	if v := g.get(g.key("a")); v[0] != nil {
		g.Errorf("a transaction that ended with an error saved %q", v[0])
	}
}

// names: rows are told apart in a group with the longest name, by the longest keys, which differ in the last byte alone.
func (g *group) names() {
	g.name += strings.Repeat("-_.Zz9", 11)[:64-len(g.name)]

	// A key has 128 bytes: the group's name, a slash, as many k as fit, and the last byte.
	var keys []string
	for _, last := range []string{"a", "A", "b", "-", "_", "."} {
		keys = append(keys, g.key(strings.Repeat("k", 126-len(g.name)))+last)
	}

	g.transact(func(tx rowstore.Tx) error {
		for _, k := range keys {
			tx.Put(k, []byte(k), time.Hour)
		}
		return nil
	}, keys...)

	// Values come in the order of the keys that were asked for, and not in the order of the table.
	slices.Reverse(keys)
	for i, v := range g.get(keys...) {
		if string(v) != keys[i] {
			g.Fatalf("six keys of 128 bytes, which differ in the last byte: a, A, b, -, _ and . Get of the key that ends in %q returned the value of the one that ends in %q. "+
				"Are keys compared byte by byte, with the case of letters, and all 128 bytes? Does Get return the values in the order of its keys?", keys[i][127:], v[max(0, len(v)-1):])
		}
	}
}

// manyRows: a transaction reads and puts as many rows as a Store may read in one step, each as large as the row of a budget may be. n is the
// Rows of Options, or 0 for their default.
func (g *group) manyRows(n int) {
	if n <= 0 {
		n = 256 // the default of Options.Rows
	}

	n += 2 // the rows with the store's news and with the node's last step
	var keys []string
	for i := range n {
		keys = append(keys, g.key(fmt.Sprint(i)))
	}

	value := bytes.Repeat([]byte("v"), 4096)
	ctx, stop := context.WithTimeout(g.Context(), patience)
	defer stop()
	err := g.try(ctx, g.db, func(tx rowstore.Tx) error {
		values, err := tx.Get(keys...)
		if err == nil && len(values) != n {
			return fmt.Errorf("Get of %d keys returned %d values", n, len(values))
		}

		for _, k := range keys {
			tx.Put(k, value, time.Hour)
		}

		return err
	}, keys...)
	if err != nil {
		g.Fatalf("a transaction that reads and puts %d rows of 4,096 bytes: %v. If the database bounds transactions, set Options.Rows, here and in the programs", n, err)
	}

	for i, v := range g.get(keys...) {
		if !bytes.Equal(v, value) {
			g.Fatalf("of a transaction that put %d rows of 4,096 bytes, row %d has %d bytes", n, i, len(v))
		}
	}
}

// keep: a row is there for as long as the keep of its last Put says.
func (g *group) keep() {
	const short, long = time.Second, 5 * time.Second
	begun := time.Now()

	for _, keep := range []time.Duration{short, time.Hour} {
		g.transact(func(tx rowstore.Tx) error {
			tx.Put(g.key("again"), []byte("again"), keep)
			if keep == short {
				tx.Put(g.key("once"), []byte("once"), long)
			}
			return nil
		})
	}

	// Look until the first keep is long over. Each transaction may remove rows whose time is over.
	for end := begun.Add(5 * short / 2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		g.transact(func(tx rowstore.Tx) error {
			tx.Put(g.key("other"), []byte("other"), time.Hour)
			return nil
		})

		v := g.get(g.key("again"), g.key("once"))
		if v[0] == nil {
			g.Fatalf("a row was put with a keep of %v, put again with an hour, and is gone after %v: does each Put set the time anew?", short, time.Since(begun))
		}
		if v[1] == nil && time.Since(begun) < long {
			g.Fatalf("a row that was put with a keep of %v is gone after %v: is the time taken in the right unit, and by one clock?", long, time.Since(begun))
		}
	}
}

// transactions checks the promises of a Database, without a Store.
func (s *suite) transactions(t *testing.T) {
	t.Run("rows", func(t *testing.T) { s.group(t).rows() })
	t.Run("errors", func(t *testing.T) { s.group(t).errors() })
	t.Run("names", func(t *testing.T) { s.group(t).names() })
	t.Run("many rows", func(t *testing.T) { s.group(t).manyRows(s.with.Rows) })
	t.Run("keep", func(t *testing.T) { s.group(t).keep() })
	t.Run("order", func(t *testing.T) { s.group(t).order(!s.with.ManyClocks) })
	t.Run("clock", func(t *testing.T) { s.group(t).clock() })

	// The times of two clocks cannot be compared.
	if !s.with.ManyClocks {
		t.Run("clock after lock", func(t *testing.T) { s.group(t).clockAfterLock() })
	}

	t.Run("skew", func(t *testing.T) { s.group(t).skew() })
	t.Run("overtaken", func(t *testing.T) { s.group(t).overtaken() })
	t.Run("removed", func(t *testing.T) { s.group(t).removed() })
	t.Run("returns", func(t *testing.T) { s.group(t).returns() })
	t.Run("waits", func(t *testing.T) { s.group(t).waits() })
	t.Run("context", func(t *testing.T) { s.group(t).context() })
	t.Run("cancelled", func(t *testing.T) { s.group(t).cancelled() })

	// Here do alone stands still. Connection has the same check with a frozen connection.
	t.Run("standstill", func(t *testing.T) { s.group(t).standstill(func() {}, func() {}) })
	t.Run("reads", func(t *testing.T) { s.group(t).reads(!s.with.ManyClocks) })
	t.Run("news", func(t *testing.T) { s.group(t).news() })
	t.Run("sessions", func(t *testing.T) { s.group(t).sessions() })
}

// group returns a new group for a check, which runs in parallel with other checks.
func (s *suite) group(t *testing.T) *group {
	t.Parallel()
	return &group{t, s.open(t), s.open(t), rand.Text()}
}

// order: no transaction is lost or saved twice and, with one clock, time does not go back from one to the next.
func (g *group) order(oneClock bool) {
	const callers, each = 8, 25
	var mu sync.Mutex
	seen := make(map[uint64]time.Time) // the time of each transaction, by its number

	// Each transaction adds 1 to one number, so the number that it saves is its place in the order.
	var all sync.WaitGroup
	for i := range callers {
		db := []rowstore.Database{g.db, g.other}[i%2]
		all.Go(func() {
			for range each {
				var number uint64
				var now time.Time
				g.transactOn(db, func(tx rowstore.Tx) error {
					values, err := tx.Get(g.key("number"))
					if err != nil {
						return err
					}

					number = 1 + count(values[0])
					now = tx.Now()
					tx.Put(g.key("number"), binary.BigEndian.AppendUint64(nil, number), time.Hour)

					return nil
				}, g.key("number"))

				mu.Lock()
				seen[number] = now
				mu.Unlock()
			}
		})
	}

	all.Wait()
	if len(seen) != callers*each {
		g.Fatalf("of %d transactions %d were lost: another transaction had read the row before, and overwrote it. Does Transact lock the group before it reads, "+
			"or compare what it has read when it saves? A lock in the memory of one program is not enough", callers*each, callers*each-len(seen))
	}

	for i := range uint64(callers * each) {
		if _, ok := seen[i+1]; !ok {
			g.Fatalf("number %d was saved, and no transaction returned that put it: its do was called again, or a call of the database was repeated, though it was saved. "+
				"A commit of which nobody knows whether it was saved must not be repeated: Transact returns an error", i+1)
		}
	}

	// Without a clock for all, the times of programs need not be in order.
	for i := uint64(2); oneClock && i <= callers*each; i++ {
		if seen[i].Before(seen[i-1]) {
			g.Fatalf("transaction %d was at %v, and the transaction before it %v later. Is the clock read before the group is locked or, without a lock, before the rows are read? "+
				"If each server or program has a clock of its own, set Options.ManyClocks", i, seen[i], seen[i-1].Sub(seen[i]))
		}
	}
}

// skew: of two transactions that read the same two rows and put one each, the one that is saved later has read what the other put. That
// holds for a row whose key Transact got beforehand, and for any other row.
func (g *group) skew() {
	for i := range 24 {
		name := rand.Text()
		keys := []string{g.key(name + "-0"), g.key(name + "-1")}
		known := keys[:1+i%2]
		hasRead := []chan struct{}{make(chan struct{}), make(chan struct{})} // closed when a transaction has got both rows

		var both sync.WaitGroup
		for me, db := range []rowstore.Database{g.db, g.other} {
			var once sync.Once
			both.Go(func() {
				err := db.Transact(g.Context(), g.name, known, func(tx rowstore.Tx) error {
					first, err := tx.Get(keys[0])
					if err != nil {
						return err
					}

					second, err := tx.Get(keys[1])
					if err != nil {
						return err
					}

					// Without a lock both read before one of them is saved. With a lock the other one cannot read yet.
					once.Do(func() {
						close(hasRead[me])
						select {
						case <-hasRead[1-me]:
						case <-time.After(20 * time.Millisecond):
						}
					})

					if first[0] == nil && second[0] == nil {
						tx.Put(keys[me], []byte("first"), time.Hour)
					}

					return nil
				})

				// On a busy machine the database may have ended the transaction because it stood still.
				if err != nil && !errors.Is(err, rowstore.ErrAway) {
					g.Errorf("Transact: %v", err)
				}
			})
		}

		both.Wait()
		if v := g.get(keys...); v[0] != nil && v[1] != nil {
			g.Fatalf("two transactions of a group have read the same two rows, and each put one of them: they are not serializable. "+
				"A transaction that compares and swaps has to compare all rows that it read (Transact knew %d of the two beforehand), not only those that it puts", len(known))
		}
	}
}
