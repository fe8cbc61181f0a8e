package pgstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/rowstore"
)

// NewDatabase returns the database of a store, whose connections end with the test.
func NewDatabase(t testing.TB, url string, o *Options) rowstore.Database {
	t.Helper()
	d, err := newDatabase(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conns.closeIdle(time.Now()) })
	return d
}

// Hears reports whether messages arrive, and Heard how many did.
func Hears(d rowstore.Database) bool {
	l := &d.(*database).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hears
}

func Heard(d rowstore.Database) int {
	l := &d.(*database).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

// SchemaSQL is schema.sql.
var SchemaSQL = schemaSQL

// Sweep removes some rows that have expired.
func Sweep(ctx context.Context, d rowstore.Database) (int64, error) { return d.(*database).sweep(ctx) }

// PagesRead returns how many pages the server looks at to read a row.
func PagesRead(t testing.TB, d rowstore.Database, key string) (pages int) {
	t.Helper()
	db := d.(*database)
	c, err := db.conns.get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer db.conns.put(c)
	for _, sql := range []string{"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off", "SET enable_bitmapscan = off"} {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := c.Query(context.Background(), "EXPLAIN (ANALYZE, BUFFERS) "+db.statements.read, pgx.QueryExecModeExec, []string{key})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		t.Log(line)
		if _, n, ok := strings.Cut(line, "Buffers: shared hit="); ok && pages == 0 {
			pages, _ = strconv.Atoi(strings.Fields(n)[0])
		}
	}
	return pages
}
