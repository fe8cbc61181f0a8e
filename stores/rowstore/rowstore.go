// Package rowstore shares budgets through rows of a database: PostgreSQL, MySQL, or any database with
// transactions. It has the common part of all such stores. The part that is special to a database is a
// [Database], which runs transactions: usually a hundred lines.
//
// Modules pgstore and sqlstore have Databases that are ready to use. The page on [your own store] says
// how to write a Database for etcd, DynamoDB, Spanner, or a service of one's own; package rowtest tests it.
//
// [your own store]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/your-own-store.md
package rowstore

import (
	"errors"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in rows of a database, which other programs use at
// the same time. Make one with [New]. It is safe for concurrent use. There is nothing to close but the
// database.
type Store struct {
	node *node.Store
}

// New returns a store whose budgets are rows of a database. It sends nothing, so the database need not be up. Its error
// has a *[store.OptionError] for each mistake.
func New(db Database, o Options) (*Store, error) {
	err := o.check()
	if db == nil {
		err = errors.Join(&store.OptionError{Package: "rowstore", Option: "db", Problem: "is nil: give the Database with the rows"}, err)
	}
	if err != nil {
		return nil, err
	}

	options := o.orDefaults()
	nodeOptions := node.Options{
		Node: ledger.Node{ID: node.NewNode(), Lease: options.Lease.Microseconds()},
		Rows: options.Rows,
	}

	if a, ok := db.(arriver); ok {
		nodeOptions.Arrivals = a.Arrivals()
	}

	return &Store{node.New(newBackend(db, nodeOptions.Node.ID, options), nodeOptions)}, nil
}

// An arriver is a Database of a test, whose stores number their waiters by one counter. Otherwise waiters of two stores
// could have the same number in a test, where many callers come in one microsecond. Other modules cannot implement it.
type arriver interface{ Arrivals() *ledger.Arrivals }
