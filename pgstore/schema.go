package pgstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// schemaSQL creates what the package needs in a schema of the name throttle.
//
//go:embed schema.sql
var schemaSQL string

// inSchema returns SQL that is written for the default schema for another one.
func inSchema(sql, schema string) string {
	return strings.NewReplacer(defaultSchema+".", schema+".", "SCHEMA IF NOT EXISTS "+defaultSchema, "SCHEMA IF NOT EXISTS "+schema).Replace(sql)
}

// Setup creates what a store needs in the database: a schema with two tables. It changes nothing if that is there. The
// role needs the right to create a schema; the roles of programs need less, see schema.sql, which does the same in psql.
func Setup(ctx context.Context, url string, o *Options) error {
	d, err := newDatabase(url, o)
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, d.server.config)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	// Programs that set up at the same time come one after the other: CREATE IF NOT EXISTS alone fails then.
	sql := fmt.Sprintf("BEGIN; SELECT pg_catalog.pg_advisory_xact_lock(%d);\n%s\nCOMMIT", d.server.sql.lockOf("setup"), inSchema(schemaSQL, d.server.sql.schema))
	if _, err := c.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("pgstore: setup: %w", err)
	}
	if err := d.server.checkVersion(ctx, c); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	return nil
}
