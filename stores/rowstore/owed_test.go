package rowstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP4_ManyReleasesWhileAway: thousands of requests end while the database refuses transactions. When it takes them again, all slots are free.
func TestP4_ManyReleasesWhileRefused(t *testing.T) {
	const n = 5000
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: errLost}
		s := must(rowstore.New(&broken{newMemory(), a.before, nil}, rowstore.Options{}))
		c := slot()
		c.Limit = store.Concurrency(n)
		var all sync.WaitGroup
		each := func(do func()) {
			for range n {
				all.Go(do)
			}
			all.Wait()
		}
		each(func() { require.True(t, now(t, s, c)) })
		a.away.Store(true)
		each(func() { s.Release(&store.Booking{Charges: []store.Charge{c}}, store.Grant{OK: true}) })
		time.Sleep(30 * time.Second)
		a.isOver()
		time.Sleep(time.Minute)
		require.Zero(t, used(t, s, c))
	})
}

// TestP7_GivenBackWhileAway: a caller leaves while its start is booked, and the database is away when the start is given back for
// the caller. The start is given back when the database is there again.
func TestP7_GivenBackWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: fmt.Errorf("%w: %w", rowstore.ErrAway, errLost)}
		m := newMemory()
		ctx, leave := context.WithCancel(t.Context())
		booked := sync.OnceValue(func() error {
			leave()
			time.Sleep(time.Millisecond) // the caller notices
			a.away.Store(true)
			return nil
		})
		s := must(rowstore.New(&broken{m, a.before, booked}, rowstore.Options{}))
		_, err := s.Book(ctx, &store.Booking{Charges: []store.Charge{slot()}, MaxWait: store.AnyWait})
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Second)
		others := must(rowstore.New(m, rowstore.Options{}))
		require.Equal(t, 1, used(t, others, slot()), "premise: the slot was booked")
		a.isOver()
		time.Sleep(time.Minute)
		require.Zero(t, used(t, others, slot()))
	})
}

// TestP4_ManyLeasesInASlowDatabase: to renew what a node holds takes longer than the time between two renewals, because the database is slow.
// Callers do not wait longer and longer.
func TestP4_ManyLeasesInASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		s := must(rowstore.New(&broken{Database: newMemory(), before: func() error {
			time.Sleep(time.Duration(slow.Load()))
			return nil
		}}, rowstore.Options{}))
		c := slot()
		for i := range 1000 {
			c.Budget.Key[4], c.Budget.Key[5] = byte(i), byte(i>>8)
			require.True(t, now(t, s, c))
		}
		slow.Store(int64(300 * time.Millisecond))
		time.Sleep(2 * time.Minute)
		began := time.Now()
		require.True(t, now(t, s, hourly(1)))
		took := time.Since(began)
		slow.Store(0)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, took, 5*time.Second)
	})
}
