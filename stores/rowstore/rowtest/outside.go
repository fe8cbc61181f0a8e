package rowtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// An outside is a Database that goroutines in a bubble call, and whose methods run in goroutines outside of it. So a
// Database may have goroutines, timers, and libraries that know nothing of bubbles: a channel that was made in a bubble
// must not be closed outside, and a pause in a bubble takes no time. While a goroutine of a bubble waits for
// one outside, the time of the bubble stands still.
type outside struct {
	db   rowstore.Database
	free chan *bridge // bridges that are served, for one call each
	note func(error)  // is called with each error that the Database itself returned
}

// A readOutside is an outside whose Database reads without a transaction.
type readOutside struct{ *outside }

// newOutside returns an outside of db, which is a Reader if db is one. Call newOutside outside of bubbles. The goroutines that it starts end with the test.
func newOutside(t *testing.T, db rowstore.Database) rowstore.Database {
	var last atomic.Pointer[error]
	o := &outside{db, make(chan *bridge), func(err error) { last.Store(&err) }}
	ended := make(chan struct{})

	// What the Database said last explains most failures.
	t.Cleanup(func() {
		close(ended)
		if err := last.Load(); t.Failed() && err != nil {
			t.Logf("Transact or Read of the Database returned an error, after which the Store waits and tries again. So the times differ. The last error: %v", *err)
		}
	})

	// Only a goroutine that begins outside makes bridges and serves them. Each call takes a bridge.
	go func() {
		for {
			b := &bridge{in: make(chan func()), out: make(chan func())}
			select {
			case o.free <- b:
				go b.serve()
			case <-ended:
				return
			}
		}
	}()

	if _, ok := db.(rowstore.Reader); ok {
		return readOutside{o}
	}

	return o
}

// Transact implements [rowstore.Database].
func (o *outside) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return o.call(ctx, do, func(ctx context.Context, do func(rowstore.Tx) error) error {
		return o.db.Transact(ctx, group, keys, do)
	})
}

// Read implements [rowstore.Reader].
func (o readOutside) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return o.call(ctx, do, func(ctx context.Context, do func(rowstore.Tx) error) error {
		return o.db.(rowstore.Reader).Read(ctx, group, keys, do)
	})
}

// call runs f outside of the bubble, and do, which f calls, in the bubble, and returns the error of f. It notes the error if neither do nor the end of
// ctx is its cause.
func (o *outside) call(ctx context.Context, do func(rowstore.Tx) error, f func(context.Context, func(rowstore.Tx) error) error) (err error) {
	b := <-o.free
	b.outside(func() {
		ctxOutside, stop := context.WithCancelCause(context.Background())
		defer stop(nil)

		// The context belongs to the bubble, so a second one outside follows it.
		var unfollow func() bool
		b.inside(func() {
			if ctx.Err() != nil {
				stop(context.Cause(ctx))
			}
			unfollow = context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
		})

		var doErr error
		err = f(ctxOutside, func(tx rowstore.Tx) error {
			b.inside(func() { doErr = do(&outsideTx{Tx: tx, bridge: b}) })
			return doErr
		})
		if err != nil && doErr == nil && ctxOutside.Err() == nil {
			o.note(err)
		}

		b.inside(func() { unfollow() })
	})

	return err
}

// An outsideTx is a transaction of an outside, for a goroutine in a bubble.
type outsideTx struct {
	rowstore.Tx
	bridge *bridge
}

// Get implements [rowstore.Tx].
func (tx *outsideTx) Get(keys ...string) (values [][]byte, err error) {
	tx.bridge.outside(func() { values, err = tx.Tx.Get(keys...) })
	return values, err
}

// Put implements [rowstore.Tx].
func (tx *outsideTx) Put(key string, value []byte, keep time.Duration) {
	tx.bridge.outside(func() { tx.Tx.Put(key, value, keep) })
}

// A bridge is between a goroutine in a bubble and one outside, of which one runs at a time. Each runs what the other
// sends it, until it is sent nil. The channels are made outside: a goroutine in a bubble may use them, and
// the bubble's time stands still while it waits for them.
type bridge struct{ in, out chan func() }

// serve is the goroutine outside. It runs what one call of outside sends, and ends.
func (b *bridge) serve() {
	(<-b.out)()
	b.in <- nil
}

// outside is called in the bubble, to run f outside. While f runs, it runs what inside sends.
func (b *bridge) outside(f func()) {
	b.out <- f
	for g := <-b.in; g != nil; g = <-b.in {
		g()
		b.out <- nil
	}
}

// inside is called outside, to run f in the bubble. While f runs, it runs what outside sends.
func (b *bridge) inside(f func()) {
	b.in <- f
	for g := <-b.out; g != nil; g = <-b.out {
		g()
		b.in <- nil
	}
}

// reads: Read sees all rows that were saved before it was called, also those of another program. With one clock its time is not before the time of
// the last transaction.
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

		err := r.Read(g.Context(), g.name, []string{g.key("a"), g.key("none")}, func(tx rowstore.Tx) error {
			values, err := tx.Get(g.key("none"), g.key("a"))
			if err == nil && (values[0] != nil || !bytes.Equal(values[1], []byte{i})) {
				g.Errorf("Read got %v after %d was saved: does it read from a replica, or in a transaction that began before?", values, i)
			}
			if at := tx.Now(); oneClock && at.Before(now) {
				g.Errorf("Read was at %v, and the transaction before it %v later: is the clock of Read the database's, and read after the call?", at, now.Sub(at))
			}

			return err
		})
		if err != nil {
			g.Fatalf("Read: %v", err)
		}
	}
}

// news: a node that listens is woken after a transaction was saved that wakes it, or that wakes all nodes.
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
	defer stop()

	for _, to := range [][]string{nil, {"other", "me"}} { // nil wakes all nodes
		g.transact(func(tx rowstore.Tx) error {
			if w, ok := tx.(rowstore.Waker); ok {
				w.Wake(to...)
			}

			tx.Put(g.key("news"), []byte("a"), time.Hour) // a Store that wakes nodes puts a row, too

			// Drop a wake-up that comes before the transaction is saved: it is too early, and must not count below.
			select {
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

// sessions: a node sees the session of a node of a different program, and soon after that session is closed it sees it no more.
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
	for deadline := time.Now().Add(soon); sees("other-" + g.name); time.Sleep(pause) {
		if time.Now().After(deadline) {
			g.Fatalf("%v after a program has closed its session others still see it", soon)
		}
	}
}

// attend opens a session of a node, which lasts until end is called. If db is a Notifier, the node listens, as a Store does. attend tries for as
// long as soon, and then ends the check.
func (g *group) attend(db rowstore.Database, node string) (s rowstore.Session, end func()) {
	stop := func() {}
	if n, ok := db.(rowstore.Notifier); ok {
		var err error
		if stop, err = n.Listen(g.name, node, func() {}); err != nil {
			g.Fatalf("Listen: %v", err)
		}
	}

	for deadline := time.Now().Add(soon); ; time.Sleep(pause) {
		s, err := db.(rowstore.Attender).Attend(g.Context(), node)
		if err == nil {
			return s, sync.OnceFunc(func() { s.Close(); stop() })
		}
		if time.Now().After(deadline) {
			g.Fatalf("Attend has opened no session in %v: %v", soon, err)
		}
	}
}

// fleet has several nodes use one budget, by the database's own clock. Each node has a Database of its own. The limit must hold, and starts must
// not take longer than patience.
func (s *suite) fleet(t *testing.T) {
	const nodes, callers, n = 3, 8, 20
	const per, enough = 100 * time.Millisecond, 10 * n
	o := s.with
	o.Name = rand.Text()
	charge := store.Charge{Budget: store.Budget{Policy: "fleet", Key: [16]byte{1}}, Limit: store.SlidingWindow(n, per), Cost: 1}
	var mu sync.Mutex
	var marks []int64
	var all sync.WaitGroup

	// Callers of all nodes use the budget at once, each node with a store of its own, for ten windows, however long a busy machine takes.
	ctx, end := context.WithTimeout(t.Context(), patience)
	defer end()
	for range nodes {
		st := s.store(t, s.open(t), o)
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					g, err := st.Book(ctx, &store.Booking{Charges: []store.Charge{charge}, MaxWait: time.Minute})
					if ctx.Err() != nil {
						return // enough starts were booked, or patience is over
					}
					if err != nil {
						t.Errorf("Book: %v", err)
						return
					}

					mu.Lock()
					marks = append(marks, g.Handle.Start)
					if len(marks) >= enough {
						end()
					}
					mu.Unlock()
					time.Sleep(g.Wait)
				}
			})
		}
	}

	all.Wait()
	if t.Failed() {
		return
	}

	// In any window there are at most as many starts as the limit allows, whichever node booked them.
	slices.Sort(marks)
	for i := n; i < len(marks); i++ {
		if marks[i]-marks[i-n] <= per.Microseconds() {
			t.Fatalf("%d starts in %d µs, and the limit is %d in %v: do transactions overlap, or does the clock go back?", n+1, marks[i]-marks[i-n], n, per)
		}
	}

	if len(marks) < enough {
		t.Errorf("%d starts in %v, and the limit allows %d in %v: do transactions take long, or wait long for the lock?", len(marks), patience, enough, enough/n*per)
	}
}
