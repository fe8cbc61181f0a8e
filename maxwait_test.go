package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestMaxWait lets a request come 0.6 s after another, where 2 s and a
// microsecond must lie between the two: the wait is 1.4 s and a microsecond.
func TestMaxWait(t *testing.T) {
	const wait = 1400*ms + us
	const refused = `throttle: policy "app and API" (1/2s): would wait 1.4s, but `
	none := time.Duration(1<<63 - 1)
	for _, c := range []struct {
		name     string
		config   time.Duration
		own      time.Duration // WithMaxWait; none: not used
		deadline time.Duration // none: there is no deadline
		want     string        // "": it waits and starts
	}{
		{"as long as it takes", 0, none, none, ""},
		{"long enough", wait, none, none, ""},
		{"too short by a microsecond", wait - us, none, none, refused + "MaxWait is 1.4s"},
		{"too short", time.Second, none, none, refused + "MaxWait is 1s"},
		{"not at all", -1, none, none, refused + "may not wait at all"},

		{"own instead of none", 0, 250 * ms, none, refused + "MaxWait is 250ms"},
		{"own not at all", 0, -1, none, refused + "may not wait at all"},
		{"own as long as it takes", -1, 0, none, ""},
		{"own longer", time.Second, time.Minute, none, ""},
		{"own shorter", time.Minute, time.Second, none, refused + "MaxWait is 1s"},

		{"deadline", 0, none, 300 * ms, refused + "the deadline is in 300ms"},
		{"deadline late enough", 0, none, wait + us, ""},
		{"deadline before MaxWait", time.Second, none, 300 * ms, refused + "the deadline is in 300ms"},
		{"deadline after MaxWait", 200 * ms, none, 300 * ms, refused + "MaxWait is 200ms"},
		{"deadline and own as long as it takes", -1, 0, 300 * ms, refused + "the deadline is in 300ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts()
				tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: s, MaxWait: c.config, Policies: []throttle.Policy{
					{Name: "app and API", Limit: throttle.SlidingWindow(1, 2*time.Second), Jitter: -1},
				}}))
				require.NoError(t, send(t, tr, get(t, home)))
				time.Sleep(600 * ms)

				ctx := t.Context()
				if c.own != none {
					ctx = throttle.WithMaxWait(ctx, c.own)
				}
				if c.deadline != none {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				err := send(t, tr, get(t, home).WithContext(ctx))
				if c.want == "" {
					require.NoError(t, err)
					require.Equal(t, []time.Duration{0, 600*ms + wait}, s.seen())
					return
				}
				require.EqualError(t, err, c.want)
				require.Equal(t, 600*ms, time.Since(s.begin), "refused at once")
				var limited *throttle.LimitError
				require.ErrorAs(t, err, &limited)
				require.Equal(t, wait, limited.RetryAfter, "when there is room, whatever the bound")
			})
		})
	}
}

func TestP7_RefusedCallersLeaveTheNextAsWellOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memstore.New(), newStarts()
		p := throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1}
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{p}}))
		require.NoError(t, send(t, tr, get(t, home)))
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 900*ms)
			require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), throttle.ErrLimited)
			cancel()
		}
		require.Equal(t, throttle.Status{Limit: p.Limit, Used: 1, Wait: time.Second + us}, status(t, store, tr, get(t, home)))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []time.Duration{0, time.Second + us}, s.seen())
	})
}

func TestWithMaxWaitBoundsALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), onePerHour))
		_, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), time.Minute), "", 1)
		require.EqualError(t, err, `throttle: policy "hourly" (1/h): would wait 1h0m0s, but MaxWait is 1m0s`)
	})
}
