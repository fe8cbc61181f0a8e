package pgstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A wallClock is the clock of a server that a test sets. It is a function of the server, because nobody may set the clock
// of the machine: the clock that the server reads, and as much more as a table says of the server's port. A standby has the table, too.
type wallClock struct {
	admin *pgx.Conn
}

func newWallClock(t *testing.T, server *pgtest.Server) *wallClock {
	w := &wallClock{connect(t, server)}
	exec(t, w.admin, `CREATE SCHEMA test;
		CREATE TABLE test.clock (port integer PRIMARY KEY, ahead interval NOT NULL);
		CREATE FUNCTION test.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
			RETURN pg_catalog.clock_timestamp() + (SELECT ahead FROM test.clock WHERE port = inet_server_port());
		END $$`)
	w.add(t, server, 0)
	return w
}

// add has the clock of a server be ahead of that of the machine.
func (w *wallClock) add(t *testing.T, server *pgtest.Server, ahead time.Duration) {
	t.Helper()
	_, err := w.admin.Exec(t.Context(), "INSERT INTO test.clock VALUES ($1, $2)", server.Port, ahead)
	require.NoError(t, err)
}

// step sets the clocks forward, or back.
func (w *wallClock) step(t *testing.T, by time.Duration) {
	t.Helper()
	_, err := w.admin.Exec(t.Context(), "UPDATE test.clock SET ahead = ahead + $1", by)
	require.NoError(t, err)
}

// openOn returns a database that reads such a clock, and a store on it.
func openOn(t *testing.T, url string) (rowstore.Database, *rowstore.Store) {
	t.Helper()
	db := pgstore.NewDatabase(t, url, pgstore.Options{})
	pgstore.SetClock(t, db, "test.clock_timestamp()")
	return db, must(rowstore.New(db, rowstore.Options{Lease: time.Second}))
}

// Starts are those of callers that wait in line, as an upstream counts them: by a clock that nobody sets.
type starts struct {
	mu   sync.Mutex
	all  []started
	over context.CancelFunc
	done sync.WaitGroup
}

// A started is a start that was made between two moments.
type started struct{ first, last time.Time }

// A bookedStart notes, for a caller, the earliest moment of the start that was booked last.
type bookedStart struct{}

// A noting is a store that notes starts.
type noting struct{ *rowstore.Store }

func (n noting) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := n.Store.Book(ctx, b)
	if first, ok := ctx.Value(bookedStart{}).(*time.Time); ok && g.OK {
		if *first = time.Now().Add(g.Wait); g.Wait == 0 {
			*first = first.Add(-g.Age)
		}
	}
	return g, err
}

// come has callers of several stores start again and again. None of them waits for as long as an hour.
func come(t *testing.T, callers int, p throttle.Policy, stores ...*rowstore.Store) *starts {
	s := new(starts)
	ctx, over := context.WithCancel(t.Context())
	s.over = over
	for _, store := range stores {
		l, err := throttle.NewLimiter(noting{store}, p)
		require.NoError(t, err)
		for range callers {
			s.done.Go(func() {
				for ctx.Err() == nil {
					var first time.Time
					one, stop := context.WithTimeout(context.WithValue(ctx, bookedStart{}, &first), time.Minute)
					_, err := l.Acquire(throttle.WithMaxWait(one, throttle.Forever), "", 1)
					stop()
					if err == nil {
						s.note(started{first, time.Now()})
					} else if ctx.Err() == nil {
						t.Errorf("a caller has no start: %v", err)
						return
					}
				}
			})
		}
	}
	t.Cleanup(s.end)
	return s
}

func (s *starts) note(one started) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

func (s *starts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// await waits until so many starts more are made.
func (s *starts) await(t *testing.T, more int) {
	t.Helper()
	enough := s.count() + more
	require.Eventually(t, func() bool { return s.count() >= enough }, time.Minute, time.Millisecond)
}

func (s *starts) end() {
	s.over()
	s.done.Wait()
}

// most returns how many starts a window has held for certain.
func (s *starts) most(per time.Duration) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.all {
		from, n := end.last.Add(-per), 0
		for _, other := range s.all {
			if other.first.After(from) && !other.last.After(end.last) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
