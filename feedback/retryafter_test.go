package feedback_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// TestRetryAfter has a case for each dialect that upstreams use in this field,
// and for what they should not have written.
func TestRetryAfter(t *testing.T) {
	const none = 7 * time.Minute // the fallback
	const day = throttle.MaxPenalty
	for _, c := range []struct {
		name, field string
		want        time.Duration
	}{
		{"seconds", "120", 2 * time.Minute},
		{"spaces", " 120\t", 2 * time.Minute},
		{"now", "0", 0},
		{"decimal", "2.0", 2 * time.Second},
		{"half a second", "0.5", 500 * time.Millisecond},
		{"less than can be told", "0.0000000001", time.Nanosecond},
		{"IMF-fixdate", "Fri, 02 Jan 2026 03:04:35 GMT", 31 * time.Second},
		{"RFC 850", "Friday, 02-Jan-26 03:04:35 GMT", 31 * time.Second},
		{"asctime", "Fri Jan  2 03:04:35 2026", 31 * time.Second},
		{"ISO 8601", "2026-01-02T03:04:35Z", 31 * time.Second},
		{"ISO 8601, decimal", "2026-01-02T03:04:35.250Z", 30250 * time.Millisecond},
		{"ISO 8601, with a zone", "2026-01-02T11:04:35+08:00", 31 * time.Second},
		{"ISO 8601, with a zone of four digits", "2026-01-02T11:04:35+0800", 31 * time.Second},
		{"epoch", "1767323075", 31 * time.Second},
		{"epoch, decimal", "1767323075.5", 30500 * time.Millisecond},
		{"epoch, milliseconds", "1767323075250", 30250 * time.Millisecond},
		{"epoch, microseconds", "1767323075250000", 30250 * time.Millisecond},
		{"epoch, nanoseconds", "1767323075250000000", 30250 * time.Millisecond},
		{"a Go duration", "6m0s", 6 * time.Minute},
		{"words", "30 seconds", 30 * time.Second},
		{"words of several parts", "1 hour, 5 minutes and 30 sec", time.Hour + 5*time.Minute + 30*time.Second},
		{"ISO 8601 with spaces", "2026-01-02 03:04:35 UTC", 31 * time.Second},
		{"as Go prints a moment", "2026-01-02 11:04:35 +0800 CST", none},
		{"as Go prints a moment of UTC", "2026-01-02 03:04:35 +0000 UTC", 31 * time.Second},
		{"ISO 8601 in small letters", "2026-01-02t03:04:35z", 31 * time.Second},
		{"ISO 8601, cut to minutes", "2026-01-02T03:05Z", 115 * time.Second},
		{"ISO 8601, cut to this minute", "2026-01-02T03:04Z", 55 * time.Second},
		{"ISO 8601, cut to the last minute", "2026-01-02T03:03Z", none},
		{"cut to minutes, with a zone", "2026-01-02T11:05+08:00", 115 * time.Second},
		{"cut to minutes, with a zone of four digits", "2026-01-02 11:05 +0800", 115 * time.Second},
		{"cut to minutes, with a zone of two digits", "2026-01-02T11:05+08", 115 * time.Second},
		{"cut to minutes, without a zone", "2026-01-02T03:05", none},
		{"cut to the next hour", "2026-01-02T04Z", 55*time.Minute + 56*time.Second},
		{"cut to this hour", "2026-01-02T03Z", 55*time.Minute + 55*time.Second},
		{"cut to the last hour", "2026-01-02T02Z", none},
		{"mail", "Fri, 2 Jan 2026 11:04:35 +0800", 31 * time.Second},
		{"mail, cut to minutes", "Fri, 2 Jan 2026 03:05 GMT", 115 * time.Second},
		{"a date of HTTP in UTC", "Fri, 02 Jan 2026 03:04:35 UTC", 31 * time.Second},
		{"JavaScript", "Fri Jan 02 2026 11:04:35 GMT+0800 (China Standard Time)", 31 * time.Second},
		{"Ruby", "Fri Jan  2 03:04:35 +0000 2026", 31 * time.Second},

		{"the second of the answer", date, time.Second},
		{"a day", "86400", day},
		{"more than a day", "86401", day},
		{"ten years", "315360000", day},
		{"next year", "Sat, 02 Jan 2027 03:04:05 GMT", day},
		{"year 9999", "Fri, 31 Dec 9999 23:59:59 GMT", day},
		{"a Go duration of days", "100h", day},

		{"the past", "Fri, 02 Jan 2026 03:04:04 GMT", none},
		{"long past", "Sun, 06 Nov 1994 08:49:37 GMT", none},
		{"ISO 8601, past", "2026-01-02T03:04:04Z", none},
		{"epoch, past", "1767323044", none},
		{"epoch, milliseconds, past", "1767323044000", none},
		{"more than 64 bits", "99999999999999999999999", none},
		{"more than a float", strings.Repeat("9", 400), none},
		{"more than a Go duration", "9999999999h", none},
		{"nothing", "", none},
		{"a word", "soon", none},
		{"negative", "-1", none},
		{"a negative duration", "-1s", none},
		{"plus", "+1", none},
		{"exponent", "1e3", none},
		{"hexadecimal", "0x10", none},
		{"infinity", "Inf", none},
		{"no number", "NaN", none},
		{"underscore", "1_000", none},
		{"comma", "1,5", none},
		{"half a number", "5.", none},
		{"the other half", ".5", none},
		{"digits of another script", "٣", none},
		{"words without a number", "some minutes", none},
		{"words of nothing", "0 seconds", none},
		{"a date of two readings", "02/01/2026 03:04:35", none},
		{"a date for people", "January 2, 2026, 3:04:35 AM", none},
		{"ISO 8601 without a zone", "2026-01-02T03:04:35", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, err := http.ParseTime(date)
				require.NoError(t, err)
				time.Sleep(time.Until(now)) // both clocks are right
				for _, status := range []int{403, 418, 429, 503, 529} {
					resp := answer(status, "", "Retry-After", c.field)
					require.Equal(t, c.want, feedback.RetryAfter(none)(resp), "%d", status)
				}
			})
		})
	}
	require.Equal(t, none, feedback.RetryAfter(none)(answer(429, "")), "no field")
	require.Equal(t, day, feedback.RetryAfter(100*time.Hour)(answer(429, "")), "the fallback is capped")
	require.Equal(t, none, feedback.RetryAfter(none)(&http.Response{StatusCode: 429}), "no fields at all")
}

// TestClocks: a moment is compared with the answer's Date and with the clock here,
// and the shorter time counts.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins in the year 2000
		time.Sleep(300 * time.Millisecond)
		at := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
		for _, date := range []string{"", "yesterday"} {
			resp := answer(429, "", "Date", date, "Retry-After", at)
			require.Equal(t, 30700*time.Millisecond, feedback.RetryAfter(0)(resp))
		}
		require.Equal(t, 31*time.Second, feedback.RetryAfter(0)(answer(429, "", "Retry-After", "1767323075")))

		// Its Date is three hours late.
		date := time.Now().Add(-3 * time.Hour).UTC().Format(http.TimeFormat)
		require.Equal(t, 30700*time.Millisecond, feedback.RetryAfter(0)(answer(429, "", "Date", date, "Retry-After", at)))

		// Date is cut to seconds, and the end is not.
		date = time.Now().UTC().Format(http.TimeFormat)
		millis := strconv.FormatInt(time.Now().Add(2*time.Second).UnixMilli(), 10)
		require.Equal(t, 2*time.Second, feedback.RetryAfter(0)(answer(429, "", "Date", date, "Retry-After", millis)))
	})
}

func TestEndsOfDaysAndMonths(t *testing.T) {
	shanghai := time.FixedZone("Asia/Shanghai", 8*60*60)
	for _, c := range []struct {
		name, date      string
		zone            *time.Location
		midnight, first time.Duration
	}{
		{"UTC", date, nil, 20*time.Hour + 55*time.Minute + 55*time.Second, throttle.MaxPenalty},
		{"Shanghai", date, shanghai, 12*time.Hour + 55*time.Minute + 55*time.Second, throttle.MaxPenalty},
		{"the last day", "Sat, 31 Jan 2026 23:00:00 GMT", nil, time.Hour, time.Hour},
		{"the next month has begun", "Sat, 31 Jan 2026 23:00:00 GMT", shanghai, 17 * time.Hour, throttle.MaxPenalty},
		{"midnight", "Sat, 31 Jan 2026 00:00:00 GMT", nil, 24 * time.Hour, 24 * time.Hour},
		{"the last second of the year", "Thu, 31 Dec 2026 23:59:59 GMT", nil, time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := answer(200, "", "Date", c.date)
			require.Equal(t, c.midnight, feedback.UntilMidnight(c.zone)(resp))
			require.Equal(t, c.first, feedback.UntilFirst(c.zone)(resp))
		})
	}
}
