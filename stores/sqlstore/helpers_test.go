//go:build unix

package sqlstore_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

func TestMain(m *testing.M) {
	shared.Main()
	os.Exit(mysqltest.Main(m))
}

// open opens a database, and closes it when the test ends.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := openDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func openDB(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }

// table returns the data source name of a database that has an empty table.
func table(t testing.TB) string {
	t.Helper()
	dsn := mysqltest.Shared(t)
	require.NoError(t, sqlstore.CreateTable(t.Context(), open(t, dsn)))
	return dsn
}

// add adds to a row, and returns what the row was and the time.
func add(db rowstore.Database, key string, meanwhile func()) (was string, now time.Time, err error) {
	err = db.Transact(context.Background(), "group", []string{key}, func(tx rowstore.Tx) error {
		values, err := tx.Get(key)
		if err != nil {
			return err
		}
		if meanwhile != nil {
			meanwhile()
		}
		was, now = string(values[0]), tx.Now()
		tx.Put(key, []byte(was+"+"), time.Hour)
		return nil
	})
	return was, now, err
}

// exec runs statements.
func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// number returns the number that a query returns.
func number(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
