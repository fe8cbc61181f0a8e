//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// connect returns a connection of an administrator.
func connect(t *testing.T, server *pgtest.Server) *pgx.Conn {
	c, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	_, err := c.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// TestSetup: programs may set up at the same time, and again; other schemas are other budgets.
func TestSetup(t *testing.T) {
	server := pgtest.Start(t)
	_, err := open(t, server.URL()).Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorContains(t, err, "run pgstore.Setup or schema.sql once")
	var all sync.WaitGroup
	for range 4 {
		for _, schema := range []string{"", "other"} {
			all.Go(func() {
				if err := pgstore.Setup(t.Context(), server.URL(), pgstore.Options{Schema: schema}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	other, err := pgstore.New(server.URL(), pgstore.Options{Schema: "other"})
	require.NoError(t, err)
	require.True(t, now(t, open(t, server.URL()), hourly(1)))
	require.False(t, now(t, open(t, server.URL()), hourly(1)))
	require.True(t, now(t, other, hourly(1)))

	exec(t, connect(t, server), "UPDATE other.version SET version = 99")
	require.ErrorContains(t, pgstore.Setup(t.Context(), server.URL(), pgstore.Options{Schema: "other"}), "have version 99, and it needs 2")

	// Somebody has copied the tables without their rows.
	exec(t, connect(t, server), "DELETE FROM other.version")
	copied, err := pgstore.New(server.URL(), pgstore.Options{Schema: "other"})
	require.NoError(t, err)
	_, err = copied.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: store.AnyWait})
	require.ErrorContains(t, err, "its table other.version is empty; run pgstore.Setup or schema.sql once")
	require.NoError(t, pgstore.Setup(t.Context(), server.URL(), pgstore.Options{Schema: "other"}))

	_, err = pgstore.New(server.URL(), pgstore.Options{Schema: `a"; DROP`})
	require.ErrorContains(t, err, "use a name of at most 48 small letters")
}

// TestBeforeConnect: a password that BeforeConnect gives is the password of Setup, too. The error of BeforeConnect is the caller's, and an
// error about rights names the role that BeforeConnect has set.
func TestBeforeConnect(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	exec(t, admin, "CREATE ROLE owner LOGIN PASSWORD 'secret'; CREATE ROLE app LOGIN PASSWORD 'secret'; GRANT CREATE ON DATABASE postgres TO owner")

	// From the next start on the server asks all but the administrator for passwords.
	var rules string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&rules))
	exec(t, admin, "COPY (VALUES ('host all test all trust'), ('host all all all scram-sha-256')) TO '"+rules+"'")
	server.Stop()
	server.Restart()

	url := strings.Replace(server.URL(), "test@", "owner@", 1)
	withPassword := pgstore.Options{BeforeConnect: func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = "secret"
		return nil
	}}
	require.ErrorContains(t, pgstore.Setup(t.Context(), url, pgstore.Options{}), "password")
	require.NoError(t, pgstore.Setup(t.Context(), url, withPassword))

	s, err := pgstore.New(url, withPassword)
	require.NoError(t, err)
	require.True(t, now(t, s, hourly(1)))

	errHook := errors.New("no token")
	refuses := pgstore.Options{BeforeConnect: func(context.Context, *pgx.ConnConfig) error { return errHook }}
	require.ErrorIs(t, pgstore.Setup(t.Context(), url, refuses), errHook)

	other := pgstore.Options{BeforeConnect: func(_ context.Context, c *pgx.ConnConfig) error {
		c.User, c.Password = "app", "secret"
		return nil
	}}
	s, err = pgstore.New(url, other)
	require.NoError(t, err)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorContains(t, err, `the role "app" may not use the tables`)
}

// TestP14_NoPassword: the error of a URL that cannot be read has no part of the URL, neither in its text nor in a field of an error that it wraps.
func TestP14_NoPassword(t *testing.T) {
	t.Setenv("PGPASSWORD", "secret")
	for _, url := range []string{
		"postgres://app:secret@host:port/", "postgres://app:secret@host/db?sslmode=secret", "postgres://app:se%cret@host/db", "host=a password='secret", "host=a password=secret port=x",
		"postgres://app:secret@host:1,host:secret/", "postgres://app@host/db?connect_timeout=secret",
	} {
		_, err := pgstore.New(url, pgstore.Options{})
		require.ErrorContains(t, err, "cannot be read", url)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "ecret", url)
		require.NoError(t, errors.Unwrap(err), "what it wraps may have the URL in a field")
		err = pgstore.Setup(t.Context(), url, pgstore.Options{})
		require.ErrorContains(t, err, "cannot be read", url)
		require.NotContains(t, err.Error(), "ecret", url)
	}
}

// TestP12_RoleWithoutRights: a role that may connect to the database, and has no rights in the schema, cannot hold up a booking, whatever locks it takes.
func TestP12_RoleWithoutRights(t *testing.T) {
	server := newServer(t)
	s := open(t, server.URL())
	require.True(t, now(t, s, hourly(10)))
	exec(t, connect(t, server), "CREATE ROLE nobody LOGIN")
	hostile, err := pgx.Connect(t.Context(), strings.Replace(server.URL(), "test@", "nobody@", 1))
	require.NoError(t, err)
	t.Cleanup(func() { _ = hostile.Close(context.Background()) })

	// Everybody sees which locks a transaction has. Those that have no rights are taken by whoever asks.
	var numbers []int64
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	require.NoError(t, db.Transact(t.Context(), "", nil, func(rowstore.Tx) error {
		found, err := hostile.Query(t.Context(), "SELECT classid::bigint << 32 | objid::bigint FROM pg_catalog.pg_locks WHERE locktype = 'advisory'")
		require.NoError(t, err)
		numbers, err = pgx.CollectRows(found, pgx.RowTo[int64])
		return err
	}))
	for _, sql := range []string{
		"BEGIN; LOCK TABLE " + pgstore.LockTable(db, "") + " IN ACCESS SHARE MODE", "BEGIN; LOCK TABLE throttle.budgets IN ACCESS SHARE MODE",
		"SELECT FROM throttle.budgets FOR KEY SHARE", "DROP TABLE throttle.budgets",
	} {
		_, err := hostile.PgConn().Exec(t.Context(), sql).ReadAll()
		require.ErrorContains(t, err, "42501", sql)
		_, err = hostile.PgConn().Exec(t.Context(), "ROLLBACK").ReadAll()
		require.NoError(t, err)
	}
	for _, number := range numbers {
		_, err := hostile.Exec(t.Context(), "SELECT pg_advisory_lock($1)", number)
		require.NoError(t, err)
	}
	sleeps := make(chan error, 1)
	asleep, wake := context.WithCancel(t.Context())
	go func() {
		_, err := hostile.Exec(asleep, "SELECT pg_sleep(3600)") // a session that waits for its program would be ended
		sleeps <- err
	}()
	admin := connect(t, server)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Scan(&n))
		return n == 1
	}, time.Minute, time.Millisecond)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.NoError(t, db.Transact(ctx, "", nil, func(rowstore.Tx) error { return nil }))
	require.True(t, now(t, s, hourly(10)))
	wake()
	require.Error(t, <-sleeps)
}

// TestSetup_WhileTheTableIsRead: Setup waits for nobody who reads the table, such as a dump. Programs would wait behind it.
func TestSetup_WhileTheTableIsRead(t *testing.T) {
	server := newServer(t)
	dump := connect(t, server)
	exec(t, dump, "BEGIN; SELECT FROM throttle.budgets")
	require.NoError(t, pgstore.Setup(t.Context(), server.URL()+"&lock_timeout=1", pgstore.Options{}))
	exec(t, dump, "COMMIT")
}

// TestRights: a program needs the rights that schema.sql names, and no others.
func TestRights(t *testing.T) {
	server := newServer(t)
	admin := connect(t, server)
	exec(t, admin, "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE ROLE app LOGIN")
	url := strings.Replace(server.URL(), "test@", "app@", 1)
	_, err := open(t, url).Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorContains(t, err, `the role "app" may not use the tables of schema throttle`)
	rights := 0
	for line := range strings.Lines(pgstore.SchemaSQL) {
		if right, ok := strings.CutPrefix(line, "--     GRANT "); ok {
			exec(t, admin, "GRANT "+right)
			rights++
		}
	}
	require.Equal(t, 4, rights)
	require.True(t, now(t, open(t, url), hourly(1)))
	shared.NewsOfOthers(t, url)
	n, err := pgstore.Sweep(t.Context(), pgstore.NewDatabase(t, url, pgstore.Options{}))
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestP12_RightIsTakenAway: a right is missing that is needed only to save. It is certain that nothing was saved, so callers are told at once, and
// go on when they have the right.
func TestP12_RightIsTakenAway(t *testing.T) {
	server := newServer(t)
	admin := connect(t, server)
	exec(t, admin, "CREATE ROLE app LOGIN")
	for line := range strings.Lines(pgstore.SchemaSQL) {
		if right, ok := strings.CutPrefix(line, "--     GRANT "); ok {
			exec(t, admin, "GRANT "+right)
		}
	}
	s := open(t, strings.Replace(server.URL(), "test@", "app@", 1))
	require.True(t, now(t, s, hourly(10)))
	for _, right := range []string{"INSERT", "UPDATE"} {
		before := used(t, s, hourly(10))
		exec(t, admin, "REVOKE "+right+" ON throttle.budgets FROM app")
		_, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(10)}, MaxWait: store.AnyWait})
		require.ErrorContains(t, err, "permission denied")
		require.NotContains(t, err.Error(), "not known")
		exec(t, admin, "GRANT "+right+" ON throttle.budgets TO app")
		require.True(t, now(t, s, hourly(10)))
		require.Equal(t, before+1, used(t, s, hourly(10)))
	}
}

// TestRefusals: a statement that the server has refused undoes its transaction. The end of a session, of which a pooler tells as well, does
// not say what the server has done.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "42501"}, true},
		{fmt.Errorf("save: %w", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "53100"}), true},
		{&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}, false},
		{&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "08P01"}, false},
		{&pgconn.PgError{Severity: "ERROR", Code: "42501"}, false},
		{io.ErrUnexpectedEOF, false},
	} {
		require.Equal(t, tt.want, pgstore.IsError(tt.err), "%v", tt.err)
	}
}

// TestP10_Expiry: rows that no limit needs any more are removed, and no others.
func TestP10_Expiry(t *testing.T) {
	server := newServer(t)
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})

	// In small transactions, because on a busy machine a large one says nothing for so long that the server ends it. Each is the first of a program,
	// so none of them sweeps.
	for letter := range 25 {
		first := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
		require.NoError(t, first.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			for i := range 100 {
				tx.Put("g/"+strings.Repeat("x", i)+string(rune('a'+letter)), []byte("old"), -time.Hour)
			}
			return nil
		}))
	}
	require.NoError(t, db.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
		tx.Put("g/1", []byte("new"), 10*time.Minute) // longer than the test takes, on a busy machine, too
		tx.Put("g/2", []byte("new"), time.Hour)
		return nil
	}))
	left := func() (n int) {
		require.NoError(t, connect(t, server).QueryRow(t.Context(), "SELECT count(*) FROM throttle.budgets").Scan(&n))
		return n
	}
	require.Equal(t, 2502, left())
	for _, want := range []int64{1000, 1000, 500, 0} {
		n, err := pgstore.Sweep(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.Equal(t, 2, left())
	var kept bool
	require.NoError(t, connect(t, server).QueryRow(t.Context(), "SELECT expires >= now() + interval '59 minutes' FROM throttle.budgets WHERE key = 'g/2'").Scan(&kept))
	require.True(t, kept)
	plan, err := pgstore.SweepPlan(t.Context(), db)
	require.NoError(t, err)
	require.Contains(t, plan, "Index Cond: (expires <", "rows that are not over are not looked at")
}

// TestHeldSnapshot: updates change no index. A transaction that holds a snapshot keeps all versions of a row; the server
// looks at few of them all the same.
func TestHeldSnapshot(t *testing.T) {
	server := newServer(t)
	update := func(t *testing.T, times int) rowstore.Database {
		db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
		for range times {
			require.NoError(t, db.Transact(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
				tx.Put("g/a", make([]byte, 400), time.Hour)
				return nil
			}))
		}
		return db
	}
	admin, holder := connect(t, server), connect(t, server)
	t.Run("updates", func(t *testing.T) { update(t, 300) }) // a connection that ends tells what it has done
	require.Eventually(t, func() bool {
		var updated, hot, live int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			WHERE relname = 'budgets'`).Scan(&updated, &hot))
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM throttle.budgets").Scan(&live))
		return updated > 200 && hot > updated*8/10 && live == 1
	}, time.Minute, 10*time.Millisecond)

	exec(t, holder, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, holder, "SELECT count(*) FROM throttle.budgets")
	db := update(t, 1500)
	// Without generations the server looks at all of the pages, which are more than 100.
	require.Less(t, pgstore.PagesUsed(t, db, "g/a"), 50)
}

// TestP1_OtherFunctions: a role that may create functions where a program looks for them puts none in the place of those
// that the store calls, neither by arguments that fit better nor by a search_path in which they come first.
func TestP1_OtherFunctions(t *testing.T) {
	server := newServer(t)
	url := server.URL() + "&search_path=public,pg_catalog"
	for _, sql := range []string{
		"clock_timestamp() RETURNS timestamptz", "pg_notify(text, text) RETURNS void", "unnest(text[]) RETURNS SETOF text",
		"set_config(text, text, boolean) RETURNS text",
		"max_of_two(integer, integer) RETURNS integer",
	} {
		exec(t, connect(t, server), "CREATE FUNCTION public."+sql+" LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$")
	}
	exec(t, connect(t, server), "CREATE AGGREGATE public.max(integer) (SFUNC = public.max_of_two, STYPE = integer)")
	require.NoError(t, pgstore.Setup(t.Context(), url, pgstore.Options{}))
	require.True(t, now(t, open(t, url), hourly(1)))
	require.False(t, now(t, open(t, url), hourly(1)))
	shared.NewsOfOthers(t, url)
	_, err := pgstore.Sweep(t.Context(), pgstore.NewDatabase(t, url, pgstore.Options{}))
	require.NoError(t, err)
}

// TestNoTableIsReadWhole: a program that looked first while the table was small still finds rows by the index: the plans of a
// connection outlive the size that the table had then.
func TestNoTableIsReadWhole(t *testing.T) {
	server := newServer(t)
	admin := connect(t, server)
	put := func(tx rowstore.Tx) error {
		tx.Put("g/a", []byte("a"), time.Hour)
		return nil
	}
	require.NoError(t, pgstore.NewDatabase(t, server.URL(), pgstore.Options{}).Transact(t.Context(), "g", nil, put))
	exec(t, admin, "VACUUM ANALYZE throttle.budgets")
	scans := func() (whole, index int) {
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT seq_scan, idx_scan FROM pg_stat_user_tables
			WHERE relname = 'budgets'`).Scan(&whole, &index))
		return whole, index
	}
	require.Eventually(t, func() bool { // a session that ends tells what it has done, and Setup has read the table for its indexes
		var sessions int
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&sessions))
		return sessions == 2 // of the administrator, and of the program that has put the row
	}, time.Minute, 10*time.Millisecond)
	const times = 10 // after 5, the server may make a plan for all of them
	whole, index := scans()
	t.Run("program", func(t *testing.T) { // a connection that ends tells what it has done
		db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
		for range times {
			require.NoError(t, db.(rowstore.Reader).Read(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
				_, err := tx.Get("g/b")
				return err
			}))
		}
		for range times {
			require.NoError(t, db.Transact(t.Context(), "g", []string{"g/a"}, put))
		}
	})
	require.Eventually(t, func() bool {
		w, i := scans()
		return w+i >= whole+index+3*times
	}, time.Minute, 10*time.Millisecond)
	after, _ := scans()
	require.Equal(t, whole, after)
}
