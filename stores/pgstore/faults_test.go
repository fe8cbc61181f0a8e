//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// hourly is a budget of which what is spent stays spent during a test.
func hourly(n int) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: store.PerHour(n), Cost: 1}
}

// open returns a store.
func open(t *testing.T, url string) *rowstore.Store {
	t.Helper()
	s, err := pgstore.New(url, pgstore.Options{})
	require.NoError(t, err)
	return s
}

// now books a start now, and reports whether there is one.
func now(t *testing.T, s store.Store, c store.Charge) bool {
	t.Helper()
	g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{c}})
	require.NoError(t, err)
	return g.OK
}

func used(t *testing.T, s store.Store, c store.Charge) int {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st.Used
}

// A crowd books starts of the hourly budget through several stores.
type crowd struct {
	granted, failed atomic.Int64
	callers         sync.WaitGroup
	over            atomic.Bool
}

// come has so many callers for each store book until the crowd is over, or there is no room.
func (c *crowd) come(t *testing.T, callers int, charge store.Charge, stores ...store.Store) {
	for _, s := range stores {
		for range callers {
			c.callers.Go(func() {
				for !c.over.Load() {
					switch g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge}}); {
					case err != nil:
						c.failed.Add(1)
					case !g.OK:
						return
					default:
						c.granted.Add(1)
					}
				}
			})
		}
	}
}

// awaits waits until so many starts more are granted.
func (c *crowd) awaits(t *testing.T, more int64) {
	t.Helper()
	enough := c.granted.Load() + more
	require.Eventually(t, func() bool { return c.granted.Load() >= enough }, time.Minute, time.Millisecond)
}

func (c *crowd) ends() {
	c.over.Store(true)
	c.callers.Wait()
}

// TestP8_LostReplies: the connection of each tenth trip is lost when the server has done what was asked, and
// nobody knows. Each start that was granted counts once, and no other.
func TestP8_LostReplies(t *testing.T) {
	server := newServer(t)
	r := newRelay(t, server)
	r.lose = func() bool { return rand.IntN(10) == 0 }
	charge := hourly(1_000_000)
	var c crowd
	c.come(t, 4, charge, open(t, r.url(t, server)), open(t, r.url(t, server)))
	c.awaits(t, 300)
	c.ends()
	s := open(t, server.URL())
	require.Eventually(t, func() bool { return used(t, s, charge) == int(c.granted.Load()) }, time.Minute, 10*time.Millisecond,
		"what could not be booked is given back")
	require.NotZero(t, c.granted.Load())
}

// TestP12_KilledServer: the server crashes under load, and starts again. All starts that were granted count.
func TestP12_KilledServer(t *testing.T) {
	server := newServer(t)
	charge := hourly(1_000_000)
	var c crowd
	c.come(t, 4, charge, open(t, server.URL()), open(t, server.URL()))
	for range 2 {
		c.awaits(t, 200)
		server.Kill()
		s, waits := open(t, server.URL()), make(chan error)
		go func() {
			g, err := s.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge}, MaxWait: time.Minute})
			if err == nil && g.OK {
				c.granted.Add(1)
			}
			waits <- err
		}()
		server.Restart()
		require.NoError(t, <-waits, "a caller waits for a server that starts")
	}
	c.awaits(t, 200)
	c.ends()
	s := open(t, server.URL())
	require.Eventually(t, func() bool { return used(t, s, charge) == int(c.granted.Load()) }, time.Minute, 10*time.Millisecond)
}

// TestP12_FrozenServer: nothing arrives any more, and no connection ends. Callers are told that when their patience is
// over, and go on when the network does.
func TestP12_FrozenServer(t *testing.T) {
	server := newServer(t)
	r := newRelay(t, server)
	s, charge := open(t, r.url(t, server)), hourly(1_000_000)
	require.True(t, now(t, s, charge))
	r.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Book(ctx, &store.Booking{Charges: []store.Charge{charge}, MaxWait: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{charge}, MaxWait: 50 * time.Millisecond})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	r.thaw()
	require.True(t, now(t, s, charge))
	require.Eventually(t, func() bool { return used(t, s, charge) == 2 }, time.Minute, 10*time.Millisecond)
}

// TestP1_StandsStill: a program stands still while it has the lock. Others go on without it, and what it decides
// then is not saved.
func TestP1_StandsStill(t *testing.T) {
	server := newServer(t)
	one, other := pgstore.NewDatabase(t, server.URL(), pgstore.Options{}), pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	locked, awake := make(chan struct{}), make(chan struct{})
	stood := make(chan error)
	go func() {
		stood <- one.Transact(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
			close(locked)
			<-awake
			tx.Put("g/a", []byte("late"), time.Hour)
			return nil
		})
	}()
	<-locked
	require.NoError(t, other.Transact(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
		tx.Put("g/a", []byte("good"), time.Hour)
		return nil
	}))
	close(awake)
	require.Error(t, <-stood)
	require.NoError(t, one.Transact(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
		values, err := tx.Get("g/a")
		require.Equal(t, "good", string(values[0]))
		return err
	}))
}

// TestP1_EndedWait: an administrator ends the wait of a COMMIT for a synchronous standby, which does not come. The
// server says that the COMMIT succeeded, with a warning. The standby does not have it, so it is not relied on.
func TestP1_EndedWait(t *testing.T) {
	server := newServer(t)
	db := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	put := func(tx rowstore.Tx) error {
		tx.Put("g/a", []byte("here alone"), time.Hour)
		return nil
	}
	require.NoError(t, db.Transact(t.Context(), "g", nil, put))
	admin, err := pgx.Connect(t.Context(), server.URL()+"&application_name=admin")
	require.NoError(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	exec := func(sql string) int64 {
		done, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
		return done.RowsAffected()
	}
	exec("SET synchronous_commit = off")
	exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	exec("SELECT pg_reload_conf()")
	endWaits := func() bool {
		return exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0
	}
	result := make(chan error)
	// The server may hear of the setting a moment later.
	for done, end := false, time.Now().Add(time.Minute); !done; {
		require.True(t, time.Now().Before(end), "a COMMIT that did not wait counts")
		go func() { result <- db.Transact(t.Context(), "g", nil, put) }()
		for waits := true; waits; {
			select {
			case err := <-result:
				done, waits = err != nil, false
				if done {
					require.ErrorContains(t, err, "COMMIT with a warning")
				}
			case <-time.After(time.Millisecond):
				endWaits()
			}
		}
	}
	// Whoever only reads waits for the standby, too: what it reads may be lost.
	go func() {
		result <- db.Transact(t.Context(), "g", []string{"g/a"}, func(tx rowstore.Tx) error {
			_, err := tx.Get("g/a")
			return err
		})
	}()
	require.Eventually(t, endWaits, time.Minute, time.Millisecond)
	require.ErrorContains(t, <-result, "COMMIT with a warning")

	// A program that does not wait any longer does not end the wait of the server.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { result <- db.Transact(ctx, "g", nil, put) }()
	waiting := "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	require.Eventually(t, func() bool { return exec(waiting) == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	time.Sleep(100 * time.Millisecond) // for what must not happen
	require.EqualValues(t, 1, exec(waiting))
	require.True(t, endWaits())
}

// TestP7_CancelledCrowd: callers that leave at any moment leave nothing behind.
func TestP7_CancelledCrowd(t *testing.T) {
	server := newServer(t)
	stores := []store.Store{open(t, server.URL()), open(t, server.URL())}
	charge := hourly(1_000_000)
	slot := store.Charge{Budget: store.Budget{Policy: "slots", Key: [16]byte{2}}, Limit: store.Concurrency(2), Cost: 1}
	var granted atomic.Int64
	for granted.Load() == 0 { // on a busy machine, all may have left before the first connection is made
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(200*time.Millisecond))
				defer cancel()
				s, b := stores[i%2], store.Booking{Charges: []store.Charge{charge, slot}, MaxWait: time.Minute}
				for ctx.Err() == nil {
					g, err := s.Book(ctx, &b)
					switch {
					case errors.Is(err, context.DeadlineExceeded):
					case err != nil:
						t.Error(err)
					case g.OK:
						granted.Add(1)
						s.Release(&b, g)
					case g.Ready != nil:
						select {
						case <-g.Ready:
						case <-ctx.Done():
						}
						if ctx.Err() == nil {
							b.Instead, b.Turn = g.Handle, g.Turn
							continue
						}
						s.Cancel(&b, g) // also if it is its turn: else its place is kept until the lease is over
					}
					b.Instead, b.Turn = store.Handle{}, nil
				}
			})
		}
		callers.Wait()
	}
	require.Eventually(t, func() bool {
		st, err := stores[0].Status(t.Context(), slot)
		return err == nil && st.Waiting == 0 && st.Used == 0 && used(t, stores[1], charge) == int(granted.Load())
	}, time.Minute, 10*time.Millisecond)
}

// TestP16_CallersInLineAreTold: when the server is gone, or a table is, callers that waited in line before learn of it as newcomers do: an event explains
// their silence, and an error names the table.
func TestP16_CallersInLineAreTold(t *testing.T) {
	for name, fault := range map[string]func(*pgtest.Server, *pgx.Conn){
		"table":  func(_ *pgtest.Server, admin *pgx.Conn) { exec(t, admin, "ALTER TABLE throttle.budgets RENAME TO gone") },
		"server": func(s *pgtest.Server, _ *pgx.Conn) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t)
			admin := connect(t, server)
			failed := make(chan throttle.Event, 100)
			l, err := throttle.NewLimiters(throttle.Config{
				Store: open(t, server.URL()), MaxWait: throttle.Forever,
				Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerHour(1)}},
				Observe: func(_ context.Context, e throttle.Event) {
					if e.Kind == throttle.EventStoreFailed {
						failed <- e
					}
				},
			})
			require.NoError(t, err)
			_, err = l.Acquire(t.Context(), throttle.Demand{Policy: "p"})
			require.NoError(t, err)

			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			for range cap(ended) {
				go func() {
					_, err := l.Acquire(ctx, throttle.Demand{Policy: "p"})
					ended <- err
				}()
			}
			require.Eventually(t, func() bool {
				all, err := l.Statuses(ctx)
				require.NoError(t, err)
				for _, st := range all {
					return st.Waiting == cap(ended)
				}
				return false
			}, time.Minute, 10*time.Millisecond)

			fault(server, admin)
			for range cap(ended) {
				select {
				case err := <-ended:
					require.Equal(t, "table", name)
					require.ErrorContains(t, err, "does not exist")
				case e := <-failed:
					require.Equal(t, "server", name)
					require.ErrorIs(t, e.Err, rowstore.ErrAway)
				case <-time.After(20 * time.Second):
					t.Fatal("nobody is told")
				}
			}
			leave()
		})
	}
}
