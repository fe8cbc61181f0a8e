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

// sessions: a node sees the session of a node of a different program, and not when that has closed it.
func (g *group) sessions() {
	_, ok := g.db.(rowstore.Attender)
	if !ok {
		g.Skip("the Database is no Attender: what a dead program held is free when its lease is over")
	}

	me, leave := g.attend(g.db, "me-"+g.name)
	defer leave()
	other, end := g.attend(g.other, "other-"+g.name)
	defer end()
	sees := func(node string) bool {
		present, now, err := me.Present(g.Context(), []string{"nobody-" + g.name, node})
		switch {
		case err != nil:
			g.Fatalf("Present: %v. Nobody has ended the session", err)
		case len(present) != 2 || present[0]:
			g.Fatalf("Present of a node without a session and of one with a session is %v", present)
		case now.IsZero():
			g.Error("Present has no time: it has to read the clock of the database")
		}
		return present[1]
	}

	if !sees("other-" + g.name) {
		g.Fatal("Present does not see the session of a different program that Attend has opened")
	}
	if _, _, err := other.Present(g.Context(), nil); err != nil {
		g.Errorf("Present of no nodes: %v", err)
	}

	end()
	for late := time.Now().Add(soon); sees("other-" + g.name); time.Sleep(pause) {
		if time.Now().After(late) {
			g.Fatalf("%v after a program has closed its session others still see it", soon)
		}
	}
}

// attend opens a session of a node, which listens as a Store does, until end is called.
func (g *group) attend(db rowstore.Database, node string) (s rowstore.Session, end func()) {
	stop := func() {}
	if n, ok := db.(rowstore.Notifier); ok {
		var err error
		if stop, err = n.Listen(g.name, node, func() {}); err != nil {
			g.Fatalf("Listen: %v", err)
		}
	}

	for late := time.Now().Add(soon); ; time.Sleep(pause) {
		s, err := db.(rowstore.Attender).Attend(g.Context(), node)
		if err == nil {
			return s, sync.OnceFunc(func() { s.Close(); stop() })
		}
		if time.Now().After(late) {
			g.Fatalf("Attend has opened no session in %v: %v", soon, err)
		}
	}
}
