package feedback_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// FuzzDialects: whatever stands in a field, no penalty is negative or longer
// than the cap, and nothing but a zero is zero, or a duration of less than can be
// told.
func FuzzDialects(f *testing.F) {
	for _, field := range []string{
		"", "0", "0.0", "0s", "120", "2.0", "6m0s", "12ms", "1767323075", "1767323075.5", "1767323075000", "9999999999999999999999",
		date, "Friday, 02-Jan-26 03:04:35 GMT", "Fri Jan  2 03:04:35 2026", "2026-01-02T03:04:35Z", "2026-01-02T11:04:35+0800",
		"20:1,100:120", "32/40", "-1", "1e9", "NaN", "+Inf", "0x1p-2", "1_0", "soon", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z",
	} {
		f.Add(field, date)
		f.Add(field, "")
	}
	const none = 7*time.Minute + time.Nanosecond
	f.Fuzz(func(t *testing.T, field, date string) {
		resp := answer(429, "", "Date", date, "Retry-After", field)
		d := lengthOf(feedback.RetryAfter(none)(resp))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, throttle.MaxPenalty)
		if _, err := time.ParseDuration(strings.TrimSpace(field)); d == 0 && err != nil {
			require.Empty(t, strings.Trim(strings.TrimSpace(field), "0."), "only a zero means now")
		}
		for _, h := range []feedback.Headers{
			{Remaining: "Retry-After", Reset: "Retry-After"},
			{Used: "Retry-After", Size: 100, Per: time.Minute, Clock: true},
			{Remaining: "Retry-After", Per: time.Second},
		} {
			q, ok := h.Left(resp).Left()
			if !ok {
				require.Zero(t, q)
				continue
			}
			require.GreaterOrEqual(t, q.Left, 0)
			require.Positive(t, q.Reset)
			require.LessOrEqual(t, q.Reset, throttle.MaxPenalty)
		}
	})
}
