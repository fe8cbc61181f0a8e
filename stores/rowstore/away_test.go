package rowstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP12_ConfirmWaits: a caller whose start has come asks whether it is still good, and the database is away. The caller waits as
// long as it may, is told so, and uses its start.
func TestP12_ConfirmWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		b := &store.Booking{Charges: []store.Charge{hourly(2)}, MaxWait: store.AnyWait}
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		w := s.Watch(b, g, make(chan struct{}, 1))
		a.away.Store(true)
		_, err = w.Confirm(t.Context(), 0)
		require.ErrorIs(t, err, errLost, "it does not wait")
		_, err = w.Confirm(t.Context(), 900*time.Millisecond)
		require.ErrorIs(t, err, errLost)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		told := false
		ctx := outage.WithObserver(t.Context(), func(error) { told = true })
		time.AfterFunc(10*time.Second, a.isOver)
		ok, err := w.Confirm(ctx, store.AnyWait)
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, told)
		w.Stop()
	})
}

// TestP1_HeldWhileAway: a node cannot reach the database for longer than its lease, while its requests go on. When it reaches the
// database they count again, and the end of one ends no other.
func TestP1_HeldWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		m := newMemory()
		s, others := must(rowstore.New(&broken{m, a.before, a.after}, rowstore.Options{})), must(rowstore.New(m, rowstore.Options{}))
		c := slot()
		c.Limit = store.Concurrency(3)
		release := func() { s.Release(&store.Booking{Charges: []store.Charge{c}}, store.Grant{OK: true}) }
		require.True(t, now(t, s, c))
		a.away.Store(true)
		time.Sleep(30 * time.Second)
		require.Zero(t, used(t, others, c), "premise: the lease is over")
		a.isOver()
		require.True(t, now(t, s, c))
		require.Equal(t, 2, used(t, others, c))
		release()
		require.Equal(t, 1, used(t, others, c))
		release()
		require.Zero(t, used(t, others, c))
		require.True(t, now(t, s, c))
		require.Equal(t, 1, used(t, others, c))
		time.Sleep(time.Minute)
		require.Equal(t, 1, used(t, others, c), "it is renewed")
	})
}
