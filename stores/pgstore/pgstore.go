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
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

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
// a connection that its own caller holds would wait in vain; and the pool may be closed before the store's last use. A nil pool is an error, too.
func NewFromPool(pool *pgxpool.Pool, o Options) (*Store, error) {
	if pool == nil {
		return open(nil, &store.OptionError{Package: "pgstore", Option: "pool", Problem: "is nil: check the error of pgxpool.New"}, o)
	}

	// The pool's own function comes first, so that the Options have the last word.
	ofPool := pool.Config()
	ofOptions := o.BeforeConnect
	o.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		for _, change := range []func(context.Context, *pgx.ConnConfig) error{ofPool.BeforeConnect, ofOptions} {
			if change == nil {
				continue
			}
			if err := change(ctx, c); err != nil {
				return err
			}
		}

		return nil
	}

	o.afterConnect = ofPool.AfterConnect
	return open(ofPool.ConnConfig, nil, o)
}

// open returns a store that connects as config says. If config is nil, err says why. The error of open has err and all mistakes in the options.
func open(config *pgx.ConnConfig, err error, o Options) (*Store, error) {
	// After a mistake d may be nil, and s is of no use. Both calls are made to find all mistakes.
	d, wrong := newDatabase(config, o)
	s, wrongRows := rowstore.New(d, o.Rows)
	if err := errors.Join(err, wrong, wrongRows); err != nil {
		return nil, err
	}
	return s, nil
}

// Options configure a [Store]. The zero value of each field is useful. All programs that share budgets give the same Schema and the same Rows.
type Options struct {
	// Schema is the schema with the tables. Defaults to "throttle". Programs with different schemas share nothing.
	Schema string

	// Connections is how many connections a program has at the most, besides the connection that listens for news while callers
	// wait. A group of budgets uses one at a time. Defaults to 4.
	Connections int

	// BeforeConnect may change the configuration of each connection before it is made, also of the connection of Setup: a password
	// that is valid for some minutes, for example.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options

	// afterConnect is the pool's AfterConnect: see NewFromPool.
	afterConnect func(context.Context, *pgx.Conn) error
}

const (
	defaultConnections = 4
	connectTimeout     = 5 * time.Second // of URLs that do not say connect_timeout
)

// defaultSchema is the name that schema.sql has.
const defaultSchema = "throttle"

// check returns all mistakes in the options, except in Rows.
func (o *Options) check() error {
	var mistakes []error
	if o.Schema != "" && !plainName.MatchString(o.Schema) {
		mistakes = append(mistakes, &store.OptionError{
			Package: "pgstore", Option: "Options.Schema",
			Problem: fmt.Sprintf("%q: use a name of at most 48 small letters, digits and _", o.Schema),
		})
	}

	if o.Connections < 0 {
		mistakes = append(mistakes, &store.OptionError{
			Package: "pgstore", Option: "Options.Connections",
			Problem: fmt.Sprintf("%d is negative: use 1 or more, or 0 for %d", o.Connections, defaultConnections),
		})
	}

	return errors.Join(mistakes...)
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// schemaSQL creates the tables of the package in a schema of the name throttle.
//
//go:embed schema.sql
var schemaSQL string

// inSchema returns SQL with the name of a schema in place of the default schema's.
func inSchema(sql, schema string) string {
	return strings.NewReplacer(defaultSchema+".", schema+".", "SCHEMA IF NOT EXISTS "+defaultSchema, "SCHEMA IF NOT EXISTS "+schema).Replace(sql)
}

// Setup creates a schema with the tables of a store in the database. It leaves tables that are there as they are. Of the
// Options it uses Schema and BeforeConnect. The role needs the right to create a schema; the roles of programs need less,
// see schema.sql, which does the same in psql.
func Setup(ctx context.Context, url string, o Options) error {
	config, err := parse(url)
	d, wrong := newDatabase(config, o)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}

	// BeforeConnect may change the configuration.
	config, err = d.server.configOf(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}

	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))

	// Several programs may set up at the same time. CREATE IF NOT EXISTS then fails in all of them except one, and succeeds in a later try.
	sql := "BEGIN;\n" + inSchema(schemaSQL, d.server.sql.schema) + "\nCOMMIT"
	for try := 1; ; try++ {
		_, err := c.PgConn().Exec(ctx, sql).ReadAll()
		if err == nil {
			break
		}
		if !isCode(err, uniqueViolation, duplicateSchema, duplicateTable, duplicateObject) || try == maxSetupTries {
			return fmt.Errorf("pgstore: setup: %w", err)
		}

		// The failed try has left its transaction open.
		if _, err := c.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
			return fmt.Errorf("pgstore: setup: %w", err)
		}
	}

	// The SQL leaves tables as they are, so they may be of another version.
	if err := d.server.checkVersion(ctx, c); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}

	return nil
}

// maxSetupTries is how many times Setup tries. Each other program that sets up at the same time may make several tries fail: at the schema, a table, an index.
const maxSetupTries = 20

// Codes of errors about objects that another program has created at the same time.
const (
	uniqueViolation = "23505"
	duplicateSchema = "42P06"
	duplicateTable  = "42P07"
	duplicateObject = "42710"
)
