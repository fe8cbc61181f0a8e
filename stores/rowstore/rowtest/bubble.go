package rowtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A bubbled is a Database in a bubble: with the bubble's clock, by which rows are removed as soon as they may be, with
// news that come at once, and with transactions that go wrong.
type bubbled struct {
	rowstore.Database
	fates    func() fate // says what becomes of the next transaction. If fates is nil, all goes well.
	arrivals ledger.Arrivals
	kept     kept

	mu    sync.Mutex
	bells map[string]func() // by node
}

// A readBubbled is a bubbled whose Database reads without a transaction.
type readBubbled struct{ *bubbled }

// inBubble returns a bubbled of db, which is a Reader if db is one.
func inBubble(db rowstore.Database, fates func() fate) rowstore.Database {
	b := &bubbled{Database: db, fates: fates, bells: make(map[string]func()), kept: kept{until: make(map[string]time.Time)}}
	if _, ok := db.(rowstore.Reader); ok {
		return readBubbled{b}
	}
	return b
}

// Arrivals has all stores of b number their waiters by one counter: many callers come in one microsecond of a bubble.
func (b *bubbled) Arrivals() *ledger.Arrivals { return &b.arrivals }

// A fate is what becomes of a transaction.
type fate int

const (
	good     fate = iota
	lost          // it is saved, and an error says that this is not known
	dropped       // it is not saved, and an error says that this is not known
	repeated      // it has to be made twice
)

var errLost = errors.New("the connection was lost")

// loseSome returns a source of random fates. Between two bad fates at least six are good.
func loseSome(seed uint64) func() fate {
	r, well := rand.New(rand.NewPCG(seed, 1)), 0
	return func() fate {
		// A step that goes wrong three times is given up, so no step may have as many bad fates.
		well++
		if well <= 6 || r.IntN(3) > 0 {
			return good
		}
		well = 0
		return fate(1 + r.IntN(3))
	}
}

// Transact implements [rowstore.Database]. fates says what becomes of the transaction.
func (b *bubbled) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	f := good
	if b.fates != nil {
		b.mu.Lock()
		f = b.fates()
		b.mu.Unlock()
	}

	var last *bubbleTx
	err := b.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		// A repeated transaction calls do with a new Tx, and does not flush what the first call has put.
		for more := true; more; {
			last = &bubbleTx{Tx: tx, kept: &b.kept, now: time.Now()}
			if err := do(last); err != nil {
				return err
			}
			if f == dropped {
				return errLost
			}

			more = f == repeated
			if more {
				f = good
			}
		}

		last.flush()
		return nil
	})
	if err != nil {
		return err
	}

	// Nodes are woken when the transaction is saved.
	b.ring(last)
	if f == lost {
		return errLost
	}

	return nil
}

// Read implements [rowstore.Reader].
func (b readBubbled) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return b.Database.(rowstore.Reader).Read(ctx, group, keys, func(tx rowstore.Tx) error {
		return do(&bubbleTx{Tx: tx, kept: &b.kept, now: time.Now()})
	})
}

// ring wakes the nodes that a transaction has news for.
func (b *bubbled) ring(tx *bubbleTx) {
	var wakes []func()
	b.mu.Lock()

	for node, wake := range b.bells {
		if tx.wakes(node) {
			wakes = append(wakes, wake)
		}
	}

	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Listen implements [rowstore.Notifier].
func (b *bubbled) Listen(_, node string, wake func()) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bells[node] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.bells, node)
	}, nil
}
