package rowtest

import (
	"crypto/rand"
	"testing"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/store"
)

// A suite tests the databases that open returns.
type suite struct {
	open func(t *testing.T) rowstore.Database
	with rowstore.Options
}

func newSuite(open func(t *testing.T) rowstore.Database, o *rowstore.Options) *suite {
	s := &suite{open: open}
	if o != nil {
		s.with = *o
	}
	return s
}

// outside opens a Database for goroutines in bubbles. It is called outside of them.
func (s *suite) outside(t *testing.T) rowstore.Database { return newOutside(t, s.open(t)) }

// stores returns several stores of one Database, in a bubble.
func (s *suite) stores(db rowstore.Database, n int, fates func() fate) (all []store.Store) {
	db = inBubble(db, fates)
	o := s.with
	o.Name, o.Lease = rand.Text(), farthest.Wait
	for range n {
		all = append(all, rowstore.New(db, &o))
	}
	return all
}
