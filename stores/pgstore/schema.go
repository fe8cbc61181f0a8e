package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// schemaSQL creates the tables of the package in a schema of the name throttle.
//
//go:embed schema.sql
var schemaSQL string

// inSchema returns SQL that is written for the default schema for a schema of a different name.
func inSchema(sql, schema string) string {
	return strings.NewReplacer(defaultSchema+".", schema+".", "SCHEMA IF NOT EXISTS "+defaultSchema, "SCHEMA IF NOT EXISTS "+schema).Replace(sql)
}

// Setup creates a schema with the tables of a store in the database. It changes nothing if that is there. The
// role needs the right to create a schema; the roles of programs need less, see schema.sql, which does the same in psql.
func Setup(ctx context.Context, url string, o Options) error {
	config, err := parse(url)
	d, wrong := newDatabase(config, o)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}

	c, err := pgx.ConnectConfig(ctx, d.server.config)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx))

	// Programs may set up at the same time. CREATE IF NOT EXISTS then fails in all of them except one, and succeeds in the next try.
	sql := "BEGIN;\n" + inSchema(schemaSQL, d.server.sql.schema) + "\nCOMMIT"
	for try := 1; ; try++ {
		_, err := c.PgConn().Exec(ctx, sql).ReadAll()
		if err == nil {
			break
		}
		if !isCode(err, uniqueViolation, duplicateSchema, duplicateTable, duplicateObject) || try == setupTriesMost {
			return fmt.Errorf("pgstore: setup: %w", err)
		}
		if _, err := c.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
			return fmt.Errorf("pgstore: setup: %w", err)
		}
	}

	// Tables of an earlier version were left as they are.
	if err := d.server.checkVersion(ctx, c); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}

	return nil
}

// setupTriesMost is how often Setup tries. Each program that it meets lets it fail at a schema, a table or an index at the most.
const setupTriesMost = 20

// Objects that a second program has created at the same time.
const (
	uniqueViolation = "23505"
	duplicateSchema = "42P06"
	duplicateTable  = "42P07"
	duplicateObject = "42710"
)
