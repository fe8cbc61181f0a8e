package virtual_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/virtual"
)

// TestEvents happen in the order of their times, and at one time in that in which they were
// asked for.
func TestEvents(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	c := virtual.NewClock(begin)
	var order []string
	say := func(name string) func() { return func() { order = append(order, name) } }
	c.AfterFunc(time.Minute, say("late"))
	c.AfterFunc(time.Second, say("first"))
	c.AfterFunc(time.Second, func() {
		require.Equal(t, begin.Add(time.Second), c.Time())
		c.AfterFunc(-time.Hour, say("at once"))
	})
	moved := c.AfterFunc(time.Hour, say("moved"))
	require.True(t, moved.Reset(time.Millisecond))
	stopped := c.AfterFunc(time.Second, say("stopped"))
	require.True(t, stopped.Stop())
	require.False(t, stopped.Stop())
	for c.Next() {
	}
	require.Equal(t, []string{"moved", "first", "at once", "late"}, order)
	require.Equal(t, begin.Add(time.Minute).UnixMicro(), c.Now())
	require.False(t, moved.Reset(time.Nanosecond), "it has happened")
	require.True(t, c.Next())
	require.Equal(t, begin.Add(time.Minute+time.Microsecond), c.Time())
}

// TestUntil: time stands where it was to go, and what comes later is still to come.
func TestUntil(t *testing.T) {
	c := virtual.NewClock(time.UnixMicro(0))
	happened := 0
	c.AfterFunc(time.Second, func() { happened++; c.AfterFunc(time.Second, func() { happened++ }) })
	c.Until(1_500_000)
	require.Equal(t, 1, happened)
	require.Equal(t, int64(1_500_000), c.Now())
	c.Until(1_000_000)
	require.Equal(t, int64(1_500_000), c.Now())
	c.Until(2_000_000)
	require.Equal(t, 2, happened)
	require.Equal(t, int64(2_000_000), c.Now())
}

// TestClose: a channel that is closed is an event for the one that listens.
func TestClose(t *testing.T) {
	c := virtual.NewClock(time.Unix(0, 0))
	called := 0
	ready, other, nobodys := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c.OnClose(ready, func() { called++ })
	c.OnClose(other, func() { called += 10 })
	c.Forget(other)
	for _, ch := range []chan struct{}{ready, other, nobodys} {
		c.Close(ch)
		<-ch
	}
	require.Zero(t, called, "it is an event of its own")
	for c.Next() {
	}
	require.Equal(t, 1, called)
	c.OnClose(ready, func() { called++ })
	require.True(t, c.Next())
	require.Equal(t, 2, called)
}
