package rowtest

import (
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A bubbleTx is a transaction in a bubble. What it puts is put when it is known that it is not made again.
type bubbleTx struct {
	rowstore.Tx
	in    *kept
	now   time.Time
	puts  []put
	all   bool
	nodes []string
}

type put struct {
	key   string
	value []byte
	keep  time.Duration
}

// Now implements [rowstore.Tx].
func (tx *bubbleTx) Now() time.Time { return tx.now }

// A kept knows until when rows are kept.
type kept struct {
	mu    sync.Mutex
	until map[string]time.Time // by key
}

// Get implements [rowstore.Tx].
func (tx *bubbleTx) Get(keys ...string) ([][]byte, error) {
	values, err := tx.Tx.Get(keys...)
	if err != nil {
		return nil, err
	}

	// The row may be there still, although it may have been removed: the strict case is tested.
	values = slices.Clone(values)
	tx.in.mu.Lock()
	defer tx.in.mu.Unlock()

	for i, k := range keys {
		if until, ok := tx.in.until[k]; ok && !tx.now.Before(until) {
			values[i] = nil
		}
	}

	return values, nil
}

// Put implements [rowstore.Tx].
func (tx *bubbleTx) Put(key string, value []byte, keep time.Duration) {
	tx.puts = append(tx.puts, put{key, value, keep})
}

// flush puts all rows that were put. The clock of a server goes on while the clock of the bubble stands still: on a machine that is busy, a row may
// be older for the server than for the bubble.
func (tx *bubbleTx) flush() {
	tx.in.mu.Lock()
	for _, p := range tx.puts {
		tx.in.until[p.key] = tx.now.Add(p.keep)
	}

	tx.in.mu.Unlock()

	// The server's clock is not the bubble's. Rows of a test are kept there for longer than the bubble lasts.
	longer := time.Duration(0)
	if tx.Tx.Now().Sub(tx.now).Abs() > time.Hour {
		longer = 24 * time.Hour
	}

	for _, p := range tx.puts {
		tx.Tx.Put(p.key, p.value, p.keep+longer)
	}
}

// Wake implements [rowstore.Waker].
func (tx *bubbleTx) Wake(nodes ...string) { tx.all, tx.nodes = len(nodes) == 0, nodes }

func (tx *bubbleTx) wakes(node string) bool { return tx.all || slices.Contains(tx.nodes, node) }
