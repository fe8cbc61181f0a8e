package rowstore_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/rowstore"
)

// A memory is a Database of a test. Its clock is the program's, which may be that of a bubble.
type memory struct {
	arrivals ledger.Arrivals
	clock    func() time.Time // another clock; nil: the program's

	mu   sync.Mutex
	rows map[string]row
	bell map[string]func() // by node
	puts int
}

type row struct {
	value   []byte
	expires time.Time
}

func newMemory() *memory {
	return &memory{rows: make(map[string]row), bell: make(map[string]func())}
}

// Arrivals lets stores count arrivals together.
func (m *memory) Arrivals() *ledger.Arrivals { return &m.arrivals }

// A memoryTx implements [rowstore.Tx].
type memoryTx struct {
	*memory
	now   time.Time
	put   map[string]row
	wakes []string
	all   bool
}

func (tx *memoryTx) Now() time.Time { return tx.now }

func (tx *memoryTx) Get(keys ...string) ([][]byte, error) {
	all := make([][]byte, len(keys))
	for i, k := range keys {
		if r := tx.rows[k]; tx.now.Before(r.expires) {
			all[i] = r.value
		}
	}
	return all, nil
}

func (tx *memoryTx) Put(key string, value []byte, keep time.Duration) {
	tx.put[key] = row{value, tx.now.Add(keep)}
}

func (tx *memoryTx) Wake(nodes ...string) {
	tx.wakes, tx.all = nodes, len(nodes) == 0
}

// Transact implements [rowstore.Database].
func (m *memory) Transact(_ context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	m.mu.Lock()
	tx := &memoryTx{memory: m, now: time.Now(), put: make(map[string]row)}
	if m.clock != nil {
		tx.now = m.clock()
	}
	if err := do(tx); err != nil {
		m.mu.Unlock()
		return err
	}
	maps.Copy(m.rows, tx.put)
	m.puts += len(tx.put)
	var ring []func()
	for node, wake := range m.bell {
		if tx.all || slices.Contains(tx.wakes, node) {
			ring = append(ring, wake)
		}
	}
	m.mu.Unlock()
	for _, wake := range ring {
		wake()
	}
	return nil
}

// A notifier is a memory that wakes nodes.
type notifier struct{ *memory }

// Listen implements [rowstore.Notifier].
func (m notifier) Listen(_, node string, wake func()) (stop func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bell[node] = wake
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.bell, node)
	}, nil
}
