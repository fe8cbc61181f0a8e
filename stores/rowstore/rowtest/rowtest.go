// Package rowtest tests a [rowstore.Database]: its promises about transactions, and the whole contract of a
// [store.Store] for stores on it. Only the standard library is used: authors of databases inherit nothing.
//
//	func TestDatabase(t *testing.T) {
//		rowtest.Run(t, func(t *testing.T) rowstore.Database { return mydb.New(address) }, rowstore.Options{})
//		rowtest.Connection(t, address, func(t *testing.T, address string) rowstore.Database { return mydb.New(address) })
//	}
package rowtest

import (
	"testing"
	"testing/synctest"

	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// Run tests a Database. It calls open some forty times, for the parts of several programs: a Database with connections
// of its own. If all had one mutex or one connection, it would hide that the database does not isolate them. Run uses
// other groups and keys each time: all Databases may have one table. Options are those for which the Database is made;
// Name and Lease do not count.
//
// Most checks run in a bubble of testing/synctest, in which time passes when nothing happens. There the Store
// uses the bubble's clock, not the clock of the Database. The Database itself is opened and runs outside of bubbles: it may
// have goroutines, pauses, and connections of any library.
//
// If a check of transactions fails, no further check is run: mend the transactions first.
//
// No check shows that the clock is read a moment too early, if all programs read it equally early: their times are in order all the
// same. Only a program that pauses between the clock and the rows gets an old time.
func Run(t *testing.T, open func(t *testing.T) rowstore.Database, o rowstore.Options) {
	Transactions(t, open, o)
	if t.Failed() {
		return
	}

	s := newSuite(open, o)
	t.Run("contract", func(t *testing.T) {
		db := s.outside(t)
		storetest.RunWithin(t, storetest.Slack{Far: true}, func(t *testing.T) store.Store { return s.stores(t, db, 1, nil)[0] })
	})

	t.Run("contract of two stores", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes long: not with -short")
		}

		db := s.outside(t)
		storetest.RunWithin(t, twostores.Slack, func(t *testing.T) store.Store {
			return twostores.New(s.stores(t, db, 2, nil)...)
		})
	})
}

// Transactions is Run without the contract, which takes a minute on a database: the promises of a Database, a fleet by
// its own clock, and lost replies.
func Transactions(t *testing.T, open func(t *testing.T) rowstore.Database, o rowstore.Options) {
	s := newSuite(open, o)
	if !t.Run("transactions", s.transactions) {
		t.Log("mend the transactions first: what needs them is not run")
		return
	}

	t.Run("fleet", s.fleet)
	t.Run("lost replies", func(t *testing.T) {
		db := s.outside(t)
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				twostores.Differ(t, seed, moves, memstore.New(), twostores.New(s.stores(t, db, 2, loseSome(seed))...))
			})
		}
	})
}

// How much is tried with lost replies.
const (
	seeds = uint64(6)
	moves = 200
)
