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
		t.Run(name, func(t *testing.T) {
			server := redistest.Shared(t)
			synctest.Test(t, func(t *testing.T) {
				nodes := nodesOf(t, server, 3)
				four := charge("four", throttle.Concurrency(4))
				k, g := board(t, nodes[0], four)
				board(t, nodes[0], four)
				board(t, nodes[1], four)
				board(t, nodes[1], four)
				refused(t, nodes[2], four)
				time.Sleep(time.Second)

				require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
				_, place := lineUp(t, nodes[first], four)
				refused(t, nodes[2], four)
				require.False(t, woken(place, quiet+soon))
				nodes[0].Release(k, g)
				require.True(t, woken(place, soon))
				refused(t, nodes[1], four)
			})
		})
	}
}

// TestInFlight_ForgottenBeforeAStranger has a node that is the first to ask a store
// that was emptied, and knows nothing. It begins; but when one comes that remembers,
// nothing more is given.
func TestInFlight_ForgottenBeforeAStranger(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		two := charge("two", throttle.Concurrency(2))
		k, g := board(t, a, two)
		time.Sleep(time.Second)
		require.NoError(t, a.Empty(t.Context()))
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
	t.Parallel()
	server := redistest.Shared(t)
	for asks := range 3 {
		synctest.Test(t, func(t *testing.T) {
			nodes, client := nodesOf(t, server, 3), server.Client(t)
			require.NoError(t, client.FlushDB(t.Context()).Err())
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

			require.NoError(t, client.FlushDB(t.Context()).Err())
			require.NoError(t, client.Restore(t.Context(), key, time.Minute, stale).Err())
			refused(t, nodes[asks], four)
			time.Sleep(quiet + soon)
			refused(t, nodes[asks], four)
			nodes[0].Release(k, g)
			board(t, nodes[asks], four)
			refused(t, nodes[asks], four)
		})
	}
}

// TestInFlight_IdleIsNotForgotten lets a budget be idle for any time. Nobody takes
// that for a loss.
func TestInFlight_IdleIsNotForgotten(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
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

// A deaf is a hook that loses the answers of script calls after they were made,
// as many as it is told.
type deaf struct {
	tap
	lose atomic.Int64
}

func (h *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if isScript(cmd) && h.lose.Add(-1) >= 0 {
			cmd.SetErr(errAway)
			return errAway
		}
		return err
	}
}

// TestP8_InFlightOnce loses answers: of a call that takes room, of one that gives
// it back, and of one that lines up. Each counts once.
func TestP8_InFlightOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for lost := range int64(4) {
		synctest.Test(t, func(t *testing.T) {
			client := server.Client(t)
			require.NoError(t, client.FlushDB(t.Context()).Err())
			h := &deaf{}
			client.AddHook(h)
			a := redisstore.NewAt(client, nil, bubbleClock)
			b := redisstore.NewAt(server.Client(t), nil, bubbleClock)
			two := charge("two", throttle.Concurrency(2))

			h.lose.Store(lost)
			k, g := board(t, a, two)
			board(t, b, two)
			refused(t, b, two)
			h.lose.Store(lost)
			waiting, place := lineUp(t, a, two)
			h.lose.Store(lost)
			a.Release(k, g)
			require.True(t, woken(place, time.Second))
			refused(t, b, two)
			h.lose.Store(lost)
			g = again(t, a, waiting, place)
			refused(t, b, two)
			a.Release(waiting, g)
			board(t, b, two)
			refused(t, b, two)
		})
	}
}

// TestP8_InFlightLateCall repeats a call long after the next ones, when Redis has
// forgotten which calls there were. It changes nothing.
func TestP8_InFlightLateCall(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, tap := loaded(t, client, nil)
		two := charge("two", throttle.Concurrency(2))
		board(t, s, two)
		k, g := board(t, s, two)
		late := tap.cmds[len(tap.cmds)-1]
		s.Release(k, g)
		require.NoError(t, client.Del(t.Context(), late.Args()[3].(string)).Err())
		require.NoError(t, client.Do(t.Context(), late.Args()...).Err())
		st, err := s.Status(t.Context(), two)
		require.NoError(t, err)
		require.Equal(t, 1, st.Used)
	})
}

// TestP1_InFlightInTwoLanes uses one budget in two groups, as two tables of
// policies do. A call that does not know yet what the other queue's was granted is
// not made.
func TestP1_InFlightInTwoLanes(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), isScript)
		two := charge("two", throttle.Concurrency(2))
		first := bookAside(t.Context(), s, booking(inGroup("x", two)))
		synctest.Wait()
		second := bookAside(t.Context(), s, booking(inGroup("y", two)))
		synctest.Wait()
		close(tap.pass)
		synctest.Wait()
		require.True(t, (*first).grant.OK)
		require.True(t, (*second).grant.OK)
		refused(t, redisstore.NewAt(server.Client(t), nil, bubbleClock), two)
	})
}

// TestP7_InFlightWaiterLeavesWhileAway ends the context of one in line who books
// again, while Redis is away. The place is gone with it.
func TestP7_InFlightWaiterLeavesWhileAway(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
		held, g := board(t, b, one)
		k, place := lineUp(t, a, one)
		_, next := lineUp(t, a, one)
		b.Release(held, g)
		require.True(t, woken(place, soon))
		a.cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
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
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
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
			st, err := other.Status(t.Context(), one)
			require.NoError(t, err)
			require.Zero(t, st.Waiting)
			if !full {
				require.Zero(t, st.Used)
			}
		}
		close(tap.pass)
	})
}
