//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// holding is a slot.
var holding = store.Charge{Budget: store.Budget{Policy: "one at a time", Key: [16]byte{3}}, Limit: store.Concurrency(1), Cost: 1}

// TestP9_ServerClock: the server's clock is set. Set back, it gives nobody a start too many, and nobody waits for the length of
// the step. Set forward, windows, penalties and leases end earlier by so much.
func TestP9_ServerClock(t *testing.T) {
	server := newServer(t)
	w := newWallClock(t, server)
	t.Run("waiting", func(t *testing.T) { stepsWhileCallersWait(t, server, w) })
	t.Run("full", func(t *testing.T) { stepsWhileFull(t, server, w) })
	t.Run("closed", func(t *testing.T) { stepsWhileClosed(t, server, w) })
	t.Run("held", func(t *testing.T) { stepsWhileHeld(t, server, w) })
	t.Run("locked", func(t *testing.T) { stepsWhileLocked(t, server, w) })
}

// stepsWhileCallersWait: the window is full, and callers of two nodes wait.
func stepsWhileCallersWait(t *testing.T, server *pgtest.Server, w *wallClock) {
	const n, per = 10, 100 * time.Millisecond
	_, one := openOn(t, server.URL())
	_, other := openOn(t, server.URL())
	s := come(t, 4, throttle.Policy{Name: "api", Limit: store.SlidingWindow(n, per)}, one, other)
	s.await(t, 2*n)
	for _, back := range steps() {
		w.step(t, -back)
		s.await(t, 2*n)
	}
	require.LessOrEqual(t, s.most(per), n)
	for _, forward := range steps() {
		w.step(t, forward)
		s.await(t, 3*n) // the steps are further apart than a window
	}
	s.end()
	require.LessOrEqual(t, s.most(per), 2*n)
}

// steps are by how much clocks are set.
func steps() []time.Duration {
	all := []time.Duration{time.Second, time.Hour}
	for range soak.Seeds(12, 0) {
		all = append(all, rand.N(time.Second), rand.N(time.Hour))
	}
	return all
}

// stepsWhileFull: what was spent stays spent, whichever node spent it and whichever asks.
func stepsWhileFull(t *testing.T, server *pgtest.Server, w *wallClock) {
	_, one := openOn(t, server.URL())
	_, other := openOn(t, server.URL())
	stores := []*rowstore.Store{one, other}
	const n = 250 // a row has another generation after each 100 updates
	charge := hourly(n)
	for i := range n {
		if i%50 == 49 {
			w.step(t, -time.Hour)
		}
		require.True(t, now(t, stores[i%2], charge))
	}
	for i, by := range []time.Duration{0, -time.Millisecond, -59 * time.Minute, -3 * time.Hour} {
		w.step(t, by)
		require.False(t, now(t, stores[i%2], charge))
		require.Equal(t, n, used(t, stores[i%2], charge))
	}
	w.step(t, 2*time.Hour)
	require.True(t, now(t, one, charge))
}

// stepsWhileClosed: a penalty lasts for as long as it should.
func stepsWhileClosed(t *testing.T, server *pgtest.Server, w *wallClock) {
	_, one := openOn(t, server.URL())
	_, other := openOn(t, server.URL())
	const pause = 100 * time.Millisecond
	charge := store.Charge{Budget: store.Budget{Policy: "closed", Key: [16]byte{4}}, Limit: store.PerSecond(10), Cost: 1}
	began := time.Now()
	require.NoError(t, one.Pause(t.Context(), charge, pause))
	w.step(t, -time.Hour)
	g, err := other.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge}, MaxWait: time.Minute})
	require.NoError(t, err)
	require.True(t, g.OK)
	require.GreaterOrEqual(t, time.Since(began)+g.Wait, pause)
	require.LessOrEqual(t, g.Wait, pause)

	require.NoError(t, one.Pause(t.Context(), charge, time.Hour))
	w.step(t, 2*time.Hour)
	require.True(t, now(t, other, charge))
}

// stepsWhileHeld: what a program holds stays held. What a program that is cut off holds is free when its lease is over,
// however far the clock was set back.
func stepsWhileHeld(t *testing.T, server *pgtest.Server, w *wallClock) {
	holderNet, waitsNet := newRelay(t, server), newRelay(t, server)
	_, holder := openOn(t, holderNet.url(t, server))
	_, waits := openOn(t, waitsNet.url(t, server))
	require.True(t, now(t, holder, holding))

	b := store.Booking{Charges: []store.Charge{holding}, MaxWait: time.Minute}
	g, err := waits.Book(t.Context(), &b)
	require.NoError(t, err)
	w.step(t, -time.Hour)
	require.False(t, now(t, waits, holding))

	holderNet.freeze()
	defer holderNet.thaw()
	for !g.OK {
		require.NotNil(t, g.Ready)
		select {
		case <-g.Ready:
		case <-time.After(time.Minute):
			t.Fatal("the slot is never free")
		}
		b.Instead, b.Turn = g.Handle, g.Turn
		g, err = waits.Book(t.Context(), &b)
		require.NoError(t, err)
	}
	_, third := openOn(t, server.URL())
	require.False(t, now(t, third, holding))

	// The lease ends with the step, unless its program renews it between the step and the third program's question.
	waitsNet.freeze()
	defer waitsNet.thaw()
	w.step(t, time.Hour)
	require.True(t, now(t, third, holding))
}

// stepsWhileLocked: a transaction waits for the lock. It has the time after that wait, and knows when it asked for it: not
// before the wait was over if nobody set the clock, and never after it had the answer.
func stepsWhileLocked(t *testing.T, server *pgtest.Server, w *wallClock) {
	one, _ := openOn(t, server.URL())
	other, _ := openOn(t, server.URL())
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		// On a busy machine the first program may stand still for as long as the server waits. Then the lock was free before.
		lost := stepWhileLocked(t, w, one, other, step)
		for try := 1; lost != nil && try < 10; try++ {
			lost = stepWhileLocked(t, w, one, other, step)
		}
		require.NoError(t, lost)
	}
}

// stepWhileLocked sets the clock while one has the lock and the other one waits for it. It returns an error if one has lost the lock.
func stepWhileLocked(t *testing.T, w *wallClock, one, other rowstore.Database, step time.Duration) (lost error) {
	const held = 200 * time.Millisecond
	locked, goOn, released, ended := make(chan time.Time, 1), make(chan struct{}), make(chan error, 1), make(chan error, 1)
	calls := 0
	go func() {
		released <- one.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			calls++
			if calls > 1 {
				return errLost
			}
			locked <- tx.Now()
			return holds(tx, goOn)
		})
	}()
	before := <-locked
	called := time.Now()
	var now, asked, had time.Time
	go func() {
		ended <- other.Transact(t.Context(), "g", nil, func(tx rowstore.Tx) error {
			now, asked, had = tx.Now(), tx.(rowstore.Asker).Asked(), time.Now()
			return nil
		})
	}()

	// Until the other one waits, or the lock is lost.
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, w.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting))
		return waiting == 1 || len(released) > 0
	}, time.Minute, time.Millisecond)
	time.Sleep(held) // the wait has to be longer than what the machine stalls for between two lines
	w.step(t, step)
	close(goOn)
	require.NoError(t, <-ended)
	lost = <-released
	if lost != nil {
		return lost
	}

	require.GreaterOrEqual(t, now.Sub(before), held+step)
	require.WithinRange(t, asked, called, had)
	if step == 0 {
		require.GreaterOrEqual(t, asked.Sub(called), held)
	}
	return nil
}

// errLost is the error of a transaction that would be made once more.
var errLost = errors.New("the lock was lost")

// holds keeps the lock of a transaction until goOn is closed, and does not stand still: the server hears of it again and again.
func holds(tx rowstore.Tx, goOn <-chan struct{}) error {
	for {
		select {
		case <-goOn:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		if err := pgstore.Exec(tx, "SELECT"); err != nil {
			return err
		}
	}
}

// TestP9_FailoverToAnotherClock: the standby that takes over has a clock that is behind, and no window holds too much; or
// one that is ahead.
func TestP9_FailoverToAnotherClock(t *testing.T) {
	soak.Only(t)
	const n, per, spent = 10, 200 * time.Millisecond, 10
	for _, ahead := range []time.Duration{-time.Hour, -time.Second, -20 * time.Millisecond, time.Hour} {
		server := newServer(t)
		w := newWallClock(t, server)
		standby := followed(t, server)
		w.add(t, standby, ahead)
		url := both(server, standby)
		db, _ := openOn(t, url)
		otherDB, _ := openOn(t, url)
		one, other := must(rowstore.New(db, rowstore.Options{})), must(rowstore.New(otherDB, rowstore.Options{})) // whose lease is longer than it takes to promote
		charge := hourly(2 * spent)
		for range spent {
			require.True(t, now(t, one, charge))
		}
		s := come(t, 4, throttle.Policy{Name: "api", Limit: store.SlidingWindow(n, per)}, one, other)
		s.await(t, 3*n)
		server.Kill()
		standby.Promote()
		s.await(t, 3*n)
		s.end()
		if ahead > 0 {
			require.LessOrEqual(t, s.most(per), 2*n)
			continue
		}
		require.LessOrEqual(t, s.most(per), n)
		require.Equal(t, spent, used(t, other, charge))
	}
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

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
	return db, must(rowstore.New(db, rowstore.Options{Lease: 4 * time.Second})) // which a busy machine comes to renew
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
		*first = time.Now().Add(g.Wait)
		if g.Wait == 0 {
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
