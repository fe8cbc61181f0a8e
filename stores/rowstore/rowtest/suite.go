package rowtest

import (
	"crypto/rand"
	"testing"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A suite tests the databases that open returns.
type suite struct {
	open func(t *testing.T) rowstore.Database
	with rowstore.Options
}

func newSuite(open func(t *testing.T) rowstore.Database, o rowstore.Options) *suite {
	return &suite{open: open, with: o}
}

// store returns a store of a Database.
func (s *suite) store(t *testing.T, db rowstore.Database, o rowstore.Options) *rowstore.Store {
	t.Helper()
	st, err := rowstore.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// outside opens a Database for goroutines in bubbles. It is called outside of them.
func (s *suite) outside(t *testing.T) rowstore.Database { return newOutside(t, s.open(t)) }

// stores returns several stores of one Database, in a bubble.
func (s *suite) stores(t *testing.T, db rowstore.Database, n int, fates func() fate) (all []store.Store) {
	db = inBubble(db, fates)
	o := s.with
	o.Name, o.Lease = rand.Text(), store.MaxAhead
	for range n {
		all = append(all, s.store(t, db, o))
	}
	return all
}
