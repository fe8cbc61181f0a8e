package node

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// real returns queues that call a server of their own, which knows the script.
func real(t *testing.T) (*Node, *redistest.Server, *redis.Client) {
	server := redistest.Single(t)
	client := server.Client(t)
	require.NoError(t, client.ScriptLoad(t.Context(), wire.BookScript.Source).Err())
	qs := New(Options{
		Conn: conn.New(client), Names: names.New("throttle"), History: history.New(), Offsets: history.NewClockOffsets(),
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
	}, 10*time.Second, time.Millisecond)
}

// waiting awaits that a call is made, and so many ops wait for the next one.
func waiting(t *testing.T, qs *Node, n int) {
	require.Eventually(t, func() bool {
		load := qs.Load()
		return load.Queued == n && load.Running == 1
	}, 10*time.Second, time.Millisecond)
}

// scripts is how many calls of scripts a server has had; none before the first.
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

// do has an op done aside.
func do(ctx context.Context, qs *Node, op *op) <-chan error {
	done := make(chan error, 1)
	go func() { done <- qs.do(ctx, op, store.AnyWait) }()
	return done
}

// TestALeaderLeaves while Redis is stopped: its call goes on, once, and what it booked is given back.
func TestALeaderLeaves(t *testing.T) {
	t.Parallel()
	qs, server, client := real(t)
	server.Pause()
	ctx, leave := context.WithCancel(t.Context())
	done := do(ctx, qs, reserve(5000, "a"))
	waiting(t, qs, 0)
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	server.Continue()
	idle(t, qs)
	require.Equal(t, 2, scripts(t, client), "the booking, and what takes it back")
}

// TestALeaderIsFollowed by callers that come while its call is on its way. They go together in
// the next call.
func TestALeaderIsFollowed(t *testing.T) {
	t.Parallel()
	qs, server, client := real(t)
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
	require.Equal(t, 2, scripts(t, client))
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
