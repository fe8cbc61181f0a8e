package main

import (
	"context"
	"database/sql"
	"errors"
	"os"

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
}

var (
	memory    = &place{name: "memory", start: startMemory}
	files     = &place{name: "files", start: startFiles}
	redis     = &place{name: "Redis, no file", start: startRedis}
	redisFile = &place{name: "Redis, appendfsync always", start: startRedis, args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	postgres  = &place{name: "PostgreSQL, fsync on", start: startPostgres, args: []string{"fsync=on", "shared_buffers=128MB", "max_connections=400"}}
	mariaDB   = &place{name: "MariaDB, flush 1", start: startMariaDB, args: []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M"}}
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
}

func startPostgres(p *place, ctx context.Context, b *bench.Bench, dir string) {
	p.at = pgtest.StartIn(b, dir, p.args...).URL()
	p.useSQL(ctx, b, "pgx", "DROP SCHEMA IF EXISTS throttle CASCADE; "+createBucket("bytea"), "throttle.budgets",
		func(ctx context.Context, _ *sql.DB) error { return pgstore.Setup(ctx, p.at, pgstore.Options{}) })
}

func startMariaDB(p *place, ctx context.Context, b *bench.Bench, dir string) {
	p.at = mysqltest.StartIn(b, dir, p.args...).Database(b, "stores")
	p.useSQL(ctx, b, "mysql", "DROP TABLE IF EXISTS throttle_rows; "+createBucket("VARBINARY(400)"), "throttle_rows", sqlstore.CreateTable)
}

// useSQL is how a database is emptied and held. The store's table and what makes it are given.
func (p *place) useSQL(ctx context.Context, b *bench.Bench, driver, empty, table string, create func(context.Context, *sql.DB) error) {
	db, err := sql.Open(driver, p.at)
	b.Must(err)
	b.Cleanup(func() { _ = db.Close() }) // the server ends as well
	b.Must(db.QueryRowContext(ctx, "SELECT version()").Scan(&p.version))
	p.empty = func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, empty)
		return errors.Join(err, create(ctx, db))
	}

	p.hold = func(ctx context.Context, b *bench.Bench) func() error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		b.Must(err)
		var rows int // a read begins the snapshot
		b.Must(tx.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&rows))
		return tx.Rollback
	}
}
