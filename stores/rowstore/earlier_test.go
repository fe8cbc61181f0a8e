package rowstore_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// copyOf returns a copy of the rows.
func (m *memory) copyOf() map[string]row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.rows)
}

// putBack has the rows be as they were.
func (m *memory) putBack(rows map[string]row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = rows
}

// TestP12_EarlierRows: the database is put back to an earlier time, at which other callers waited. The lines go on when what the rows say of the
// programs is over, also if the reply to a transaction was lost at the same moment.
func TestP12_EarlierRows(t *testing.T) {
	for stores := 1; stores <= 2; stores++ {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(stores, lost), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { earlierRows(t, stores, lost) }) })
		}
	}
}

// earlierRows has callers of some stores start for ten seconds, puts the rows back by five, and fails if starts do not go on after 15 s. With
// lost the replies of that moment are lost.
func earlierRows(t *testing.T, stores int, lost bool) {
	m := newMemory()
	var loses atomic.Bool
	after := func() error {
		if loses.Load() {
			return errLost
		}
		return nil
	}
	var starts [2]atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range stores {
		s := must(rowstore.New(&broken{Database: m, after: after}, rowstore.Options{}))
		for i, limit := range []store.Limit{store.PerSecond(2), store.Concurrency(2)} {
			l, err := throttle.NewLimiter(s, throttle.Policy{Name: fmt.Sprint(i), Limit: limit})
			require.NoError(t, err)
			for range 8 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err == nil {
							starts[i].Add(1)
							time.Sleep(500 * time.Millisecond)
							p.Release()
						}
					}
				})
			}
		}
	}
	time.Sleep(5 * time.Second)
	earlier := m.copyOf()
	time.Sleep(5 * time.Second)
	loses.Store(lost)
	time.Sleep(100 * time.Millisecond)
	m.putBack(earlier)
	loses.Store(false)
	time.Sleep(15 * time.Second) // more than a lease
	before := [2]int64{starts[0].Load(), starts[1].Load()}
	time.Sleep(20 * time.Second)
	for i, least := range []int64{35, 70} {
		require.GreaterOrEqual(t, starts[i].Load()-before[i], least, "the line stands still")
	}
	end()
	callers.Wait()
}
