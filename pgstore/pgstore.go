// Package pgstore shares budgets among programs through PostgreSQL 13 or later. A start that was granted is in the
// database's log before its caller goes on: a crash of the server loses none, and with a synchronous standby a failover
// does not either.
//
// [Setup] creates the tables, once. Programs then call [Open]. See docs/postgres.md for rights, PgBouncer, failover
// and what a start costs.
package pgstore

import "github.com/fleetthrottle/throttle/rowstore"

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
