package rowtest

import (
	"bytes"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// reads: Read sees all rows that were saved before it was called, in a second program, too.
func (g *group) reads(oneClock bool) {
	r, ok := g.other.(rowstore.Reader)
	if !ok {
		g.Skip("the Database is no Reader: nodes look in transactions")
	}

	for i := range byte(20) {
		var now time.Time
		g.transact(func(tx rowstore.Tx) error {
			_, err := tx.Get(g.key("a"))
			now = tx.Now()
			tx.Put(g.key("a"), []byte{i}, time.Hour)
			return err
		})

		if err := r.Read(g.Context(), g.name, []string{g.key("a"), g.key("none")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("none"), g.key("a"))
			if err == nil && (values[0] != nil || !bytes.Equal(values[1], []byte{i})) {
				g.Errorf("Read got %v after %d was saved: does it read from a replica, or in a transaction that began before?", values, i)
			}
			if at := tx.Now(); oneClock && at.Before(now) {
				g.Errorf("Read was at %v, and the transaction before it %v later: is the clock of Read the database's, and read after the call?", at, now.Sub(at))
			}

			return err
		}); err != nil {
			g.Fatalf("Read: %v", err)
		}
	}
}

// news: who listens is woken when a transaction is saved, and not only before that.
func (g *group) news() {
	n, ok := g.other.(rowstore.Notifier)
	if !ok {
		g.Skip("the Database is no Notifier: nodes look four times a second")
	}

	woken := make(chan struct{}, 1)
	stop, err := n.Listen(g.name, "me", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		g.Fatalf("Listen: %v", err)
	}
	defer sync.OnceFunc(stop)()

	for _, to := range [][]string{nil, {"other", "me"}} {
		g.transact(func(tx rowstore.Tx) error {
			if w, ok := tx.(rowstore.Waker); ok {
				w.Wake(to...)
			}

			tx.Put(g.key("news"), []byte("a"), time.Hour) // as a Store does that wakes nodes
			select {                                      // a node that is woken now looks too early
			case <-woken:
			case <-time.After(50 * time.Millisecond):
			}

			return nil
		})

		select {
		case <-woken:
		case <-time.After(soon):
			g.Fatalf("Wake(%q) does not wake a node that listens after the transaction is saved. Does Tx implement Waker? Does Wake wait until the transaction is saved? Does Listen of another Database hear it?", to)
		}
	}
}
