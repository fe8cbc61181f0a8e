package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"40/s", "10000/20s", "40 per 1.05 seconds", "1000/2d", "40/s paced", "100/m fixed", "100/day",
		"7/week Europe/Berlin", "5000/month +08:00", "1/day -00:00:01", "20 in flight", "2/s burst 40", "0/s",
		"1/m burst 20", "1/s burst 0", "1/day burst 2", "4294967296/366d burst 4294967296", "3 in", "0 in flight",
		"1/1h0m0.5s", "1/9223372036854775807ns", "1/µs", "1/day Local",
		"unlimited", " unlimited", "unlimited 3", "Unlimited", "unlimited/s", "1 unlimited",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			require.Zero(t, l)
			return
		}
		require.NoError(t, l.Validate(0))
		again, err := throttle.ParseLimit(l.String())
		require.NoError(t, err)
		require.Equal(t, l.String(), again.String())
		requireSameLimit(t, l, again)
	})
}

// FuzzLimitString begins at the other end: what New accepts can be printed and
// read.
func FuzzLimitString(f *testing.F) {
	for kind := range uint8(9) {
		f.Add(kind, 40, int64(time.Second), 8*3600)
		f.Add(kind, 1, int64(time.Hour+time.Microsecond), -12601)
	}
	f.Fuzz(func(t *testing.T, kind uint8, n int, per int64, offset int) {
		burst := offset
		zone := time.FixedZone("somewhere", offset%(24*3600))
		l := [...]throttle.Limit{
			throttle.SlidingWindow(n, time.Duration(per)),
			throttle.LeakyBucket(n, time.Duration(per)),
			throttle.FixedWindow(n, time.Duration(per)),
			throttle.CalendarWindow(n, throttle.Day, zone),
			throttle.CalendarWindow(n, throttle.Week, zone),
			throttle.CalendarWindow(n, throttle.Month, zone),
			throttle.TokenBucket(n, time.Duration(per), burst),
			throttle.Concurrency(n),
			throttle.Unlimited(),
		}[kind%9]
		if l.Validate(0) != nil {
			return
		}
		text, err := l.MarshalText()
		require.NoError(t, err)
		var again throttle.Limit
		require.NoError(t, again.UnmarshalText(text))
		requireSameLimit(t, l, again)
	})
}
