package pgstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// put is a transaction that saves a row.
func put(tx rowstore.Tx) error {
	tx.Put("g/a", []byte("value"), time.Hour)
	return nil
}

// TestTransact: what becomes of transactions that the server refuses, undoes, or of which nobody knows.
func TestTransact(t *testing.T) {
	server := newServer(t)
	admin := connect(t, server)
	newDB := func(t *testing.T) rowstore.Database { return pgstore.NewDatabase(t, server.URL(), pgstore.Options{}) }

	t.Run("undone", func(t *testing.T) {
		for code, times := range map[string]int{"40001": 3, "40P01": 3, "23505": 1} {
			exec(t, admin, `CREATE SEQUENCE test_tries; CREATE FUNCTION test_undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('test_tries') < 3 THEN RAISE 'undone' USING ERRCODE = '`+code+`'; END IF; RETURN NEW;
			END $$; CREATE TRIGGER test_undo BEFORE INSERT ON throttle.budgets FOR EACH ROW EXECUTE FUNCTION test_undo()`)
			calls := 0
			err := newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
				calls++
				return put(tx)
			})
			require.Equal(t, times, calls, code)
			require.Equal(t, times == 1, err != nil, code)
			exec(t, admin, "DROP TRIGGER test_undo ON throttle.budgets; DROP FUNCTION test_undo; DROP SEQUENCE test_tries")
		}
	})

	t.Run("the COMMIT is lost", func(t *testing.T) {
		r := newRelay(t, server)
		var loses atomic.Bool
		r.lose = func() bool { return loses.CompareAndSwap(true, false) }
		calls := 0
		err := pgstore.NewDatabase(t, r.url(t, server), pgstore.Options{}).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			calls++
			loses.Store(true)
			return put(tx)
		})
		require.ErrorIs(t, err, rowstore.ErrAway)
		require.Equal(t, 1, calls, "it may have been saved")
	})

	t.Run("given up by the server", func(t *testing.T) {
		err := newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			_, err := tx.Get("\xff")
			require.Error(t, err)
			return nil
		})
		require.ErrorContains(t, err, "COMMIT was answered by ROLLBACK")
	})

	t.Run("warning of something else", func(t *testing.T) {
		require.NoError(t, newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			require.NoError(t, pgstore.Exec(tx, "DO $$ BEGIN RAISE WARNING 'of no concern'; END $$"))
			return put(tx)
		}))
	})

	t.Run("dead connections", func(t *testing.T) {
		db := newDB(t)
		for range 2 {
			require.NoError(t, db.Transact(t.Context(), "g", nil, put))
			kill(t, admin)
			require.NoError(t, db.Transact(t.Context(), "g", nil, put), "it was lost before anything was sent")
			kill(t, admin)
			require.NoError(t, db.(rowstore.Reader).Read(t.Context(), "g", nil, func(rowstore.Tx) error { return nil }))
		}
	})

	t.Run("connections", func(t *testing.T) {
		db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{Connections: 1})
		require.NoError(t, db.Transact(t.Context(), "g", nil, func(rowstore.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := db.Transact(ctx, "other", nil, put)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "all connections are in use")
			return nil
		}))
	})

	t.Run("defaults of the role", func(t *testing.T) {
		url := server.URL() + "&default_transaction_read_only=on&default_transaction_isolation=serializable"
		db := pgstore.NewDatabase(t, url, pgstore.Options{})
		for range 2 {
			require.NoError(t, db.Transact(t.Context(), "g", nil, put))
		}
	})

	t.Run("many nodes are woken", func(t *testing.T) {
		require.NoError(t, newDB(t).Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			for i := range 1000 {
				tx.(rowstore.Waker).Wake(fmt.Sprintf("a-node-with-a-long-name-%d", i))
			}
			return nil
		}))
	})

	t.Run("sweeps", func(t *testing.T) {
		db := newDB(t)
		require.NoError(t, db.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			tx.Put("g/old", nil, -time.Hour)
			return nil
		}))
		pgstore.SweepNext(db)
		require.NoError(t, db.Transact(t.Context(), "g", nil, put))
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM throttle.budgets WHERE key = 'g/old'").Scan(&n))
			return n == 0
		}, time.Minute, time.Millisecond)
	})

	t.Run("refused", func(t *testing.T) {
		exec(t, admin, "CREATE SCHEMA newer; CREATE TABLE newer.version AS SELECT 2 AS version")
		for url, schema := range map[string]string{
			server.URL(): "newer", // another version
			fmt.Sprintf("postgres://nobody@%s/postgres", server.Addr()): "",
			fmt.Sprintf("postgres://test@%s/nowhere", server.Addr()):    "",
			server.URL() + "&search_path=public":                        "none",
		} {
			s, err := pgstore.New(url, pgstore.Options{Schema: schema})
			require.NoError(t, err)
			_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: time.Minute})
			require.Error(t, err)
			require.NotErrorIs(t, err, rowstore.ErrAway, "nobody waits for an administrator")
		}
	})
}

// kill ends the sessions of programs, and waits until they have ended.
func kill(t *testing.T, admin *pgx.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = 'throttle'`).Scan(&n))
		return n == 0
	}, time.Minute, time.Millisecond)
}
