package problem

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestFields: a limit of each kind, in the fields of the draft.
func TestFields(t *testing.T) {
	for _, c := range []struct {
		policy       string
		limit        throttle.Limit
		wait         time.Duration
		quota, state string
	}{
		{"api", throttle.PerMinute(500), 36 * time.Second, `"api";q=500;w=60`, `"api";r=0;t=36`},
		{"api", throttle.SlidingWindow(3, 1500*time.Millisecond), time.Millisecond, `"api";q=3;w=2`, `"api";r=0;t=1`},
		{"api", throttle.FixedWindow(9, time.Hour), throttle.Never, `"api";q=9;w=3600`, `"api";r=0`},
		{"api", throttle.CalendarWindow(9, throttle.Day, time.UTC), 0, `"api";q=9;w=86400`, `"api";r=0`},
		{"api", throttle.LeakyBucket(2, time.Second), time.Second, `"api";q=2;w=1`, `"api";r=0;t=1`},
		{"api", throttle.TokenBucket(5, time.Second, 50), time.Second, `"api";q=50;w=10`, `"api";r=0;t=1`},
		{"api", throttle.Concurrency(8), 0, `"api";q=8;qu="concurrent-requests"`, `"api";r=0`},
		{"api", throttle.Unlimited(), time.Minute, "", `"api";r=0;t=60`},
		{"a\"\\%\x7f钉", throttle.PerSecond(1), 0, `"a\"\\%25%7F%E9%92%89";q=1;w=1`, `"a\"\\%25%7F%E9%92%89";r=0`},
	} {
		h := make(http.Header)
		addLimit(h, c.policy, c.limit, c.wait)
		require.Equal(t, c.quota, h.Get("RateLimit-Policy"))
		require.Equal(t, c.state, h.Get("RateLimit"))
	}
}
