//go:build linux || darwin

package filestore

import (
	"cmp"
	"os"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/store"
)

// A Machine is one of a test: its time is the program's, which may be that of a bubble.
type Machine struct {
	Boot     string
	Arrivals ledger.Arrivals // of all stores, as if no two callers came within a microsecond
	Step     time.Duration   // by how much the wall clock was set forward
	Grow     int64           // by how much a file grows before it is ended. Zero means as usual.
	Made     func(string)    // is called with the name of each file that a store has made, before the file gets its owner. It may be nil.
	Asked    func()          // is called when a store asks for the time, in each step. It may be nil.

	Dead map[int64]bool // the nodes that died

	mu    sync.Mutex
	wakes map[int64]func()
	nodes int64
}

// began is when the machines of a test were booted: the same in all bubbles.
var began = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *Machine) boot() (string, error) { return m.Boot, nil }

func (m *Machine) clock() (sinceBoot, wall int64, err error) {
	if m.Asked != nil {
		m.Asked()
	}
	now := time.Now()
	return now.Sub(began).Microseconds(), now.Add(m.Step).UnixMicro(), nil
}

func (m *Machine) listen(node int64, wake func()) (stop func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wakes == nil {
		m.wakes = make(map[int64]func())
	}
	m.wakes[node] = wake
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.wakes, node)
	}, nil
}

func (m *Machine) isDead(node int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Dead[node]
}

func (m *Machine) ring(node int64) {
	m.mu.Lock()
	wake := m.wakes[node]
	m.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (m *Machine) ringAll(but int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for node, wake := range m.wakes {
		if node != but {
			wake()
		}
	}
}

// Open opens a store on the machine, with a lease of so long.
func (m *Machine) Open(dir string, lease time.Duration) (*Store, error) {
	m.mu.Lock()
	m.nodes++
	id := m.nodes
	m.mu.Unlock()
	d, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	d.made = m.Made
	return open(d, m, m, cmp.Or(m.Grow, maxGrow), node.Options{
		Node: ledger.Node{ID: id, Lease: lease.Microseconds()}, Arrivals: &m.Arrivals,
	})
}

// File returns the path of the file that the store uses, and where its next record begins.
func (s *Store) File() (path string, end int64) {
	s.backend.lockRows()
	defer s.backend.unlockRows()
	return s.backend.gen.path, s.backend.gen.end
}

// Swap has the store use another file in place of its own, until back is called.
func (s *Store) Swap(f *os.File) (back func()) {
	s.backend.lockRows()
	defer s.backend.unlockRows()
	g := s.backend.gen
	own := g.f
	g.f = f
	return func() {
		s.backend.lockRows()
		defer s.backend.unlockRows()
		g.f = own
	}
}

// OpenHere is Open, with another lease, in a directory that is there.
func OpenHere(dir string, lease time.Duration) (*Store, error) {
	d, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	return openHere(d, lease)
}

const (
	Standstill = standstill
	HeaderUsed = int64(headerUsed + 4)
	HeaderSize = int64(headerSize)
)

// OpenWith is Open, and made is called with the name of each file that the store has made, before the file gets its owner.
func OpenWith(dir string, made func(name string)) (*Store, error) {
	d, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	d.made = made
	return openHere(d, defaultLease)
}

// Header returns the beginning of the file of a generation.
func Header(generation int64, boot string) []byte { return (&header{generation, boot}).append(nil) }

// Damage has the store take bytes that are no row for the row of a budget, as if another program had written them.
func (s *Store) Damage(b store.Budget) {
	s.backend.lockRows()
	defer s.backend.unlockRows()
	s.backend.rows.Take(&node.SavedRow{Key: b.Key, Expires: 1 << 60, Bytes: []byte("no row")})
}
