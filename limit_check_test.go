package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func TestValidateAccepts(t *testing.T) {
	for _, l := range []throttle.Limit{
		throttle.PerSecond(1),
		throttle.PerSecond(1 << 40),
		throttle.SlidingWindow(1, time.Microsecond),
		throttle.SlidingWindow(1, 1500*time.Nanosecond),
		throttle.SlidingWindow(1, 366*24*time.Hour),
		throttle.LeakyBucket(1, time.Microsecond),
		throttle.LeakyBucket(1, 366*24*time.Hour),
		throttle.FixedWindow(1, 35*time.Millisecond+time.Microsecond),
		throttle.FixedWindow(1, 366*24*time.Hour),
		throttle.CalendarWindow(1, throttle.Day, nil),
		throttle.CalendarWindow(1, throttle.Week, time.UTC),
		throttle.CalendarWindow(1, throttle.Month, time.Local),
		throttle.TokenBucket(1, time.Microsecond, 1),
		throttle.TokenBucket(1, time.Second, 1),
		throttle.TokenBucket(1, 366*24*time.Hour, 1),
		throttle.TokenBucket(366*24, 366*24*time.Hour, 366*24),
		throttle.TokenBucket(1_000_000, time.Second, 1<<32),
		throttle.Concurrency(1),
		throttle.Concurrency(1 << 40),
		throttle.Unlimited(),
	} {
		require.NoError(t, l.Validate(35*time.Millisecond), "%v", l)
	}
	require.NoError(t, throttle.FixedWindow(1, time.Microsecond).Validate(0))
	require.NoError(t, throttle.PerSecond(1).Validate(time.Hour), "only fixed windows have an end")
}

func TestValidateRefuses(t *testing.T) {
	const (
		jitter = 35 * time.Millisecond
		ns     = time.Nanosecond
		noRoom = " has no room for a start that may arrive 35ms late: " +
			"use a longer window, or set Policy.Jitter to less than the window (negative for none)"
	)
	for _, c := range []struct {
		name  string
		limit throttle.Limit
		want  string
	}{
		{"zero", throttle.Limit{}, `there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`},
		{"no starts", throttle.PerSecond(0), "0 starts: allow at least 1"},
		{"negative", throttle.CalendarWindow(-3, throttle.Day, nil), "-3 starts: allow at least 1"},
		{"too many", throttle.PerSecond(1<<40 + 1), "1099511627777 starts: allow at most 1099511627776"},
		{"no period", throttle.SlidingWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"backwards", throttle.LeakyBucket(1, -time.Second), "a period of -1s: use a positive one, such as time.Second"},
		{"fixed, no period", throttle.FixedWindow(1, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"short", throttle.SlidingWindow(1, 999*ns), "a period of 999ns: use at least 1µs"},
		{"paced, short", throttle.LeakyBucket(1, 1*ns), "a period of 1ns: use at least 1µs"},
		{"long", throttle.SlidingWindow(1, 366*24*time.Hour+1), "a period of 8784h0m0.000000001s: use at most 8784h0m0s, which is 366 days"},
		{"paced, long", throttle.LeakyBucket(1, 400*24*time.Hour), "a period of 9600h0m0s: use at most 8784h0m0s, which is 366 days"},
		{"fraction of a microsecond", throttle.FixedWindow(1, time.Second+1), "a fixed window of 1.000000001s: use whole microseconds"},
		{"fixed, as long as jitter", throttle.FixedWindow(1, jitter), "a fixed window of 35ms" + noRoom},
		{"no unit", throttle.CalendarWindow(1, 0, nil), "unit 0: use Day, Week or Month"},
		{"unknown unit", throttle.CalendarWindow(1, throttle.Month+1, nil), "unit 4: use Day, Week or Month"},
		{"no burst", throttle.TokenBucket(1, time.Second, 0), "a burst of 0: allow at least 1"},
		{"negative burst", throttle.TokenBucket(1, time.Second, -1), "a burst of -1: allow at least 1"},
		{"large burst", throttle.TokenBucket(1000, time.Second, 1<<32+1), "a burst of 4294967297: allow at most 4294967296"},
		{"no flow", throttle.TokenBucket(0, time.Second, 1), "0 starts: allow at least 1"},
		{"bucket, no period", throttle.TokenBucket(1, 0, 0), "a period of 0s: use a positive one, such as time.Second"},
		{"too fast", throttle.TokenBucket(1001, time.Millisecond, 5), "1001 tokens in 1ms: a bucket takes at most one each microsecond"},
		{"too slow to fill", throttle.TokenBucket(1, 24*time.Hour, 367), "a burst of 367 that takes more than 8784h0m0s to fill: use a smaller one"},
		{"nothing in flight", throttle.Concurrency(0), "0 starts: allow at least 1"},
		{"all at once", throttle.FixedWindow(0, 1500*ns), "0 starts: allow at least 1\n" +
			"a fixed window of 1.5µs: use whole microseconds\n" +
			"a fixed window of 1.5µs" + noRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.EqualError(t, c.limit.Validate(jitter), c.want)
		})
	}
}
