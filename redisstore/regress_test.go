package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_NodeCountsFromWhereItNamed asks for starts of one node while the way to
// Redis is blocked. The node named each at another time, but all would have begun
// when the answers came, so the age of each tells how late it is.
func TestP1_NodeCountsFromWhereItNamed(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		all := charge("all", throttle.PerHour(1000))
		mine := own(charge("mine", throttle.SlidingWindow(1, 100*time.Millisecond)))
		bookAside(t.Context(), s, booking(all))
		var got []**outcome
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			got = append(got, bookAside(t.Context(), s, booking(mine, all)))
		}
		tap.open()
		for i, o := range got {
			require.NoError(t, (*o).err)
			require.True(t, (*o).grant.OK)
			require.Zero(t, (*o).grant.Wait)
			require.Equal(t, time.Duration(2-i)*150*time.Millisecond, (*o).grant.Age, "%d", i)
		}
	})
}

// TestP1_RecordOutlivesLease loses the answer that a request may fly. When Redis
// can be reached again the lease is over and another flies, but the record of the
// call still said yes.
func TestP1_RecordOutlivesLease(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		a, _ := loaded(t, c, nil)
		b := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		away := &says{}
		c.AddHook(away)
		c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if err == nil && away.calls.Load() == 0 {
				away.set(errAway)
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", throttle.Concurrency(1))
		got := bookAside(t.Context(), a, booking(one))
		refused(t, b, one)
		time.Sleep(25 * time.Second)
		k, g := board(t, b, one)
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.NotNil(t, (*got).grant.Ready)
		b.Release(k, g)
		require.True(t, woken((*got).grant, soon))
		time.Sleep(2 * time.Second) // calls that are left behind come to their end
	})
}
