package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx; sqlstore has mysql

	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// A place is one in which budgets lie.
type place struct {
	name  string
	start func(*place, context.Context, *bench.Bench, string)
	args  []string // of the server
	// What start sets:
	at, version string
	empty       func(context.Context) error                            // makes the place as it was in the beginning
	hold        func(context.Context, *bench.Bench) (end func() error) // begins to read a snapshot
	count       func(context.Context) (int, error)                     // counts the server's transactions and reads. It is nil for places without transactions.
}

// startOnce starts what the place needs, if it does not run.
func (p *place) startOnce(ctx context.Context, b *bench.Bench, dir string, out io.Writer) {
	if p.empty != nil {
		return
	}
	p.start(p, ctx, b, dir)
	b.Cleanup(func() { p.empty = nil })
	fmt.Fprintf(out, "%s: %s\n", p.name, p.version)
}

// transactions returns how many transactions and reads the server has made, 0 if it counts none.
func (p *place) transactions(ctx context.Context, b *bench.Bench) int {
	if p.count == nil {
		return 0
	}
	n, err := p.count(ctx)
	b.Must(err)
	return n
}

var (
	memory    = &place{name: "memory", start: startMemory}
	files     = &place{name: "files", start: startFiles}
	redis     = &place{name: "Redis, no file", start: startRedis}
	redisFile = &place{name: "Redis, appendfsync always", start: startRedis, args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	postgres  = &place{name: "PostgreSQL, fsync on", start: startPostgres, args: []string{"fsync=on", "shared_buffers=128MB", "max_connections=400"}}
	mariaDB   = &place{name: "MariaDB, flush 1", start: startMariaDB, args: []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M", "--max-connections=400"}}
	mariaDB2  = &place{name: "MariaDB, flush 2", start: startMariaDB, args: []string{"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=96M"}}
)

func startMemory(p *place, _ context.Context, _ *bench.Bench, _ string) {
	p.version, p.empty = "of one process", func(context.Context) error { return nil }
}

func startFiles(p *place, _ context.Context, b *bench.Bench, dir string) {
	p.at, p.version = b.TempDir(), "in "+dir
	p.empty = func(context.Context) error { return errors.Join(os.RemoveAll(p.at), os.Mkdir(p.at, 0o755)) }
}

func startRedis(p *place, ctx context.Context, b *bench.Bench, _ string) {
	s := redistest.Single(b, p.args...)
	c := s.Client(b)
	p.at, p.version = s.Addr, c.InfoMap(ctx, "server").Item("Server", "redis_version")
	p.empty = func(ctx context.Context) error { return c.FlushAll(ctx).Err() }
	p.count = func(ctx context.Context) (n int, err error) {
		stats, err := c.Info(ctx, "commandstats").Result()
		for line := range strings.Lines(stats) {
			if calls, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
				_, err = fmt.Sscanf(calls, "%d", &n)
			}
		}
		return n, err
	}
}

func startPostgres(p *place, ctx context.Context, b *bench.Bench, dir string) {
	p.at = pgtest.StartIn(b, dir, p.args...).URL()
	p.useSQL(ctx, b, "pgx", "DROP SCHEMA IF EXISTS throttle CASCADE; "+createBucket("bytea"), "throttle.budgets",
		func(ctx context.Context, _ *sql.DB) error { return pgstore.Setup(ctx, p.at, pgstore.Options{}) },
		func(ctx context.Context, db *sql.DB) (n int, err error) {
			time.Sleep(1500 * time.Millisecond) // a session tells its statistics a second late
			return n, db.QueryRowContext(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
		})
}

func startMariaDB(p *place, ctx context.Context, b *bench.Bench, dir string) {
	p.at = mysqltest.StartIn(b, dir, p.args...).Database(b, "stores")
	p.useSQL(ctx, b, "mysql", "DROP TABLE IF EXISTS throttle_rows; "+createBucket("VARBINARY(400)"), "throttle_rows", sqlstore.CreateTable,
		func(ctx context.Context, db *sql.DB) (n int, err error) {
			// A transaction has two statements that select.
			return n, db.QueryRowContext(ctx, "SELECT MAX(IF(variable_name = 'Com_select', variable_value, 0)) - MAX(IF(variable_name = 'Com_begin', variable_value, 0)) "+
				"FROM information_schema.global_status WHERE variable_name IN ('Com_select', 'Com_begin')").Scan(&n)
		})
}

// useSQL is how a database is emptied and held, and how its transactions are counted. The store's table and what makes it are given.
func (p *place) useSQL(ctx context.Context, b *bench.Bench, driver, empty, table string, create func(context.Context, *sql.DB) error,
	count func(context.Context, *sql.DB) (int, error),
) {
	db, err := sql.Open(driver, p.at)
	b.Must(err)
	b.Cleanup(func() { _ = db.Close() }) // the server ends as well
	b.Must(db.QueryRowContext(ctx, "SELECT version()").Scan(&p.version))
	p.empty = func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, empty)
		return errors.Join(err, create(ctx, db))
	}

	p.count = func(ctx context.Context) (int, error) { return count(ctx, db) }
	p.hold = func(ctx context.Context, b *bench.Bench) func() error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		b.Must(err)
		var rows int // a read begins the snapshot
		b.Must(tx.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&rows))
		return tx.Rollback
	}
}
