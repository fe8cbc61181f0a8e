package pgstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// NewDatabase returns the database of a store, whose connections end with the test.
func NewDatabase(t testing.TB, url string, o Options) rowstore.Database {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDatabase(config, o)
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

// HearsFor reports whether messages for a node arrive.
func HearsFor(d rowstore.Database, node string) bool {
	l := &d.(*database).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hears && slices.Contains(l.listensFor, node)
}

// EndIfAlone ends the connection of the listener if nobody listens, as the timer of linger does.
func EndIfAlone(d rowstore.Database) { d.(*database).listener.endIfAlone() }

// ProbeWait is how long a message may take that the listener sends to itself.
const ProbeWait = probeWait

// SchemaSQL is schema.sql.
var SchemaSQL = schemaSQL

// Sweep removes some rows that have expired.
func Sweep(ctx context.Context, d rowstore.Database) (int64, error) {
	return d.(*database).sweeper.sweep(ctx)
}

// Prepared returns the statements for which the server has a plan in the session of some idle connection.
func Prepared(ctx context.Context, d rowstore.Database) (statements []string, err error) {
	db := d.(*database)
	c, err := db.conns.get(ctx)
	if err != nil {
		return nil, err
	}
	defer db.conns.drop(c)
	rows, err := c.Query(ctx, "SELECT statement FROM pg_prepared_statements", pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// LockedStatements returns the statements that a transaction may make while it has the lock, except COMMIT.
func LockedStatements(d rowstore.Database) []string {
	sql := d.(*database).server.sql
	return []string{sql.read, sql.save, sql.forget, sql.notify}
}

// SweepPlan returns how the server finds the rows that Sweep removes, if the table is so large that an index is of use.
func SweepPlan(ctx context.Context, d rowstore.Database) (string, error) {
	db := d.(*database)
	c, err := db.conns.get(ctx)
	if err != nil {
		return "", err
	}
	defer db.conns.drop(c)
	if _, err := c.Exec(ctx, "SET enable_seqscan = off; SET enable_bitmapscan = off"); err != nil {
		return "", err
	}
	rows, err := c.Query(ctx, "EXPLAIN "+db.server.sql.sweep, pgx.QueryExecModeExec)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// PagesUsed returns how many pages the server looks at to read a row and to save it.
func PagesUsed(t testing.TB, d rowstore.Database, key string) (pages int) {
	t.Helper()
	db, ctx := d.(*database), context.Background()
	err := d.Transact(ctx, "pages", []string{key}, func(tx0 rowstore.Tx) error {
		tx := tx0.(*tx)
		r := tx.row(key)
		for _, q := range []struct {
			sql  string
			args []any
		}{
			{db.server.sql.read, []any{[]string{key}}},
			{db.server.sql.save, []any{[]string{key}, []int64{r.generation}, []int32{r.updates + 1}, []time.Time{tx.now}, [][]byte{r.value}}},
		} {
			rows, err := tx.c.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS) "+q.sql, append([]any{pgx.QueryExecModeExec}, q.args...)...)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			used := strings.Split(strings.Join(lines, " "), "Buffers: shared hit=")[1] // that of all of it comes first
			n, err := strconv.Atoi(strings.Fields(used)[0])
			if err != nil {
				return err
			}
			pages += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// SetClock has a database read another clock than the server's, which is an expression in SQL.
func SetClock(t testing.TB, d rowstore.Database, expression string) {
	t.Helper()
	s := d.(*database).server.sql
	for _, sql := range []*string{&s.settings, &s.read, &s.sweep} {
		if !strings.Contains(*sql, clock) {
			t.Fatalf("no clock in %s", *sql)
		}
		*sql = strings.ReplaceAll(*sql, clock, expression)
	}
}

// Exec has the server do something in a transaction.
func Exec(t rowstore.Tx, sql string) error {
	_, err := t.(*tx).c.Exec(context.Background(), sql)
	return err
}

// SweepNext has the next transaction followed by a sweep.
func SweepNext(d rowstore.Database) { d.(*database).sweeper.next.Store(1) }

// IsError reports whether an error says for certain that the statements that follow are not done.
var IsError = isError

// LockTable is the table that is locked for a group.
func LockTable(d rowstore.Database, group string) string {
	return d.(*database).server.sql.lockTable(group)
}
