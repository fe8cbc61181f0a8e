package feedback_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

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
					requireCloses(t, c.want, feedback.RetryAfter(none)(resp), "%d", status)
				}
			})
		})
	}
	requireCloses(t, none, feedback.RetryAfter(none)(answer(429, "")), "no field")
	requireCloses(t, day, feedback.RetryAfter(100*time.Hour)(answer(429, "")), "the fallback is capped")
	requireCloses(t, none, feedback.RetryAfter(none)(&http.Response{StatusCode: 429}), "no fields at all")
}

// TestClocks: a moment is compared with the answer's Date and with the clock here,
// and the shorter time counts.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins in the year 2000
		time.Sleep(300 * time.Millisecond)
		at := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
		for _, date := range []string{"", "yesterday"} {
			resp := answer(429, "", "Date", date, "Retry-After", at)
			requireCloses(t, 30700*time.Millisecond, feedback.RetryAfter(0)(resp))
		}
		requireCloses(t, 31*time.Second, feedback.RetryAfter(0)(answer(429, "", "Retry-After", "1767323075")))

		// Its Date is three hours late.
		date := time.Now().Add(-3 * time.Hour).UTC().Format(http.TimeFormat)
		requireCloses(t, 30700*time.Millisecond, feedback.RetryAfter(0)(answer(429, "", "Date", date, "Retry-After", at)))

		// Date is cut to seconds, and the end is not.
		date = time.Now().UTC().Format(http.TimeFormat)
		millis := strconv.FormatInt(time.Now().Add(2*time.Second).UnixMilli(), 10)
		requireCloses(t, 2*time.Second, feedback.RetryAfter(0)(answer(429, "", "Date", date, "Retry-After", millis)))
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
			requireCloses(t, c.midnight, feedback.UntilMidnight(c.zone)(resp))
			requireCloses(t, c.first, feedback.UntilFirst(c.zone)(resp))
		})
	}
}

// TestMidnightsThatAreOdd: a day ends when its date changes, also where clocks are put forward over
// midnight, or back.
func TestMidnightsThatAreOdd(t *testing.T) {
	for _, c := range []struct {
		zone, at string
		want     time.Duration
	}{
		{"America/Santiago", "2026-09-06T02:30:00Z", 90 * time.Minute}, // there is no midnight
		{"America/Santiago", "2026-09-06T03:30:00Z", 30 * time.Minute},
		{"America/Santiago", "2026-09-06T04:00:00Z", 23 * time.Hour},
		{"Africa/Cairo", "2026-04-23T21:30:00Z", 30 * time.Minute},
		{"America/Havana", "2026-11-01T03:30:00Z", 30 * time.Minute}, // there are two
		{"America/Havana", "2026-11-01T04:30:00Z", throttle.MaxPenalty},
		{"Asia/Beirut", "2026-03-28T21:59:59Z", time.Second},
		{"Pacific/Apia", "2011-12-30T09:00:00Z", time.Hour}, // the 30th is left out
		{"America/Sao_Paulo", "2018-11-04T02:59:00Z", time.Minute},
		{"America/Sao_Paulo", "2019-02-17T01:30:00Z", 90 * time.Minute}, // 23:30 comes twice
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		at, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		resp := answer(429, "", "Date", at.Format(http.TimeFormat))
		requireCloses(t, c.want, feedback.UntilMidnight(zone)(resp), "%+v", c)
		require.GreaterOrEqual(t, feedback.UntilFirst(zone)(resp).Close, c.want, "%+v", c)

		resp.Header.Set("Retry-After", "86400")
		requireCloses(t, throttle.MaxPenalty, feedback.UntilMidnight(zone)(resp), "%+v", c)
	}
}

// TestRetryAfterIsObeyed: no reader closes a budget for less than the Retry-After of a 429 asks, but
// what an answer itself says in parts of a second. No reader makes a refusal of what is none.
func TestRetryAfterIsObeyed(t *testing.T) {
	const body = `{"errcode":90018,"money":"money","wait":5.5,"errmsg":"slow, retry in 1.5s"}`
	slow := feedback.Text{Pattern: regexp.MustCompile("slow"), Lasts: time.Second}
	ending := slow
	ending.End = feedback.Printed{Fields: []string{"errmsg"}, As: feedback.Sentence}.Answer
	long := slow
	long.Lasts = 10 * time.Minute
	printed := feedback.Printed{Fields: []string{"wait"}}
	money := feedback.Codes{Fields: []string{"money"}, NotRefused: []string{"money"}}
	other := feedback.Codes{Fields: []string{"errcode"}, Lasts: lasts{"1": time.Second}}
	tooMany := feedback.When{Status: []int{429}}

	for name, c := range map[string]struct {
		penalty               feedback.Reader
		alone, of2, of6, of30 time.Duration
	}{
		"codes":             {dingtalk.Answer, time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second},
		"text":              {slow.Answer, time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second},
		"text for long":     {long.Answer, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		"text with an end":  {ending.Answer, 1500 * time.Millisecond, 1500 * time.Millisecond, 6 * time.Second, 30 * time.Second},
		"printed":           {printed.Answer, 5500 * time.Millisecond, 5500 * time.Millisecond, 5500 * time.Millisecond, 30 * time.Second},
		"for":               {feedback.For(time.Second), time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second},
		"when":              {tooMany.Then(feedback.For(time.Second)), time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second},
		"first":             {feedback.First(other.Answer, slow.Answer), time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second},
		"longest":           {feedback.All(slow.Answer, printed.Answer), 5500 * time.Millisecond, 5500 * time.Millisecond, 6 * time.Second, 30 * time.Second},
		"a code of another": {other.Answer, 0, 0, 0, 0},
		"no refusal":        {money.Answer, no, no, no, no},
		"nothing":           {feedback.For(0), 0, 0, 0, 0},
	} {
		for field, want := range map[string]time.Duration{"": c.alone, "2": c.of2, "6": c.of6, "30": c.of30} {
			requireCloses(t, want, c.penalty(answer(429, body, "Retry-After", field)), "%s: %q", name, field)
		}
		if name != "when" {
			requireCloses(t, c.alone, c.penalty(answer(418, body, "Retry-After", "30")), "%s of another status", name)
		}
	}
}
