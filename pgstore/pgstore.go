// Package pgstore shares budgets among programs through PostgreSQL 13 or later. A start that was granted is in the
// database's log before its caller goes on: a crash of the server loses none, and with a synchronous standby a failover
// does not either.
//
// [Setup] creates two tables, once. Programs then call [Open]. See docs/postgres.md for rights, PgBouncer, failover
// and what a start costs.
package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/rowstore"
)

// Options are those of a store. All programs that share budgets give the same Schema and Rows.
type Options struct {
	// Schema is the schema with the tables. Defaults to "throttle". Programs with different schemas share nothing.
	Schema string

	// Connections is how many connections a program has at the most, besides one that listens for news while callers
	// wait. A group of budgets uses one at a time. Defaults to 4.
	Connections int

	// BeforeConnect may change the configuration of each connection before it is made: a password
	// that is valid for some minutes, for example.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options
}

const (
	defaultConnections = 4
	connectTimeout     = 5 * time.Second // of URLs that do not say connect_timeout
)

// Open returns a store that keeps budgets in a PostgreSQL database, which [Setup] has prepared. The URL, or the
// keywords and values, are those of libpq; what they do not say comes from the environment (PGHOST, PGPASSWORD…). Open connects to
// nothing: the first booking does. The store has connections of its own, and closes those that it
// has not used for a minute, so there is nothing to close. Nil Options are the defaults.
func Open(url string, o *Options) (*rowstore.Store, error) {
	d, err := newDatabase(url, o)
	if err != nil {
		return nil, err
	}
	var rows *rowstore.Options
	if o != nil {
		rows = &o.Rows
	}
	return rowstore.New(d, rows), nil
}
