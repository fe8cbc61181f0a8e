package memstore

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// MaxEntries bounds a row.
const MaxEntries = ledger.MaxEntries

// Rows returns how many budgets are kept, and how many are in line to be
// forgotten.
func (s *Store) Rows() (kept, due int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		kept, due = kept+len(sh.budgets), due+len(sh.due)
		sh.mu.Unlock()
	}
	return kept, due
}

// Entries returns how many entries the budget's row has, and room for how many.
func (s *Store) Entries(b store.Budget) (size, room int) {
	return s.shard(&b).budgets[b.Key].Size()
}

// Hold locks what the budget shares with others until release is called.
func (s *Store) Hold(b store.Budget) (release func()) {
	set := shardsOf([]store.Charge{{Budget: b}})
	s.lockLines(set)
	s.lock([]store.Charge{{Budget: b}})
	return func() {
		s.unlock(set)
		s.unlockLines(set)
	}
}

// Shard returns which of the locks the budget falls to.
func (s *Store) Shard(b store.Budget) int {
	for i := range s.shards {
		if s.shard(&b) == &s.shards[i] {
			return i
		}
	}
	return -1
}

// Gain tells the clock how much the wall clock has gained since the store was
// made, as it does while a machine sleeps; a negative gain is a loss.
func (s *Store) Gain(d time.Duration) { s.clock.follow(int64(d)) }

// SlotWaiters returns how many waiters for slots of the budget the store remembers.
func (s *Store) SlotWaiters(b store.Budget) int {
	sh := s.shard(&b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return len(sh.budgets[b.Key].slots)
}
