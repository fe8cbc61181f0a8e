package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// schemaSQL creates what the package needs in a schema of the name throttle.
//
//go:embed schema.sql
var schemaSQL string

// version is that of schema.sql.
const version = 1

// defaultSchema is the name that schema.sql has.
const defaultSchema = "throttle"

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Setup creates what a store needs in the database: a schema with two tables. It changes nothing if that is there. The
// role needs the right to create a schema; the roles of programs need less, see schema.sql, which does the same in psql.
func Setup(ctx context.Context, url string, o *Options) error {
	d, err := newDatabase(url, o)
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, d.config)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	// Programs that set up at the same time come one after the other: CREATE IF NOT EXISTS alone fails then.
	sql := fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d);\n%s\nCOMMIT", d.lockOf("setup"), inSchema(schemaSQL, d.schema))
	if _, err := c.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("pgstore: setup: %w", err)
	}
	if err := d.checkVersion(ctx, c); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	return nil
}

// inSchema returns SQL that is written for the default schema for another one.
func inSchema(sql, schema string) string {
	return strings.NewReplacer(defaultSchema+".", schema+".", "SCHEMA IF NOT EXISTS "+defaultSchema, "SCHEMA IF NOT EXISTS "+schema).Replace(sql)
}

// errNotSetUp says that the tables are not those that this package needs.
var errNotSetUp = errors.New("the database is not set up for this program")

// checkVersion looks whether the database has been set up for this package.
func (d *database) checkVersion(ctx context.Context, c *pgx.Conn) error {
	var v int
	err := c.QueryRow(ctx, "SELECT max(version) FROM "+d.schema+".version", pgx.QueryExecModeSimpleProtocol).Scan(&v)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000"):
		return fmt.Errorf("%w: it has no table %s.version; run pgstore.Setup or schema.sql once: %w", errNotSetUp, d.schema, err)
	case errors.As(err, &refused) && refused.Code == "42501":
		return fmt.Errorf("%w: the role %q may not use the tables of schema %s; schema.sql has the rights that it needs: %w", errNotSetUp, d.config.User, d.schema, err)
	case err != nil:
		return err
	case v != version:
		return fmt.Errorf("%w: the tables of schema %s have version %d, and it needs %d", errNotSetUp, d.schema, v, version)
	}
	return nil
}
