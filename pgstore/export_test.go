package pgstore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/rowstore"
)

// A Database is that of a store, with what tests change.
type Database struct{ *database }

// NewDatabase returns the database of a store, whose connections end with the test.
func NewDatabase(t testing.TB, url string, o *Options) Database {
	t.Helper()
	d, err := newDatabase(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conns.closeIdle(time.Now()) })
	return Database{d}
}

// A Bubble is what the databases of a bubble of synctest have in common.
type Bubble struct {
	Arrivals ledger.Arrivals // of all stores, as if no two callers came at once

	mu    sync.Mutex
	bells map[string]func() // of nodes
}

// A Bubbled is a database for a store in a bubble: its clock is the bubble's, and it is told of messages without a
// connection that listens, because time does not pass in a bubble while somebody waits for the network.
type Bubbled struct {
	d *database
	b *Bubble
}

// In returns the database for a store in a bubble.
func (d Database) In(b *Bubble) Bubbled {
	d.clock = time.Now
	return Bubbled{d.database, b}
}

func (b Bubbled) Arrivals() *ledger.Arrivals { return &b.b.Arrivals }

func (b Bubbled) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return b.d.Read(ctx, group, keys, do)
}

func (b Bubbled) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	var wakes []string
	err := b.d.Transact(ctx, group, keys, func(t rowstore.Tx) error {
		err := do(t)
		wakes = t.(*tx).wakes
		return err
	})
	if err == nil {
		b.b.ring(wakes)
	}
	return err
}

func (b Bubbled) Listen(_, node string, wake func()) (stop func(), err error) {
	b.b.mu.Lock()
	defer b.b.mu.Unlock()
	if b.b.bells == nil {
		b.b.bells = make(map[string]func())
	}
	b.b.bells[node] = wake
	return func() {
		b.b.mu.Lock()
		defer b.b.mu.Unlock()
		delete(b.b.bells, node)
	}, nil
}

func (b *Bubble) ring(nodes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for node, wake := range b.bells {
		if slices.Contains(nodes, node) || slices.Contains(nodes, everyone) {
			wake()
		}
	}
}
