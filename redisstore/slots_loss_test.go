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

// quiet is for how long a budget gives no room after it was lost.
const quiet = 2500 * time.Millisecond

// TestInFlight_Forgotten empties Redis while two nodes hold all. Nobody gets room
// until all is known again, whoever asks first.
func TestInFlight_Forgotten(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"by one that holds": 0, "by one that only asked": 2} {
		runBubble(t, name, func(t *testing.T, server *redistest.Server) {
			nodes := nodesOf(t, server, 3)
			four := charge("four", throttle.Concurrency(4))
			k, g := board(t, nodes[0], four)
			board(t, nodes[0], four)
			board(t, nodes[1], four)
			board(t, nodes[1], four)
			refused(t, nodes[2], four)
			time.Sleep(time.Second)

			forgets(t, server.Client(t))
			_, place := lineUp(t, nodes[first], four)
			refused(t, nodes[2], four)
			require.False(t, woken(place, quiet+soon))
			nodes[0].Release(k, g)
			require.True(t, woken(place, soon))
			refused(t, nodes[1], four)
		})
	}
}

// TestInFlight_ForgottenBeforeAStranger has a node that is the first to ask a store
// that was emptied, and knows nothing. It begins; but when one comes that remembers,
// nothing more is given.
func TestInFlight_ForgottenBeforeAStranger(t *testing.T) {
	inFlight(t, 2, func(t *testing.T, a, b *cuttable, two throttle.Charge) {
		k, g := board(t, a, two)
		time.Sleep(time.Second)
		forgets(t, a.Client())
		board(t, b, two)
		a.Release(k, g)
		refused(t, b, two)
		time.Sleep(quiet)
		board(t, b, two)
		refused(t, a, two)
	})
}

// TestInFlight_StaleReplica has Redis show what was some writes ago, as a replica
// does that lags and takes over. That is found out by the first who asks.
func TestInFlight_StaleReplica(t *testing.T) {
	eachBubble(t, []int{0, 1, 2}, func(t *testing.T, server *redistest.Server, asks int) {
		nodes, client := nodesOf(t, server, 3), server.Client(t)
		four := charge("four", throttle.Concurrency(4))
		for _, n := range nodes {
			k, g := board(t, n, four)
			n.Release(k, g)
		}
		key := nodes[0].LeasesKey(four.Budget)
		stale, err := client.Dump(t.Context(), key).Result()
		require.NoError(t, err)
		board(t, nodes[1], four)
		k, g := board(t, nodes[0], four)
		board(t, nodes[1], four)
		board(t, nodes[0], four)
		refused(t, nodes[2], four)

		forgets(t, client)
		require.NoError(t, client.Restore(t.Context(), key, time.Minute, stale).Err())
		refused(t, nodes[asks], four)
		time.Sleep(quiet + soon)
		refused(t, nodes[asks], four)
		nodes[0].Release(k, g)
		board(t, nodes[asks], four)
		refused(t, nodes[asks], four)
	})
}

// TestInFlight_IdleIsNotForgotten lets a budget be idle for any time. Nobody takes
// that for a loss.
func TestInFlight_IdleIsNotForgotten(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		for i := range 45 {
			for _, s := range []*cuttable{a, b} {
				k, g := board(t, s, one)
				time.Sleep(time.Duration(i) * time.Millisecond)
				s.Release(k, g)
				time.Sleep(time.Duration(i) * time.Second)
			}
		}
	})
}

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

// TestP8_InFlightOnce loses answers: of a call that takes room, of one that gives
// it back, and of one that lines up. Each counts once.
func TestP8_InFlightOnce(t *testing.T) {
	eachBubble(t, []int64{0, 1, 2, 3}, func(t *testing.T, server *redistest.Server, lost int64) {
		client := server.Client(t)
		lose := deafen(client)
		a := redisstore.NewAt(client, nil, bubbleClock)
		b := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		two := charge("two", throttle.Concurrency(2))

		lose.Store(lost)
		k, g := board(t, a, two)
		board(t, b, two)
		refused(t, b, two)
		lose.Store(lost)
		waiting, place := lineUp(t, a, two)
		lose.Store(lost)
		a.Release(k, g)
		require.True(t, woken(place, time.Second))
		refused(t, b, two)
		lose.Store(lost)
		g = again(t, a, waiting, place)
		refused(t, b, two)
		a.Release(waiting, g)
		board(t, b, two)
		refused(t, b, two)
	})
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
