package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

func TestElapsed(t *testing.T) {
	d, clock := Elapsed(at(0), at(time.Hour))
	require.Equal(t, wire.ElapsedKnown, clock)
	require.Equal(t, time.Hour, d)
	_, clock = Elapsed(time.Time{}, at(0))
	require.Equal(t, wire.ElapsedUnknown, clock, "it never was")
}

// TestP9_ClockSample: a script that told its time is told whether it was set forward.
func TestP9_ClockSample(t *testing.T) {
	const s = int64(time.Second / time.Microsecond)
	last := Reply{Group: "g", Number: 7, Sent: at(0), ServerTime: 100 * s, By: at(time.Second)}
	now := at(10 * time.Second)
	for name, c := range map[string]struct {
		server int64
		want   wire.Known
	}{
		"not told":       {0, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedKnown, AtLeast: 9 * time.Second}},
		"as expected":    {110 * s, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedUnknown, AtLeast: 9 * time.Second}},
		"a little later": {110*s + 60_000, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedUnknown, AtLeast: 9 * time.Second}},
		"set forward":    {110*s + 60_001, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.SetForward, AtLeast: 9 * time.Second}},
	} {
		require.Equal(t, c.want, last.clockSample(now, c.server), name)
	}
	require.Equal(t, wire.ElapsedUnknown, Reply{}.clockSample(now, 0).Clock, "there was no reply")
	require.EqualValues(t, 7, last.record("g", at(RecordTime)))
	require.Zero(t, last.record("other", at(RecordTime)))
	require.Zero(t, last.record("g", at(RecordTime+1)))
}

// TestP9_DecidedAt: the clock was set by more than has passed since the first copy, or
// not.
func TestP9_DecidedAt(t *testing.T) {
	sent, received := at(0), at(2*time.Second)
	decided := int64(1_000_000_000)
	for name, c := range map[string]struct {
		now   int64
		at    int64
		since time.Time
	}{
		"a second later":       {decided + 1_000_000, decided + 1_000_000, at(time.Second)},
		"as long as it can be": {decided + 2_002_000, decided + 2_002_000, at(2002 * time.Millisecond)},
		"set forward":          {decided + 2_002_001, decided, sent},
		"set back":             {decided - 1, decided, sent},
	} {
		at, since := DecidedAt(sent, received, decided, c.now)
		require.Equal(t, c.at, at, name)
		require.Equal(t, c.since, since, name)
	}
}

// TestP9_RepeatedReply: a reply that was given again is as much later than the last one
// as it says, and never in the future.
func TestP9_RepeatedReply(t *testing.T) {
	again := Reply{Sent: at(time.Second), ServerTime: 4_000_000}
	last := Reply{ServerTime: 1_000_000, By: at(0)}
	require.Equal(t, at(3*time.Second), again.withTime(last, at(time.Minute)).By)
	require.Equal(t, at(2*time.Second), again.withTime(last, at(2*time.Second)).By)
	require.Equal(t, at(time.Second), again.withTime(Reply{}, at(time.Minute)).By)
}

func TestBetween(t *testing.T) {
	require.Equal(t, time.Second, Between(5, 1_000_005))
	require.Equal(t, -time.Second, Between(1_000_005, 5))
	require.Equal(t, store.MaxAhead, Between(0, 1<<60))
	require.Equal(t, -store.MaxAhead, Between(1<<60, 0))
}

// TestP2_ClockOffsets: the fastest replies bound how far a server's clock is ahead, and a
// clock that was set is noticed.
func TestP2_ClockOffsets(t *testing.T) {
	const ahead = 1_000_000_000 // microseconds
	c := NewClockOffsets()
	reply := func(sent, there, back time.Duration, ahead int64) {
		c.Observe("g", ahead+int64((sent+there)/time.Microsecond), at(sent), at(sent+there+back))
	}
	for i := range 3 {
		_, _, known := c.Until("g", ahead, at(0))
		require.False(t, known)
		reply(time.Duration(i)*time.Second, 10*time.Millisecond, 20*time.Millisecond, ahead)
	}
	reply(3*time.Second, 2*time.Millisecond, 2*time.Millisecond, ahead)
	wait, doubt, known := c.Until("g", ahead+10_000_000, at(4*time.Second))
	require.True(t, known)
	require.GreaterOrEqual(t, wait, 6*time.Second, "no start is early")
	require.LessOrEqual(t, wait-doubt, 6*time.Second)
	require.Less(t, doubt, 6*time.Millisecond)

	reply(5*time.Second, time.Millisecond, time.Millisecond, ahead+1_000_000)
	_, _, known = c.Until("g", ahead, at(5*time.Second))
	require.False(t, known, "the clock was set")
	_, _, known = c.Until("other", ahead, at(0))
	require.False(t, known)
}
