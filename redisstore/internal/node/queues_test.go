package node

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// queued returns the queue of some ops.
func queued(ops ...*op) (*Node, *queue) {
	qs := New(Options{})
	for _, o := range ops {
		qs.enqueue(o)
	}
	return qs, qs.queues["group"]
}

func many(n int, op func() *op) (all []*op) {
	for range n {
		all = append(all, op())
	}
	return all
}

// TestACallTakes: how many of the callers that wait the next call serves.
func TestACallTakes(t *testing.T) {
	newcomer := func() *op { return reserve(5, "a") }
	returner := func() *op { return with(reserve(5, "a"), func(op *op) { op.turn = place(1) }) }
	alone := func() *op { return with(reserve(5, "a"), func(op *op) { op.isolated = true }) }
	for _, c := range []struct {
		name string
		ops  []*op
		want int
	}{
		{"all", many(80, newcomer), 80},
		{"no more than the record holds", many(81, newcomer), 80},
		{"as many of a line as have an answer of their own", many(33, returner), 32},
		{"one that is isolated alone", append(many(1, alone), newcomer()), 1},
		{"those before one that is isolated", append(many(2, newcomer), alone()), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			qs, q := queued(c.ops...)
			b := qs.next("group", q)
			require.Len(t, b.ops, c.want)
			require.Len(t, q.ops, len(c.ops)-c.want)
			require.Equal(t, int64(1), b.number)
		})
	}
}

// TestAQueueEndsWithItsLastCaller: nothing is left of it.
func TestAQueueEndsWithItsLastCaller(t *testing.T) {
	qs, q := queued(reserve(5, "a"))
	require.True(t, q.running)
	require.NotNil(t, qs.next("group", q))
	require.Nil(t, qs.next("group", q))
	require.False(t, q.running)
	require.Empty(t, qs.queues)
}

// TestALostCallGoesFirst: nobody waited for it when Redis was away. The next caller finds out
// what became of it, as long as Redis remembers.
func TestALostCallGoesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		lost bool
	}{
		"remembered": {history.RecordTime - 1, true},
		"forgotten":  {history.RecordTime, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := with(reserve(5, "a"), func(op *op) { op.left = true })
				qs, q := queued(gone)
				lost := newBatch([]*op{gone}, 7)
				lost.sent = time.Now()
				q.ops = nil
				require.False(t, qs.noteFailure(q, lost, errors.New("away")), "nobody waits")
				require.False(t, q.running)
				time.Sleep(c.age)
				next := reserve(5, "a")
				require.Same(t, q, qs.enqueue(next), "it stood still")
				b := qs.next("group", q)
				require.Equal(t, c.lost, b == lost)
				if c.lost {
					b = qs.next("group", q)
				}
				require.Equal(t, []*op{next}, b.ops)
			})
		})
	}
}

// TestAReportIsAwaited as long as its caller waits, also when Redis has been away for longer than an answer takes.
func TestAReportIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs, q := queued(reserve(5, "a"))
		q.ops = nil
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		qs.Conn = conn.New(client) // names the server in errors
		report := newReport(store.Charge{Budget: store.Budget{Group: "group"}, Limit: store.Concurrency(1), Cost: 1})
		ctx, leave := context.WithCancel(t.Context())
		done := do(ctx, qs, report)
		synctest.Wait()

		b := newBatch([]*op{report}, 7)
		for range 4 {
			require.True(t, qs.noteFailure(q, b, errors.New("away")), "the caller waits")
			time.Sleep(conn.ReplyTime / 2)
		}

		leave()
		require.Error(t, <-done)
		require.False(t, qs.noteFailure(q, b, errors.New("away")), "nobody waits")
	})
}

// TestWhoLeavesTheQueue gives back what it wanted to replace, and its places in lines.
func TestWhoLeavesTheQueue(t *testing.T) {
	plain := reserve(5, "a")
	returns := with(reserve(5, "a"), func(op *op) { op.Start, op.Spread = 77, 3 })
	turn := with(reserve(5, "a"), func(op *op) { op.turn = place(1) })
	stays := reserve(5, "a")
	_, q := queued(plain, returns, turn, stays)
	for _, op := range []*op{plain, returns, turn} {
		op.left = true
		q.noteLeft()
	}
	q.sweep()
	require.Len(t, q.ops, 3)
	require.Equal(t, wire.Cancel, q.ops[0].Kind)
	require.Equal(t, int64(77), q.ops[0].Start)
	require.Equal(t, time.Duration(3), q.ops[0].Spread)
	require.Equal(t, "left", q.ops[1].Charges[0].Budget.Policy)
	require.Same(t, stays, q.ops[2])
	require.Zero(t, q.leavers)
}

// TestAQueueThatStandsStillStaysSmall though callers come and go.
func TestAQueueThatStandsStillStaysSmall(t *testing.T) {
	qs, q := queued(reserve(5, "a"))
	for range 1000 {
		op := reserve(5, "a")
		qs.enqueue(op)
		op.left = true
		q.noteLeft()
		require.LessOrEqual(t, len(q.ops), 102)
	}
}

// TestIsolatedOpsGoFirst, each in a call of its own.
func TestIsolatedOpsGoFirst(t *testing.T) {
	ops := []*op{reserve(5, "a"), reserve(5, "b")}
	qs, q := queued(ops...)
	b := qs.next("group", q)
	qs.enqueue(reserve(5, "c"))
	qs.isolate(q, b)
	for _, o := range ops {
		require.Equal(t, []*op{o}, qs.next("group", q).ops)
	}
	require.Len(t, qs.next("group", q).ops, 1)
}

// TestMain stops the shared server when all tests are over.
func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
