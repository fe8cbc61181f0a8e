package throttle_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// refusal makes a response with a status, a Retry-After and a Date; "" leaves a
// field out.
func refusal(status int, retryAfter, date string) *http.Response {
	h := http.Header{}
	for name, value := range map[string]string{"Retry-After": retryAfter, "Date": date} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return &http.Response{StatusCode: status, Header: h}
}

func TestRetryAfter(t *testing.T) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT" // 1767323045
	const unusable = -1
	for _, c := range []struct {
		name, field, date string
		want              time.Duration
	}{
		{"seconds", "120", "", 2 * time.Minute},
		{"spaces", " 120\t", "", 2 * time.Minute},
		{"zeros in front", "007", "", 7 * time.Second},
		{"zero means now", "0", "", 0},
		{"an hour", "3600", "", time.Hour},
		{"above the cap", "3601", "", time.Hour},
		{"a day", "86400", "", time.Hour},
		{"ten years", "315360000", "", time.Hour},
		{"decimal", "2.0", "", 2 * time.Second},
		{"half a second", "0.5", "", 500 * time.Millisecond},
		{"decimal zero", "0.0", "", 0},
		{"less than a nanosecond is not now", "0.0000000001", "", time.Nanosecond},

		{"IMF-fixdate", "Fri, 02 Jan 2026 03:04:35 GMT", date, 31 * time.Second},
		{"RFC 850", "Friday, 02-Jan-26 03:04:35 GMT", date, 31 * time.Second},
		{"asctime", "Fri Jan  2 03:04:35 2026", date, 31 * time.Second},
		{"the date of the answer", date, date, time.Second},
		{"a second before the answer", "Fri, 02 Jan 2026 03:04:04 GMT", date, unusable},
		{"long past", "Sun, 06 Nov 1994 08:49:37 GMT", date, unusable},
		{"next year", "Sat, 02 Jan 2027 03:04:05 GMT", date, time.Hour},
		{"year 9999", "Fri, 31 Dec 9999 23:59:59 GMT", date, time.Hour},
		{"epoch", "1767323075", date, 31 * time.Second},
		{"epoch with decimals", "1767323075.25", date, 30250 * time.Millisecond},
		{"epoch in the past", "1767323044", date, unusable},
		{"epoch in milliseconds", "1767323075250", date, 30250 * time.Millisecond},
		{"a Go duration", "10s", date, 10 * time.Second},
		{"ISO 8601", "2026-01-02T03:05:05Z", date, 61 * time.Second},

		{"more than 64 bits", "99999999999999999999", date, unusable},
		{"more than a float", strings.Repeat("9", 400), date, unusable},
		{"more than a float, decimal", strings.Repeat("9", 400) + ".5", date, unusable},
		{"none", "", date, unusable},
		{"a word", "soon", date, unusable},
		{"negative", "-1", date, unusable},
		{"plus", "+1", date, unusable},
		{"exponent", "1e3", date, unusable},
		{"hexadecimal", "0x10", date, unusable},
		{"infinity", "Inf", date, unusable},
		{"no number", "NaN", date, unusable},
		{"underscore", "1_000", date, unusable},
		{"comma", "1,5", date, unusable},
		{"a point only", ".", date, unusable},
		{"nothing before the point", ".5", date, unusable},
		{"nothing behind the point", "5.", date, unusable},
		{"two points", "1.2.3", date, unusable},
		{"digits of another script", "٣", date, unusable},
	} {
		t.Run(c.name, func(t *testing.T) {
			limited, outage := c.want, c.want
			if c.want == unusable {
				limited, outage = throttle.DefaultRetryAfter, 0
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(must(http.ParseTime(date)))) // both clocks are right
				require.Equal(t, limited, throttle.RetryAfter(refusal(429, c.field, c.date)))
				require.Equal(t, outage, throttle.RetryAfter(refusal(503, c.field, c.date)))
			})
		})
	}
}

func TestRetryAfterWithoutDate(t *testing.T) {
	for _, date := range []string{"", "yesterday"} {
		synctest.Test(t, func(t *testing.T) {
			at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
			require.Equal(t, 31*time.Second, throttle.RetryAfter(refusal(429, at(30*time.Second), date)))
			time.Sleep(300 * time.Millisecond)
			require.Equal(t, 30700*time.Millisecond, throttle.RetryAfter(refusal(429, at(30*time.Second), date)))
			require.Equal(t, 700*time.Millisecond, throttle.RetryAfter(refusal(503, at(0), date)))
			require.Equal(t, throttle.DefaultRetryAfter, throttle.RetryAfter(refusal(429, at(-time.Minute), date)))
			require.Zero(t, throttle.RetryAfter(refusal(503, at(-time.Minute), date)))
		})
	}
}

// TestRetryAfterByTwoClocks: the shorter time counts, unless it is over.
func TestRetryAfterByTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(600 * time.Millisecond)
		date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		millis := strconv.FormatInt(time.Now().Add(2*time.Second).UnixMilli(), 10)
		for _, c := range []struct {
			name        string
			field, date string
			want        time.Duration
		}{
			{"both right", millis, date(0), 2 * time.Second},
			{"the upstream's is late", millis, date(-3 * time.Hour), 2 * time.Second},
			{"ours is late", date(3*time.Hour + 2*time.Second), date(3 * time.Hour), 3 * time.Second},
			{"ours is early", date(2*time.Second - 3*time.Hour), date(-3 * time.Hour), 3 * time.Second},
		} {
			require.Equal(t, c.want, throttle.RetryAfter(refusal(429, c.field, c.date)), c.name)
		}
	})
}

func TestRetryAfterOfOtherAnswers(t *testing.T) {
	for _, status := range []int{200, 202, 301, 302, 400, 403, 404, 418, 500, 502, 504, 529} {
		require.Zero(t, throttle.RetryAfter(refusal(status, "120", "")), "%d", status)
	}
	require.Zero(t, throttle.RetryAfter(nil))
	require.Equal(t, throttle.DefaultRetryAfter, throttle.RetryAfter(&http.Response{StatusCode: 429}))
}

func TestRetryAfterConstants(t *testing.T) {
	require.Equal(t, time.Second, throttle.DefaultRetryAfter)
	require.Equal(t, time.Hour, throttle.MaxRetryAfter)
}

func FuzzRetryAfter(f *testing.F) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	for _, field := range []string{
		"", "0", "120", "2.0", "1767323075", "99999999999999999999", "-1", "NaN", date,
		"Friday, 02-Jan-26 03:04:35 GMT", "Fri Jan  2 03:04:35 2026", "Fri, 31 Dec 9999 23:59:59 GMT",
	} {
		f.Add(429, field, date)
		f.Add(503, field, "")
	}
	f.Fuzz(func(t *testing.T, status int, field, date string) {
		resp := refusal(status, field, date)
		d := throttle.RetryAfter(resp)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, throttle.MaxRetryAfter)
		if status != 429 && status != 503 {
			require.Zero(t, d)
		}
		if status == 429 && d == 0 {
			require.Empty(t, strings.Trim(strings.TrimSpace(field), "0."), "only a zero means now")
		}
	})
}
