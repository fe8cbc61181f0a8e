package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_ABadKeyIsItsOwnTrouble: somebody else's list stands at one budget's
// key. Callers of other budgets that share its calls are served.
func TestP12_ABadKeyIsItsOwnTrouble(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	l, err := throttle.NewLimiter(redisstore.New(client, nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1000)})
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), "bad", 1)
	require.NoError(t, err)
	bad := client.Keys(t.Context(), "*:p:*").Val()
	require.Len(t, bad, 1)
	client.Del(t.Context(), bad[0])
	require.NoError(t, client.LPush(t.Context(), bad[0], "x").Err())

	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			if i%3 == 0 {
				_, err := l.Acquire(t.Context(), "bad", 1)
				var store *throttle.StoreError
				if !errors.As(err, &store) {
					t.Errorf("want a StoreError, got %v", err)
				}
				return
			}
			if _, err := l.Acquire(t.Context(), fmt.Sprint("good", i%30), 1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
