package rowstore_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A memory is a Database of a test. Its clock is the program's, which may be that of a bubble.
type memory struct {
	arrivals ledger.Arrivals
	turn     chan struct{}    // has an element while a transaction goes on
	clock    func() time.Time // another clock; nil: the program's

	mu   sync.Mutex
	goes *memoryTx // the transaction that goes on
	rows map[string]row
	bell map[string]func() // by node
	puts int
}

type row struct {
	value   []byte
	expires time.Time
}

func newMemory() *memory {
	return &memory{turn: make(chan struct{}, 1), rows: make(map[string]row), bell: make(map[string]func())}
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
	tx.mu.Lock()
	defer tx.mu.Unlock()
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

var errStandstill = errors.New("the transaction stood still, and was ended")

// begin begins a transaction when no other one goes on, and ends one that stands still.
func (m *memory) begin(ctx context.Context) (*memoryTx, error) {
	for began := false; !began; {
		m.mu.Lock()
		before := m.goes
		m.mu.Unlock()
		select {
		case m.turn <- struct{}{}:
			began = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
			m.mu.Lock()
			if before != nil && m.goes == before {
				m.goes = nil
				<-m.turn
			}
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.goes = &memoryTx{memory: m, now: time.Now(), put: make(map[string]row)}
	if m.clock != nil {
		m.goes.now = m.clock()
	}
	return m.goes, nil
}

// Transact implements [rowstore.Database].
func (m *memory) Transact(ctx context.Context, _ string, _ []string, do func(rowstore.Tx) error) error {
	tx, err := m.begin(ctx)
	if err != nil {
		return err
	}
	err = do(tx)
	m.mu.Lock()
	if m.goes != tx {
		err = errStandstill
	} else {
		m.goes = nil
		<-m.turn
	}
	if err != nil {
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
