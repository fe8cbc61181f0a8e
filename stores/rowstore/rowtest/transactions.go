package rowtest

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// transactions checks the promises of a Database, without a Store.
func (s *suite) transactions(t *testing.T) {
	t.Run("rows", func(t *testing.T) { s.group(t).rows() })
	t.Run("errors", func(t *testing.T) { s.group(t).errors() })
	t.Run("names", func(t *testing.T) { s.group(t).names() })
	t.Run("many rows", func(t *testing.T) { s.group(t).manyRows(s.with.Rows) })
	t.Run("keep", func(t *testing.T) { s.group(t).keep() })
	t.Run("order", func(t *testing.T) { s.group(t).order(!s.with.ManyClocks) })
	t.Run("clock", func(t *testing.T) { s.group(t).clock() })
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
	t.Run("standstill", func(t *testing.T) { s.group(t).standstill(func() {}, func() {}) })
	t.Run("reads", func(t *testing.T) { s.group(t).reads(!s.with.ManyClocks) })
	t.Run("news", func(t *testing.T) { s.group(t).news() })
	t.Run("sessions", func(t *testing.T) { s.group(t).sessions() })
}

func (s *suite) group(t *testing.T) *group {
	t.Parallel()
	return &group{t, s.open(t), s.open(t), rand.Text()}
}

// order: no transaction is lost, and time does not go back from one to the next.
func (g *group) order(oneClock bool) {
	const callers, each = 8, 25
	var mu sync.Mutex
	seen := make(map[uint64]time.Time) // the time of each transaction, by its number

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

// skew: two transactions that read the same rows and put different ones do not both find the rows of before, also if they read
// a row of which Transact did not know beforehand.
func (g *group) skew() {
	for i := range 24 {
		name := rand.Text()
		keys := []string{g.key(name + "-0"), g.key(name + "-1")}
		known := keys[:1+i%2]
		have := []chan struct{}{make(chan struct{}), make(chan struct{})} // the rows

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

					once.Do(func() {
						close(have[me])
						select { // without a lock both have read before one of them is saved
						case <-have[1-me]:
						case <-time.After(20 * time.Millisecond):
						}
					})

					if first[0] == nil && second[0] == nil {
						tx.Put(keys[me], []byte("first"), time.Hour)
					}

					return nil
				})
				if err != nil && !errors.Is(err, rowstore.ErrAway) { // it may have been ended because it stood still on a busy machine
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
