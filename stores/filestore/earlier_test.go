//go:build linux || darwin

package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// TestP12_EarlierFiles: somebody puts back an earlier copy of the files, from when other callers waited. The lines go on when what the copy says of
// the processes is over.
func TestP12_EarlierFiles(t *testing.T) {
	for stores := 1; stores <= 2; stores++ {
		t.Run(fmt.Sprint(stores), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { earlierFiles(t, dir, stores) })
		})
	}
}

func earlierFiles(t *testing.T, dir string, stores int) {
	m := &filestore.Machine{Boot: "one"}
	var starts [2]atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range stores {
		s, err := m.Open(dir, 10*time.Second)
		require.NoError(t, err)
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
	time.Sleep(3 * time.Second)
	path := filepath.Join(dir, "budgets-1")
	earlier, err := os.ReadFile(path)
	require.NoError(t, err)
	time.Sleep(3 * time.Second)

	// The copy comes whole: a step that meets half of it would take the rest for damage.
	copied := dir + ".copy"
	require.NoError(t, os.WriteFile(copied, earlier, 0o600))
	require.NoError(t, os.Rename(copied, path))
	time.Sleep(15 * time.Second) // more than a lease
	before := [2]int64{starts[0].Load(), starts[1].Load()}
	time.Sleep(10 * time.Second)
	for i, least := range []int64{15, 30} {
		require.GreaterOrEqual(t, starts[i].Load()-before[i], least, "the line stands still")
	}
	end()
	callers.Wait()
}
