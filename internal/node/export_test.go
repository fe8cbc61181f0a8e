package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A Memory is what a node remembers, for a comparison with rows.
type Memory struct {
	Line, Slots map[ledger.Key][]int64 // arrivals
	Held        map[ledger.Key]int
	Doubts      int
	Owed        int // what is to be given back later, or waits for a step
	text        string
}

// String tells all of it, callers with their states.
func (m Memory) String() string { return m.text }

// IsEmpty reports whether the node remembers no caller.
func (m Memory) IsEmpty() bool { return len(m.Line)+len(m.Slots)+len(m.Held)+m.Doubts+m.Owed == 0 }

// Memory returns what the node remembers.
func (s *Store) Memory() Memory {
	k := s.worker
	k.state.Lock()
	defer k.state.Unlock()
	m := &k.memory
	all := Memory{
		Line: make(map[ledger.Key][]int64), Slots: make(map[ledger.Key][]int64), Held: make(map[ledger.Key]int),
		Doubts: m.doubts, Owed: len(k.owed),
	}

	k.mu.Lock()
	all.Owed += len(k.queue) + len(k.gathering.ops)
	k.mu.Unlock()

	var lines []string
	for key, line := range m.line {
		for at, w := range line {
			all.Line[key] = append(all.Line[key], at)
			lines = append(lines, fmt.Sprintf("line %x %d %p %v %v", key[0], at, w, w.now.state, w.now.booking))
			if k, a, waits := w.now.Line(); !waits || k != key || a != at || w.now.state != InLine {
				lines = append(lines, fmt.Sprintf("%d is %v and stands elsewhere: %v %x %d", at, w.now.state, waits, k[0], a))
			}
		}
	}
	for key, line := range m.slots {
		for at, w := range line {
			all.Slots[key] = append(all.Slots[key], at)
			lines = append(lines, fmt.Sprintf("slots %x %d %p", key[0], at, w))
		}
	}
	for key, h := range m.held {
		all.Held[key] = h.n
		lines = append(lines, fmt.Sprintf("held %x %d", key[0], h.n))
	}
	slices.Sort(lines)
	all.text = fmt.Sprintf("doubts %d, %s", m.doubts, strings.Join(lines, "; "))
	return all
}

// StateOf returns the state of the caller with a turn of the store, as the last step that was saved has left it.
func (s *Store) StateOf(t store.Turn) State {
	s.worker.state.Lock()
	defer s.worker.state.Unlock()
	return t.(*waiter).now.state
}
