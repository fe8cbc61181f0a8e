// Package sqlstore shares budgets among programs through a table of MySQL or MariaDB.
//
// Budgets are exact, and callers are served in the order in which they came, in whichever program. What
// the server must be, which rights a program needs, and the losses of a crash: see the page on [MySQL].
//
// [MySQL]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/mysql.md
package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// Schema is the statement that makes the table throttle_rows, if there is none.
//
//go:embed schema.sql
var Schema string

// CreateTable runs [Schema]. It needs rights that programs need not have later.
func CreateTable(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, Schema); err != nil {
		return fmt.Errorf("sqlstore: %w", explain(err))
	}
	return nil
}

// A Store is a [rowstore.Store] whose rows lie in MySQL or MariaDB. It is safe for concurrent use, and has nothing to
// close but the database.
type Store = rowstore.Store

// Options configure a [Store]. The zero value of each field is useful. All programs that share budgets give the
// same ones.
type Options struct {
	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options
}

// longestProbe is for how long [New] waits for the server to say how connections are set up.
const longestProbe = 2 * time.Second

// New returns a store that keeps budgets in the table throttle_rows of a database of MySQL 8.0 or MariaDB 10.6, or
// later ones. All programs that share budgets use the same server.
//
// The driver is github.com/go-sql-driver/mysql. Its data source name has multiStatements=true, or its Config has
// MultiStatements: a step of the store then takes two round trips, and would take eight without that. The *sql.DB is
// one of the store's own, without a limit of open connections: a store that waits for a connection that its own caller
// holds waits in vain.
//
// New asks the server how connections are set up, for 2 seconds at most. Its error says at once what the server
// refuses, and has a *[store.OptionError] for each mistake in what New was given. A server that is away is no mistake:
// then the first booking asks.
func New(db *sql.DB, o Options) (*Store, error) {
	d := &database{db: db}
	s, err := rowstore.New(d, o.Rows)
	if err = errors.Join(d.check(), err); err != nil {
		return nil, err
	}
	return s, nil
}
