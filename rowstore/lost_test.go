package rowstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/rowstore"
)

// hourly is a budget of which what is spent stays spent during a test.
func hourly(n int) throttle.Charge {
	return throttle.Charge{Budget: throttle.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: throttle.PerHour(n), Cost: 1}
}

// slot is a budget of one request in flight.
func slot() throttle.Charge {
	return throttle.Charge{Budget: throttle.Budget{Policy: "slots", Key: [16]byte{2}}, Limit: throttle.Concurrency(1), Cost: 1}
}

// now books a start now, and reports whether there is one.
func now(t *testing.T, s throttle.Store, c throttle.Charge) bool {
	t.Helper()
	g, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{c}})
	require.NoError(t, err)
	return g.OK
}

func used(t *testing.T, s throttle.Store, c throttle.Charge) int {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st.Used
}

var errLost = errors.New("the connection was lost")

// A broken is a Database whose transactions go wrong.
type broken struct {
	rowstore.Database
	before func() error // is called before a transaction, which it prevents by an error
	after  func() error // is called when a transaction was saved
}

func (b *broken) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if b.before != nil {
		if err := b.before(); err != nil {
			return err
		}
	}
	if err := b.Database.Transact(ctx, group, keys, do); err != nil {
		return err
	}
	if b.after != nil {
		return b.after()
	}
	return nil
}

// once returns a function that fails the first time that it is called.
func once() func() error {
	done := false
	return func() error {
		if done {
			return nil
		}
		done = true
		return errLost
	}
}

// TestP8_LostReplies: a transaction was saved, and nobody heard it. It counts, once.
func TestP8_LostReplies(t *testing.T) {
	m := newMemory()
	for i := range 3 {
		s := rowstore.New(&broken{Database: m, after: once()}, nil)
		require.True(t, now(t, s, hourly(3)))
		require.Equal(t, i+1, used(t, s, hourly(3)))
	}
	require.False(t, now(t, rowstore.New(m, nil), hourly(3)))
}

// TestP8_NotSaved: a transaction failed before anything was sent, and nothing is booked. The caller is told.
func TestP8_NotSaved(t *testing.T) {
	m := newMemory()
	s := rowstore.New(&broken{Database: m, before: once()}, nil)
	_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(1)}})
	require.ErrorIs(t, err, errLost)
	require.ErrorContains(t, err, "rowstore: ")
	require.Zero(t, used(t, s, hourly(1)))
	require.True(t, now(t, s, hourly(1)))
}

// TestP8_LateCommits: a transaction is believed to be lost, and arrives after its node has found that it was not saved.
// It is refused, because the step is made again.
func TestP8_LateCommits(t *testing.T) {
	m := newOptimistic()
	s := rowstore.New(m, nil)
	var late func() bool
	commits, arrived := 0, false
	m.commit = func(_ *optimisticTx, save func() bool) (bool, error) {
		switch commits++; commits {
		case 1:
			late = save
			return false, errLost
		case 2: // the node has looked
			saved := save()
			arrived = late()
			return saved, nil
		}
		return save(), nil
	}
	require.True(t, now(t, s, hourly(3)))
	require.False(t, arrived, "two copies of a step were saved")
	require.Equal(t, 3, commits)
	m.commit = nil
	require.Equal(t, 1, used(t, s, hourly(3)))
}

// TestP12_Doubt: while it is not known whether a step was saved, callers wait no longer than they may, and are
// told what is the matter. When the database is there again, its answer counts.
func TestP12_Doubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		away := false
		b := &broken{Database: m, after: func() error { away = true; return errLost }}
		b.before = func() error {
			if away {
				return errLost
			}
			return nil
		}
		s := rowstore.New(b, nil)
		g, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(2)}, MaxWait: time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errLost)
		require.False(t, g.OK)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = s.Book(ctx, &throttle.Booking{Charges: []throttle.Charge{hourly(2)}})
		require.ErrorIs(t, err, context.DeadlineExceeded)

		b.after, away = nil, false
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, used(t, s, hourly(2)), "what callers got that had left is given back")
		require.True(t, now(t, s, hourly(2)))
	})
}

// TestP12_LongDoubt: when the database is away for longer than the lease, callers get an error, and nothing that the
// node had asked for in vain is held in the end.
func TestP12_LongDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		away := false
		b := &broken{Database: m, after: func() error { away = true; return errLost }}
		b.before = func() error {
			if away {
				return errLost
			}
			return nil
		}
		s := rowstore.New(b, nil)
		began := time.Now()
		_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{slot()}, MaxWait: throttle.AnyWait})
		require.ErrorIs(t, err, errLost)
		require.Greater(t, time.Since(began), 10*time.Second)
		require.Less(t, time.Since(began), 15*time.Second)
		b.after, away = nil, false
		require.True(t, now(t, s, slot()))
	})
}

// TestP1_Copies: a program goes on as a copy of another one, which has made steps since. Its steps are not taken for those of the
// other one.
func TestP1_Copies(t *testing.T) {
	m := newMemory()
	s := rowstore.New(m, nil)
	require.True(t, now(t, s, hourly(9)))
	for key, r := range m.rows {
		if strings.Contains(key, "/node-") {
			r.value = slices.Concat(r.value[:1], []byte{100, 2}) // 50 steps
			m.rows[key] = r
		}
	}
	_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(9)}})
	require.ErrorContains(t, err, "copy")
	require.Equal(t, 1, used(t, s, hourly(9)))
}

// TestP1_OtherRows: rows of another version, and what are no rows, are errors. Nothing is booked.
func TestP1_OtherRows(t *testing.T) {
	m := newMemory()
	s := rowstore.New(m, nil)
	require.NoError(t, s.Pause(t.Context(), hourly(9), time.Millisecond))
	for key, r := range m.rows {
		whole := r
		r.value = append([]byte{77}, r.value[1:]...)
		m.rows[key] = r
		before := m.puts
		_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{hourly(9)}})
		require.Error(t, err, key)
		require.Equal(t, before, m.puts, key)
		m.rows[key] = whole
	}
	require.Len(t, m.rows, 3)
}
