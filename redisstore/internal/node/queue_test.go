package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
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

// TestP15_AQuestionWithoutWaiters: Redis is away, and a node has asked how a line stands. The question is repeated as long
// as callers wait in the line.
func TestP15_AQuestionWithoutWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		n.Conn = conn.New(client)
		waits := toldToWait(n, 2, 1, time.Hour)
		time.Sleep(2 * askFirst)
		asked := posted(n)
		require.Len(t, asked, 1)
		require.Equal(t, wire.Renew, asked[0].Kind)

		q, b := n.queues["group"], newBatch(asked, 7)
		for range 4 {
			require.True(t, n.noteFailure(q, b, errors.New("away")), "a caller waits in line")
			time.Sleep(conn.ReplyTime / 2)
		}

		n.leaveLines(waits.turn)
		require.False(t, n.noteFailure(q, b, errors.New("away")), "nobody waits")
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

// TestP7_LeavesUnsettled: a caller that leaves while its call is on the way, to which Redis then says that programs must first report what it
// lost, gives up its places in lines.
func TestP7_LeavesUnsettled(t *testing.T) {
	o := with(reserve(5, "a"), func(op *op) { op.turn = place(1) })
	n, q := queued(o)
	b := n.next("group", q)
	o.left, o.outcome.State = true, wire.Unsettled
	n.deliver(q, b, nil)
	require.Len(t, q.ops, 1)
	require.Equal(t, wire.Cancel, q.ops[0].Kind)
	require.Equal(t, "left", q.ops[0].Charges[0].Budget.Policy)
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

// real returns queues that call a server of their own, which knows the script.
func real(t *testing.T) (*Node, *redistest.Server, *redis.Client) {
	server := redistest.Single(t)
	client := server.Client(t)
	require.NoError(t, client.ScriptLoad(t.Context(), wire.BookScript.Source()).Err())
	qs := New(Options{
		Conn: conn.New(client), Names: wire.NewSpace("throttle"), History: history.New(), Offsets: history.NewClockOffsets(),
		Pauses: history.RestorePauseEnds(nil), Shut: history.RestorePauseEnds(nil), Lost: func(string) {},
	})
	t.Cleanup(func() { idle(t, qs) })
	return qs, server, client
}

// idle awaits that nothing is left of the queues.
func idle(t *testing.T, qs *Node) {
	require.Eventually(t, func() bool {
		load := qs.Load()
		return load.Queued == 0 && load.Running == 0
	}, time.Minute, time.Millisecond)
}

// waiting awaits that a call is made, and so many ops wait for the next one.
func waiting(t *testing.T, qs *Node, n int) {
	require.Eventually(t, func() bool {
		load := qs.Load()
		return load.Queued == n && load.Running == 1
	}, time.Minute, time.Millisecond)
}

// scripts is how many calls of scripts a server has had. There are none before the first call.
func scripts(t *testing.T, c *redis.Client) int {
	info, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// requireCalls plays a scene on a server of its own and requires that the server has had so many calls. A call whose answer
// is late by a second is made once more, so a scene that a busy machine made too long is played again.
func requireCalls(t *testing.T, want int, why string, play func(qs *Node, server *redistest.Server, client *redis.Client)) {
	t.Helper()
	for attempts := 1; ; attempts++ {
		qs, server, client := real(t)
		begin := time.Now()
		play(qs, server, client)
		calls := scripts(t, client)
		if calls <= want || time.Since(begin) < time.Second || attempts == 20 {
			require.Equal(t, want, calls, why)
			return
		}
	}
}

// do has an op done aside.
func do(ctx context.Context, qs *Node, op *op) <-chan error {
	done := make(chan error, 1)
	go func() { done <- qs.do(ctx, op, store.AnyWait) }()
	return done
}

// TestAnErrorNamesNoCharge that held the caller back: no charge did.
func TestAnErrorNamesNoCharge(t *testing.T) {
	t.Parallel()
	qs, server, _ := real(t)
	server.Pause()
	defer server.Continue()
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	g, err := qs.Book(ctx, &store.Booking{Charges: reserve(5000, "a").Charges, MaxWait: -1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, store.NotHeld, g.HeldBy)
}

// TestALeaderLeaves while Redis is stopped: its call goes on, once, and what it booked is given back.
func TestALeaderLeaves(t *testing.T) {
	t.Parallel()
	requireCalls(t, 2, "the booking, and what takes it back", func(qs *Node, server *redistest.Server, _ *redis.Client) {
		server.Pause()
		ctx, leave := context.WithCancel(t.Context())
		done := do(ctx, qs, reserve(5000, "a"))
		waiting(t, qs, 0)
		leave()
		require.ErrorIs(t, <-done, context.Canceled)
		server.Continue()
		idle(t, qs)
	})
}

// A silence holds all commands of a client until the channel is closed, and then they fail.
type silence chan struct{}

func (silence) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s silence) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		<-s
		return errors.New("away")
	}
}

func (s silence) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error {
		<-s
		return errors.New("away")
	}
}

// TestALeaderHasGathered: the time for which it waited for other callers counts against its MaxWait, and against the second
// after which a goroutine goes on with its call.
func TestALeaderHasGathered(t *testing.T) {
	for maxWait, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 300 * time.Millisecond,
		0:                      conn.ReplyTime,
		20 * time.Millisecond:  100 * time.Millisecond,
	} {
		t.Run(fmt.Sprint(maxWait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				defer client.Close()
				away := make(silence)
				defer close(away)
				client.AddHook(away)
				n := New(Options{
					Conn: conn.New(client), Names: wire.NewSpace("throttle"), History: history.New(), Offsets: history.NewClockOffsets(),
					Pauses: history.RestorePauseEnds(nil), Shut: history.RestorePauseEnds(nil), Lost: func(string) {},
				})

				o := reserve(5000, "a")
				o.patience = 10 * time.Millisecond
				came := time.Now()
				require.Error(t, n.do(t.Context(), o, maxWait))
				require.Equal(t, want, time.Since(came))
			})
		})
	}
}

// TestALeaderIsFollowed by callers that come while its call is on its way. They go together in
// the next call.
func TestALeaderIsFollowed(t *testing.T) {
	t.Parallel()
	requireCalls(t, 2, "the first, and all others together", func(qs *Node, server *redistest.Server, _ *redis.Client) {
		server.Pause()
		var all []<-chan error
		for i := range 3 {
			all = append(all, do(t.Context(), qs, reserve(5000, fmt.Sprint(i))))
			waiting(t, qs, i)
		}
		server.Continue()
		for _, done := range all {
			require.NoError(t, <-done)
		}
	})
}

// TestALeaderAwaitsNoLock: its context ends its wait even where the lease of a slot is locked.
func TestALeaderAwaitsNoLock(t *testing.T) {
	t.Parallel()
	qs, _, _ := real(t)
	slots := keepOp(wire.Reserve, store.Charge{Budget: store.Budget{Group: "group"}, Limit: store.Concurrency(1), Cost: 1})
	locked := qs.lockRecords([]*op{slots})
	ctx, leave := context.WithCancel(t.Context())
	done := do(ctx, qs, slots)
	waiting(t, qs, 0)
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	qs.learnReports(locked, nil, time.Now())
}

// patient is an op whose call may wait for so long that a test does not end before.
func patient(name string) *op {
	op := reserve(5000, name)
	op.patience = time.Hour
	return op
}

// TestPatientCallersShareACall: with one that cannot wait, and where a call is full.
func TestPatientCallersShareACall(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*Node) []*op{
		"one cannot wait": func(*Node) []*op { return []*op{reserve(5000, "last")} },
		"a call is full": func(*Node) (all []*op) {
			for i := range maxBatch - 3 {
				all = append(all, patient(fmt.Sprint("more ", i)))
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCalls(t, 1, "all together", func(qs *Node, _ *redistest.Server, client *redis.Client) {
				var all []<-chan error
				for i := range 3 {
					all = append(all, do(t.Context(), qs, patient(fmt.Sprint(i))))
					waiting(t, qs, i+1)
				}
				require.Zero(t, scripts(t, client))
				for _, op := range last(qs) {
					all = append(all, do(t.Context(), qs, op))
				}
				for _, done := range all {
					require.NoError(t, <-done)
				}
			})
		})
	}
}

// TestAPatientCallerLeaves: the others of its call wait as long as they would have, and its
// context ends its own wait at once.
func TestAPatientCallerLeaves(t *testing.T) {
	t.Parallel()
	requireCalls(t, 1, "nothing was booked for who left", func(qs *Node, _ *redistest.Server, client *redis.Client) {
		ctx, leave := context.WithCancel(t.Context())
		first := do(ctx, qs, patient("first"))
		waiting(t, qs, 1)
		second := do(t.Context(), qs, patient("second"))
		waiting(t, qs, 2)
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.Zero(t, scripts(t, client))
		require.NoError(t, <-do(t.Context(), qs, reserve(5000, "third")))
		require.NoError(t, <-second)
	})
}

// TestPatience: the call of a newcomer waits for others for half of the time that the newcomer has to wait, and in a lane of a share only until its start is
// within its horizon. No other call waits.
func TestPatience(t *testing.T) {
	told, now := 200*time.Millisecond, time.Now()
	for _, c := range []struct {
		name    string
		kind    wire.Kind
		share   uint64
		horizon time.Duration
		limits  []store.Limit
		want    time.Duration
	}{
		{"half of the wait", wire.Reserve, 0, 350 * time.Millisecond, nil, 100 * time.Millisecond},
		{"a share", wire.Reserve, 7, 150 * time.Millisecond, nil, 50 * time.Millisecond},
		{"a share, far from its horizon", wire.Reserve, 7, 10 * time.Millisecond, nil, 100 * time.Millisecond},
		{"a share within its horizon", wire.Reserve, 7, 350 * time.Millisecond, nil, 0},
		{"a question", wire.Cancel, 0, 350 * time.Millisecond, nil, 0},
		{"slots", wire.Reserve, 0, 350 * time.Millisecond, []store.Limit{store.Concurrency(1)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(Options{})
			charges := []store.Charge{{Limit: store.PerSecond(1000), Cost: 1, Share: store.Share{ID: c.share}}}
			last := keepOp(wire.Reserve, charges...)
			last.Class, last.Horizon = 2, c.horizon
			last.outcome.Wait = wire.Micros(told)
			n.noteWait(last, now)

			for _, limit := range c.limits {
				charges = append(charges, store.Charge{Budget: store.Budget{Key: [16]byte{1}}, Limit: limit, Cost: 1})
			}
			require.Equal(t, c.want, n.patience(keepOp(c.kind, charges...), &store.Booking{Charges: charges, MaxWait: store.AnyWait, Horizon: c.horizon}, now))
		})
	}
}
