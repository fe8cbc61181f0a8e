// Package pgstore shares budgets among programs through PostgreSQL 13 or later. A start that was granted is in the
// database's log before its caller goes on: a crash of the server loses none, and with a synchronous standby a failover
// does not either.
//
// [Setup] creates the tables, once. Programs then call [New], or [NewFromPool]. The page on [PostgreSQL] has rights,
// PgBouncer, failover and the cost of a start.
//
// [PostgreSQL]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/postgres.md
package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A Store is a [rowstore.Store] whose rows lie in PostgreSQL. It is safe for concurrent use, and has nothing to close.
type Store = rowstore.Store

// New returns a store that keeps budgets in a PostgreSQL database, which [Setup] has prepared. The URL, or the
// keywords and values, are written as for libpq. Missing values come from the environment (PGHOST, PGPASSWORD…). New connects to
// nothing: the first booking does. The store has connections of its own, and closes a connection that it
// has not used for a minute, so there is nothing to close. The error has all mistakes, mistakes of Options as *[store.OptionError].
func New(url string, o Options) (*Store, error) {
	config, err := parse(url)
	return open(config, err, o)
}

// NewFromPool is [New] for a program that has a pool of connections to the database. The store connects as the pool does: to the same servers,
// as the same user, with the pool's BeforeConnect and AfterConnect. It uses none of the pool's connections, because a store that waited for
// a connection that its own caller holds would wait in vain; and the pool may be closed before the store's last use.
func NewFromPool(pool *pgxpool.Pool, o Options) (*Store, error) {
	if pool == nil {
		return open(nil, &store.OptionError{Package: "pgstore", Option: "pool", Problem: "is nil: check the error of pgxpool.New"}, o)
	}

	with := pool.Config()
	before := o.BeforeConnect
	o.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		for _, change := range []func(context.Context, *pgx.ConnConfig) error{with.BeforeConnect, before} {
			if change == nil {
				continue
			}
			if err := change(ctx, c); err != nil {
				return err
			}
		}

		return nil
	}

	o.afterConnect = with.AfterConnect
	return open(with.ConnConfig, nil, o)
}

// open returns a store that connects as a configuration says. err is the mistake in the configuration, or nil.
func open(config *pgx.ConnConfig, err error, o Options) (*Store, error) {
	d, wrong := newDatabase(config, o)
	s, wrongRows := rowstore.New(d, o.Rows)
	if err := errors.Join(err, wrong, wrongRows); err != nil {
		return nil, err
	}
	return s, nil
}
