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

// A far Database is reached after some time, and its answer takes as long.
type far struct {
	rowstore.Database
	way time.Duration
}

func (f *far) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	time.Sleep(f.way)
	defer time.Sleep(f.way)
	return f.Database.Transact(ctx, group, keys, func(tx rowstore.Tx) error {
		time.Sleep(f.way) // the time and the rows are on their way to the program
		defer time.Sleep(f.way)
		return do(tx)
	})
}

// TestP2_FarDatabase: a caller waits until its start, however long the question for the time was on its way to the database.
func TestP2_FarDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		c := store.Charge{Budget: store.Budget{Policy: "slow", Key: [16]byte{4}}, Limit: store.PerSecond(1), Cost: 1}
		require.True(t, now(t, must(rowstore.New(m, rowstore.Options{})), c))
		before := time.Now()
		g, err := must(rowstore.New(&far{m, 40 * time.Millisecond}, rowstore.Options{})).Book(t.Context(), &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait})
		require.NoError(t, err)
		require.True(t, g.OK)
		require.GreaterOrEqual(t, g.Age, 160*time.Millisecond)
		time.Sleep(g.Wait)
		require.Greater(t, time.Since(before), time.Second)
		require.Less(t, time.Since(before), time.Second+50*time.Millisecond)
	})
}
