package rowstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A skewed is a Database as a program sees it whose clock is wrong.
type skewed struct {
	rowstore.Database
	by time.Duration
}

type skewedTx struct {
	rowstore.Tx
	by time.Duration
}

func (s *skewed) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	return s.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error { return do(skewedTx{tx, s.by}) })
}

func (tx skewedTx) Now() time.Time { return tx.Tx.Now().Add(tx.by) }

// TestP1_ManyClocks: nodes whose clocks differ take turns. Each step from one clock to the other would let time pass that
// has not passed.
func TestP1_ManyClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, per = 3, 10 * time.Second
		m := newMemory()
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.SlidingWindow(n, per), Cost: 1}
		var stores []store.Store
		for _, by := range []time.Duration{-time.Second, 0, 5 * time.Second} {
			stores = append(stores, must(rowstore.New(&skewed{m, by}, rowstore.Options{ManyClocks: true})))
		}
		var starts []time.Time
		for i := range 6000 {
			if now(t, stores[i%len(stores)], c) {
				starts = append(starts, time.Now())
			}
			time.Sleep(10 * time.Millisecond)
		}
		for i := n + 3; i < len(starts); i++ { // the first steps find out which clock is the latest
			require.GreaterOrEqual(t, starts[i].Sub(starts[i-n]), per-20*time.Millisecond)
		}
		require.Greater(t, len(starts), 15)
	})
}

// TestP9_WrongClocks: a clock that is far behind is an error, which says so.
func TestP9_WrongClocks(t *testing.T) {
	m := newMemory()
	o := rowstore.Options{ManyClocks: true}
	require.True(t, now(t, must(rowstore.New(m, o)), hourly(2)))
	_, err := must(rowstore.New(&skewed{m, -time.Hour}, o)).Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(2)}})
	var wrong *rowstore.ClockError
	require.ErrorAs(t, err, &wrong)
	require.InDelta(t, time.Hour, wrong.Behind, float64(time.Minute))
	require.ErrorContains(t, err, "NTP")
	require.True(t, now(t, must(rowstore.New(m, o)), hourly(2)))
}

// TestP9_StepBack: the one clock of a database is set back. No time passes for that.
func TestP9_StepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &skewed{Database: newMemory()}
		s := must(rowstore.New(db, rowstore.Options{}))
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.PerMinute(1), Cost: 1}
		require.True(t, now(t, s, c))
		db.by = -time.Hour
		require.False(t, now(t, s, c))
		time.Sleep(2 * time.Minute)
		require.True(t, now(t, s, c))
	})
}
