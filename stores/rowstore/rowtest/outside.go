package rowtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// An outside is a Database that goroutines in a bubble call, and whose methods run in goroutines outside of it. So a
// Database may have goroutines, timers, and libraries that know nothing of bubbles: a channel that was made in a bubble
// must not be closed outside, and a pause in a bubble takes no time. While a goroutine of a bubble waits for
// one outside, the time of the bubble stands still.
type outside struct {
	db   rowstore.Database
	free chan *bridge
	note func(error) // of errors that the Database itself returned
}

// A readOutside is an outside whose Database reads without a transaction.
type readOutside struct{ *outside }

// newOutside has to be called outside of bubbles. What it starts ends with the test.
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

// call runs f outside, and do, which f calls, in the bubble.
func (o *outside) call(ctx context.Context, do func(rowstore.Tx) error, f func(context.Context, func(rowstore.Tx) error) error) (err error) {
	b := <-o.free
	b.outside(func() {
		out, stop := context.WithCancelCause(context.Background())
		defer stop(nil)

		// The context belongs to the bubble, so a second one outside follows it.
		var ends func() bool
		b.inside(func() {
			if ctx.Err() != nil {
				stop(context.Cause(ctx))
			}
			ends = context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
		})

		var did error
		err = f(out, func(tx rowstore.Tx) error {
			b.inside(func() { did = do(&outsideTx{Tx: tx, bridge: b}) })
			return did
		})
		if err != nil && did == nil && out.Err() == nil {
			o.note(err)
		}

		b.inside(func() { ends() })
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

// serve is the goroutine outside, for one call.
func (b *bridge) serve() {
	(<-b.out)()
	b.in <- nil
}

// outside is called in the bubble, to run f outside.
func (b *bridge) outside(f func()) {
	b.out <- f
	for g := <-b.in; g != nil; g = <-b.in {
		g()
		b.out <- nil
	}
}

// inside is called outside, to run f in the bubble.
func (b *bridge) inside(f func()) {
	b.in <- f
	for g := <-b.out; g != nil; g = <-b.out {
		g()
		b.in <- nil
	}
}
