package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_WhoWaitsOnABridgeIsTold: with Share there are some seconds in which Redis
// is not believed any more and is not given up yet. Who books then, or confirms, is
// told why there is no answer, once.
func TestP12_WhoWaitsOnABridgeIsTold(t *testing.T) {
	t.Parallel()
	const believed, leaves = 3500 * time.Millisecond, 1400 * time.Millisecond
	server := redistest.Shared(t)
	refused := word{"redisstore: " + server.Addr + ": dial tcp: connection refused", 0}
	silent := word{"redisstore: no answer for 1s from " + server.Addr, time.Second}
	for _, c := range []struct {
		name string
		err  error // nil: no answer
		want word
	}{{"refused", errAway, refused}, {"silent", nil, silent}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := roomy(t, server)
				require.NoError(t, client.FlushDB(t.Context()).Err())
				var away atomic.Bool
				tap := newTap(client, func(cmd redis.Cmder) bool { return away.Load() && c.err == nil && isScript(cmd) })
				says := &says{}
				client.AddHook(says)
				s := redisstore.NewAt(client, share, bubbleClock)
				mark := booking(charge("one", throttle.PerSecond(1)))
				g, err := s.Book(t.Context(), mark)
				require.NoError(t, err)
				w := s.Watch(mark, g, nil)
				time.Sleep(4 * time.Second)
				if away.Store(true); c.err != nil {
					says.set(c.err)
				}
				time.Sleep(believed)

				ctx, cancel := context.WithTimeout(t.Context(), leaves)
				defer cancel()
				books, booked := observed(ctx)
				confirms, watched := observed(ctx)
				book := bookAside(books, s, booking(mark.Charges...))
				_, err = w.Confirm(confirms, -1)
				synctest.Wait()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, (*book).err, context.DeadlineExceeded)
				require.Equal(t, []word{c.want}, booked())
				require.Equal(t, []word{c.want}, watched())

				says.err.Store(nil)
				close(tap.pass)
				w.Stop()
				atRest(t, s)
				time.Sleep(time.Minute)
			})
		})
	}
}
