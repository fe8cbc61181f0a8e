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

// deafen makes a client lose the answers of script calls after they were made, as many as
// it is told.
func deafen(c *redis.Client) (lose *atomic.Int64) {
	lose = new(atomic.Int64)
	c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
		if err := next(); lose.Add(-1) < 0 {
			return err
		}
		return failing(cmd, errAway)
	}))
	return lose
}

// TestP8_InFlightLateCall repeats a call long after the next ones, when Redis has
// forgotten which calls there were. It changes nothing.
func TestP8_InFlightLateCall(t *testing.T) {
	onTap(t, nil, func(t *testing.T, client *redis.Client, s *redisstore.Store, tap *tap) {
		two := charge("two", throttle.Concurrency(2))
		board(t, s, two)
		k, g := board(t, s, two)
		late := tap.cmds[len(tap.cmds)-1]
		s.Release(k, g)
		require.NoError(t, client.Del(t.Context(), late.Args()[3].(string)).Err())
		require.NoError(t, client.Do(t.Context(), late.Args()...).Err())
		require.Equal(t, 1, status(t, s, two).Used)
	})
}

// TestP1_InFlightInTwoLanes uses one budget in two groups, as two tables of
// policies do. A call that does not know yet what the other queue's was granted is
// not made.
func TestP1_InFlightInTwoLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		two := charge("two", throttle.Concurrency(2))
		first := bookAside(t.Context(), s, booking(inGroup("x", two)))
		synctest.Wait()
		second := bookAside(t.Context(), s, booking(inGroup("y", two)))
		synctest.Wait()
		tap.open()
		require.True(t, (*first).grant.OK)
		require.True(t, (*second).grant.OK)
		refused(t, redisstore.NewAt(server.Client(t), nil, bubbleClock), two)
	})
}

// TestP7_InFlightWaiterLeavesWhileAway ends the context of one in line who books
// again, while Redis is away. The place is gone with it.
func TestP7_InFlightWaiterLeavesWhileAway(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		held, g := board(t, b, one)
		k, place := lineUp(t, a, one)
		_, next := lineUp(t, a, one)
		b.Release(held, g)
		require.True(t, woken(place, soon))
		a.cut()
		ctx := forAtMost(t, time.Second)
		k.Instead = place.Handle
		_, err := a.Book(ctx, k)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a.mend()
		require.True(t, woken(next, 10*time.Second))
	})
}

// TestP7_InFlightCallerLeaves ends the context of a caller whose call is on its way.
// What it was given is given back.
func TestP7_InFlightCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		other := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		one := charge("one", throttle.Concurrency(1))
		for _, full := range []bool{false, true} {
			if full {
				board(t, other, one)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Book(ctx, booking(one))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			refused(t, other, one)
			tap.pass <- struct{}{}
			tap.pass <- struct{}{} // of the call that gives back
			synctest.Wait()
			st := status(t, other, one)
			require.Zero(t, st.Waiting)
			if !full {
				require.Zero(t, st.Used)
			}
		}
		close(tap.pass)
	})
}
