// Package sqlstore shares budgets among programs through a table of MySQL or MariaDB.
//
// Budgets are exact, and callers are served in the order in which they came, in whichever program. What
// the server must be, which rights a program needs, and what a crash loses: see docs/mysql.md.
package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"

	"github.com/fleetthrottle/throttle/rowstore"
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

// MySQL returns a store that keeps budgets in the table throttle_rows of a database of MySQL 8.0 or MariaDB 10.6, or
// later ones. All programs that share budgets use the same server, and give the same options.
//
// The driver is github.com/go-sql-driver/mysql. With multiStatements=true in its data source name a
// call takes two round trips, otherwise eight. The *sql.DB is one of the store's own, without a limit of
// open connections: a store that waits for a connection that its own caller holds waits in vain.
func MySQL(db *sql.DB, o *rowstore.Options) *rowstore.Store {
	return rowstore.New(&database{db: db}, o)
}
