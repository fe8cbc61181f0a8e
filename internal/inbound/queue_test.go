package inbound_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
)

// A caller is a request in a queue.
type caller struct {
	*inbound.Place
	ctx context.Context
}

// enter puts a request into a queue that has room.
func enter(t *testing.T, q *inbound.Queue) caller {
	ctx, p, err := q.Enter(t.Context())
	require.NoError(t, err)
	return caller{p, ctx}
}

// waits tells the queue that a budget holds the request, and returns why its wait has ended, or nil.
func (c caller) waits(budget string, wait time.Duration) error {
	inbound.Observe(c.ctx, throttle.Event{Kind: throttle.EventWaiting, Budget: budget, Policy: "p", Duration: wait})
	return context.Cause(c.ctx)
}

// requireRefused checks that an error is a refusal of the queue.
func requireRefused(t *testing.T, err error, policy string, after time.Duration) {
	t.Helper()
	var r *inbound.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, []any{policy, after}, []any{r.Policy, r.RetryAfter})
}

// TestQueueIsBounded in all and for each budget, and a place that is given back is free, whatever held its request.
func TestQueueIsBounded(t *testing.T) {
	q := inbound.NewQueue(4, 1)
	a, b := enter(t, q), enter(t, q)
	require.NoError(t, a.waits("a", 0))
	require.NoError(t, a.waits("a", time.Hour), "the place is its own")
	require.NoError(t, b.waits("", 0), "nobody knows the budget")
	require.NoError(t, b.waits("b", 0))

	for wait, after := range map[time.Duration]time.Duration{0: inbound.Soon, time.Hour: time.Hour} {
		full := enter(t, q)
		requireRefused(t, full.waits("a", wait), "p", after)
		full.Leave()
	}

	c, d := enter(t, q), enter(t, q)
	require.Equal(t, 4, q.Len())
	_, _, err := q.Enter(t.Context())
	requireRefused(t, err, "", inbound.Soon)

	// The request is held by a different budget now: the old one has room.
	require.NoError(t, a.waits("c", 0))
	require.NoError(t, c.waits("a", 0))
	c.Leave()
	c.Leave()
	inbound.Observe(d.ctx, throttle.Event{Kind: throttle.EventStillWaiting, Budget: "a", Policy: "p", Left: time.Hour})
	require.NoError(t, context.Cause(d.ctx))
	requireRefused(t, enter(t, q).waits("a", 0), "p", inbound.Soon)
	inbound.Observe(t.Context(), throttle.Event{Kind: throttle.EventWaiting, Budget: "a"}) // no request of the queue
}

// TestQueueWaitAgain: a request that lost its start takes its place again even in a full queue, and is refused if the
// server stops before its start.
func TestQueueWaitAgain(t *testing.T) {
	q := inbound.NewQueue(1, 1)
	p := enter(t, q)
	require.NoError(t, p.waits("b", 0))
	p.Leave()
	other := enter(t, q)
	require.NoError(t, other.waits("b", 0))
	require.NoError(t, p.waits("b", time.Hour), "it had a place")
	require.Equal(t, 2, q.Len())
	other.Leave()
	_, _, err := q.Enter(t.Context())
	requireRefused(t, err, "", inbound.Soon)

	q.Stop(time.Now().Add(time.Minute))
	require.Equal(t, inbound.ErrStopping, context.Cause(p.ctx))
	p.Leave()
	require.Zero(t, q.Len())
}

// TestQueueStops: a request that would start too late is refused at once, others have until the deadline, and none enters.
func TestQueueStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := inbound.NewQueue(9, 9)
		late, early, unknown, ended := enter(t, q), enter(t, q), enter(t, q), enter(t, q)
		require.NoError(t, late.waits("b", time.Hour))
		require.NoError(t, early.waits("b", time.Second))

		q.Stop(time.Now().Add(time.Minute))
		require.Equal(t, inbound.ErrStopping, context.Cause(late.ctx))
		_, _, err := q.Enter(t.Context())
		require.Equal(t, inbound.ErrStopping, err)
		require.Equal(t, inbound.ErrStopping, ended.waits("b", time.Hour), "the start has become too late")

		early.Leave()
		time.Sleep(time.Minute - 1)
		require.NoError(t, context.Cause(unknown.ctx))
		time.Sleep(2 * time.Nanosecond)
		require.Equal(t, inbound.ErrStopping, context.Cause(unknown.ctx))
		require.NoError(t, context.Cause(early.ctx), "it has its start")

		own := errors.New("the caller is too slow")
		early.End(own)
		require.Equal(t, own, context.Cause(early.ctx))
	})
}

// TestQueueStops_AStartLostAfterTheDeadline: a request that loses its start behind the deadline does not wait again, also where nobody knows for how
// long it would wait.
func TestQueueStops_AStartLostAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := inbound.NewQueue(9, 9)
		p, before := enter(t, q), enter(t, q)
		p.Leave()
		before.Leave()
		q.Stop(time.Now().Add(time.Minute))
		require.NoError(t, before.waits("slots", 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, inbound.ErrStopping, context.Cause(before.ctx))
		require.NoError(t, context.Cause(p.ctx), "premise: it has its start")
		require.Equal(t, inbound.ErrStopping, p.waits("slots", 0))
	})
}

// TestPlaceStart: either the queue ends the wait, and the request does not start, or the request has its start, and the queue does not end it.
func TestPlaceStart(t *testing.T) {
	q := inbound.NewQueue(2, 2)
	starts, late := enter(t, q), enter(t, q)
	require.NoError(t, starts.Start())
	require.Equal(t, 1, q.Len())
	q.Stop(time.Now())
	<-late.ctx.Done()
	require.Equal(t, inbound.ErrStopping, late.Start())
	require.NoError(t, context.Cause(starts.ctx))
}

// TestMaxWait: a caller may wait for less than the most, and not for more.
func TestMaxWait(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 5 * time.Second, "wait=2": 2 * time.Second, "Wait = 2": 2 * time.Second, `wait="2"`: 2 * time.Second, "respond-async, wait=2;x=1": 2 * time.Second, "wait=0": -1,
		"wait=60": 5 * time.Second, "wait": 5 * time.Second, "wait=-1": 5 * time.Second, "wait=1.5": 5 * time.Second, "wait=99999999999999999999": 5 * time.Second, "await=1": 5 * time.Second,
	} {
		require.Equal(t, want, inbound.MaxWait(http.Header{"Prefer": {text}}, 5*time.Second), text)
	}
	require.Equal(t, -time.Second, inbound.MaxWait(http.Header{"Prefer": {"wait=2"}}, -time.Second))
}

// TestPriority: an urgency is a priority.
func TestPriority(t *testing.T) {
	for text, want := range map[string]throttle.Priority{
		"": throttle.PriorityNormal, "u=0": throttle.PriorityHigh, "u=2, i": throttle.PriorityHigh, "i, u=3": throttle.PriorityNormal, "u=4": throttle.PriorityLow, "u=7": throttle.PriorityLow, "u=8": throttle.PriorityNormal, "u=-1": throttle.PriorityNormal, "u": throttle.PriorityNormal, "uu=7": throttle.PriorityNormal,
	} {
		require.Equal(t, want, inbound.Priority(http.Header{"Priority": {text}}), text)
	}
}

// TestIsLoopbackHost: names and addresses of the loopback, with a port or without.
func TestIsLoopbackHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:7070": true, "127.0.0.1": true, "127.9.9.9:1": true, "::1": true, "[::1]": true, "[::1]:7070": true, "[::ffff:127.0.0.1]:1": true,
		"": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:1": false, "10.0.0.1": false, "0.0.0.0:1": false, ":7070": false,
	} {
		require.Equal(t, want, inbound.IsLoopbackHost(host), host)
	}
}

// TestIsLoopbackAddress: an address to listen at has a port.
func TestIsLoopbackAddress(t *testing.T) {
	for listen, want := range map[string]bool{
		"localhost:0": true, "127.0.0.1:7070": true, "[::1]:7070": true,
		"127.0.0.1": false, "7070": false, ":7070": false, "0.0.0.0:7070": false, "[::]:7070": false, "example.com:7070": false,
	} {
		require.Equal(t, want, inbound.IsLoopbackAddress(listen), listen)
	}
}
