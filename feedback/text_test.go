package feedback_test

import (
	"encoding/json"
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
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

var beijing = time.FixedZone("Asia/Shanghai", 8*60*60)

// printedEnd is how DingTalk prints the end of a refusal: node-dingtalk#32, and
// in newer words in public code of 2026.
var printedEnd = feedback.Printed{
	Fields:  []string{"sub_msg", "errmsg"},
	Pattern: regexp.MustCompile(`(?:处罚|限制)将在 *(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) *结束`),
	As:      feedback.At(time.DateTime, beijing),
}

func TestPrinted(t *testing.T) {
	for _, c := range []struct {
		name    string
		printed feedback.Printed
		body    string
		want    time.Duration
	}{
		{"DingTalk: an end", printedEnd,
			`{"errcode":88,"sub_code":"90002","sub_msg":"…, 限制将在 2026-01-02 11:04:35 结束.","errmsg":"…"}`, 31 * time.Second},
		{"DingTalk: an end in older words", printedEnd,
			`{"errmsg":"…, 处罚将在 2026-01-02 11:04:06 结束.","errcode":90002}`, 2 * time.Second},
		{"DingTalk: in escapes", printedEnd,
			`{"errmsg":"\u9650\u5236\u5c06\u5728 2026-01-02 11:04:06 \u7ed3\u675f","errcode":90002}`, 2 * time.Second},
		{"DingTalk: the same second", printedEnd, `{"errmsg":"限制将在 2026-01-02 11:04:05 结束"}`, time.Second},
		{"DingTalk: an end that has passed", printedEnd, `{"errmsg":"限制将在 2026-01-02 11:04:04 结束"}`, 0},
		{"DingTalk: far away", printedEnd, `{"errmsg":"限制将在 2036-01-02 11:04:04 结束"}`, throttle.MaxPenalty},
		{"DingTalk: no date", printedEnd, `{"errmsg":"限制将在 2026-13-45 11:04:04 结束"}`, 0},
		{"DingTalk: no end", printedEnd, `{"errmsg":"请求总次数超过 1200 次"}`, 0},
		{"DingTalk: minutes", feedback.Printed{Fields: []string{"wait"}, As: feedback.After(time.Minute)},
			`{"status":1111,"wait":5,"source":"x5","punish":"deny"}`, 5 * time.Minute},
		{"Binance: epoch in milliseconds",
			feedback.Printed{Fields: []string{"msg"}, Pattern: regexp.MustCompile(`banned until (\d+)`)},
			`{"code":-1003,"msg":"Way too much request weight used; IP banned until 1767323075000. …"}`, 31 * time.Second},
		{"Discord: seconds", feedback.Printed{Fields: []string{"retry_after"}},
			`{"message":"You are being rate limited.","retry_after":64.57,"global":false}`, 64570 * time.Millisecond},
		{"Discord before v8: milliseconds",
			feedback.Printed{Fields: []string{"retry_after"}, As: feedback.After(time.Millisecond)},
			`{"message":"You are being rate limited.","retry_after":6457,"global":false}`, 6457 * time.Millisecond},
		{"OpenAI: a Go duration in a text",
			feedback.Printed{Fields: []string{"error.message"}, Pattern: regexp.MustCompile(`try again in ([\dhms.]*[hms])`)},
			`{"error":{"message":"Rate limit reached … Please try again in 1m1.724s. Visit …"}}`, 61724 * time.Millisecond},
		{"anywhere", feedback.Printed{Pattern: regexp.MustCompile(`try again in (\d+)`)},
			"<html>é\xff please try again in 30 seconds", 30 * time.Second},
		{"all of what matches", feedback.Printed{Pattern: regexp.MustCompile(`\d+s`)}, "wait 30s", 30 * time.Second},
		{"a group that is not there", feedback.Printed{Pattern: regexp.MustCompile(`wait(?: (\d+))?`)}, "wait", 0},
		{"nowhere", feedback.Printed{Pattern: regexp.MustCompile(`try again in (\d+)`)}, "try again", 0},
		{"no pattern", feedback.Printed{}, "30", 0},
		{"negative", feedback.Printed{Fields: []string{"wait"}}, `{"wait":-5}`, 0},
		{"an exponent", feedback.Printed{Fields: []string{"wait"}}, `{"wait":1e9}`, 0},
		{"huge", feedback.Printed{Fields: []string{"wait"}, As: feedback.After(time.Hour)},
			`{"wait":` + strings.Repeat("9", 300) + `}`, throttle.MaxPenalty},
		{"more than huge", feedback.Printed{Fields: []string{"wait"}, As: feedback.After(time.Hour)},
			`{"wait":` + strings.Repeat("9", 400) + `}`, 0},
		{"weeks", feedback.Printed{Fields: []string{"wait"}, As: weeks}, `{"wait":2}`, throttle.MaxPenalty},
		{"weeks ago", feedback.Printed{Fields: []string{"wait"}, As: weeks}, `{"wait":-2}`, 0},
		{"a word", feedback.Printed{Fields: []string{"wait"}}, `{"wait":"soon"}`, 0},
		{"the first that is there decides", feedback.Printed{Fields: []string{"wait", "ms"}}, `{"ms":5,"wait":"soon"}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := answer(429, c.body)
			requireCloses(t, c.want, c.printed.Answer(resp))
			requireBody(t, c.body, resp)
		})
	}
}

// TestSentence reads what people write for people, and not what tells of a limit.
func TestSentence(t *testing.T) {
	soak.WithoutRace(t)
	for text, want := range map[string]time.Duration{
		"You exceeded your current quota … Please retry in 39.237s.":           39237 * time.Millisecond,
		"Rate limit reached … Please try again in 2m30s. Visit …":              150 * time.Second,
		"Please try again in 6ms.":                                             6 * time.Millisecond,
		"retry after 5 seconds":                                                5 * time.Second,
		"Too many attempts, try again in 1 hour":                               time.Hour,
		"Limit is 20 in 1 minute. Wait 10 more seconds":                        10 * time.Second,
		"100 requests in 1 minute are allowed: retry in 7s":                    7 * time.Second,
		"Limit is 20 in 1 minute":                                              0,
		"Quota exceeded: 100 requests in 1 minute":                             0,
		"You may call again in an hour":                                        time.Hour,
		"Your quota resets in 1 hour and 5 minutes, and not before":            65 * time.Minute,
		"available in 3 minutes, 20 secs":                                      200 * time.Second,
		"Slow down. There is more in 30 second(s).":                            30 * time.Second,
		"Retry after 2026-01-02T03:04:35.250Z":                                 30250 * time.Millisecond,
		"User-rate limit exceeded.  Retry after 2026-01-02 03:05 UTC (in UTC)": 115 * time.Second,
		"Try again at Fri, 02 Jan 2026 03:04:35 GMT.":                          31 * time.Second,
		"Retry after 30":                               30 * time.Second,
		"Retry-After: 30.":                             30 * time.Second,
		"retry after 30 requests":                      0,
		"Please wait 10 samples":                       0,
		"retry 3 times in 10s":                         0,
		"请在30秒后重试":                                     30 * time.Second,
		"操作过于频繁，请 5 分钟后再试":                             5 * time.Minute,
		"请等待 1 小时 30 分钟":                               90 * time.Minute,
		"30s":                                          30 * time.Second,
		"soon":                                         0,
		"try again in 99999 hours":                     throttle.MaxPenalty,
		"try again in -5 seconds":                      5 * time.Second,
		"try again " + strings.Repeat("1s ", 90_000):   throttle.MaxPenalty,
		strings.Repeat("try again ", 10_000) + "in 5s": 5 * time.Second,
		`{"error":{"message":"Please retry in 39.237s.","code":429,"details":[{"retryDelay":"12s"}]}}`: 39237 * time.Millisecond,
		`{"error":{"message":"Please retry after 30","code":429}}`:                                     30 * time.Second,
		`{"retry_after_ms":500}`: 0,
	} {
		name := text[:min(len(text), 60)]
		fields := feedback.Printed{Fields: []string{"error.message"}, As: feedback.Sentence}
		body, err := json.Marshal(map[string]any{"error": map[string]any{"code": 429, "message": text}})
		require.NoError(t, err)
		if len(body) < 64<<10 && text[0] != '{' {
			requireCloses(t, want, fields.Answer(jsonAnswer(429, string(body))), name)
		}

		d, ok := feedback.Sentence(text, time.Unix(1767323045, 0))
		require.Equal(t, want > 0, ok, name)
		require.Equal(t, want, d, name)
	}

	page := feedback.Printed{As: feedback.Sentence}
	resp := answer(429, "<h1>Slow down</h1> Please retry in 39.237s."+strings.Repeat(" ", 5000))
	requireCloses(t, 39237*time.Millisecond, page.Answer(resp), "anywhere in a body")
	requireCloses(t, 0, page.Answer(answer(429, "")))
	requireCloses(t, 0, page.Answer(answer(200, "retry in 5s", "Content-Type", "text/event-stream")))
}

// TestPrintedInAHeader reads a field of the header in place of the body. The longest length counts.
func TestPrintedInAHeader(t *testing.T) {
	const name = "X-Business-Use-Case-Usage"
	usage := feedback.Printed{Header: name, Fields: []string{"*.*.wait", "pause"}, As: feedback.After(time.Minute)}
	plain := feedback.Printed{Header: "x-error", Pattern: regexp.MustCompile(`for (\w+)`)}
	for field, want := range map[string]time.Duration{
		`{"1":[{"call_count":100,"wait":12}]}`:            12 * time.Minute,
		`{"1":[{"wait":0},{"wait":12}],"2":[{"wait":7}]}`: 12 * time.Minute,
		`{"1":[{"wait":"3"},{"wait":"soon"}]}`:            3 * time.Minute,
		`{"pause":20,"1":[{"wait":12}]}`:                  20 * time.Minute,
		`{"1":[{"wait":12}],"pause":20}`:                  20 * time.Minute,
		`{"pause":12,"1":[{"wait":20}]}`:                  20 * time.Minute,
		`{"1":[{"wait":"soon"}],"pause":20}`:              20 * time.Minute,
		`{"1":[{"wait":1e9}]}`:                            0,
		`{"1":[{"wait":-1}]}`:                             0,
		`{"1":[{"wait":999999}]}`:                         throttle.MaxPenalty,
		`{"1":[{"wait":12}],"2":[{"wait":`:                12 * time.Minute,
		`{"1":{"wait":12}}`:                               0,
		`12`:                                              0,
		``:                                                0,
	} {
		resp := jsonAnswer(400, `{"1":[{"wait":99}]}`)
		resp.Header[name] = []string{field}
		requireCloses(t, want, usage.Answer(resp), field)
	}
	for _, field := range []string{`{"short":1,"long":5}`, `{"long":5,"short":1}`} {
		for _, fields := range [][]string{{"short", "long"}, {"long", "short"}} {
			both := feedback.Printed{Header: name, Fields: fields, As: feedback.After(time.Minute)}
			requireCloses(t, 5*time.Minute, both.Answer(answer(400, "", name, field)), "%v in %s", fields, field)
		}
	}

	requireCloses(t, 0, usage.Answer(jsonAnswer(400, `{"1":[{"wait":99}]}`)))
	requireCloses(t, 40*time.Second, plain.Answer(answer(400, "", "X-Error", "closed for 30s", "X-Error", "closed for 40s")))
	requireCloses(t, 50*time.Second, plain.Answer(answer(429, "", "X-Error", "closed for 30s", "Retry-After", "50")))
}

// TestPrintedByAWrongClock: a moment that has passed by the answer's Date, and is hours ahead by this machine's clock, closes for no longer than
// an answer without a moment.
func TestPrintedByAWrongClock(t *testing.T) {
	until := time.Now().Add(3 * time.Hour)
	printed := feedback.Printed{Pattern: regexp.MustCompile(`until (\S+)`), As: feedback.At(time.RFC3339, time.UTC)}
	resp := answer(http.StatusTooManyRequests, "banned until "+until.Format(time.RFC3339), "Date", until.Add(time.Minute).UTC().Format(http.TimeFormat))
	require.LessOrEqual(t, printed.Answer(resp).Close, time.Second)
}

func TestPrintedEndsCodes(t *testing.T) {
	codes := dingtalk
	codes.End = printedEnd.Answer
	requireCloses(t, 31*time.Second, codes.Answer(jsonAnswer(200, `{"errcode":90018,"errmsg":"限制将在 2026-01-02 11:04:35 结束"}`)))
	requireCloses(t, time.Second, codes.Answer(jsonAnswer(200, `{"errcode":90018,"errmsg":"限制"}`)))
	requireCloses(t, 0, codes.Answer(jsonAnswer(200, `{"errcode":0,"errmsg":"限制将在 2026-01-02 11:04:35 结束"}`)))
}

func TestText(t *testing.T) {
	page := feedback.Text{Pattern: regexp.MustCompile(`^\s*<`), Lasts: 5 * time.Minute}
	for _, c := range []struct {
		name string
		text feedback.Text
		body string
		want time.Duration
	}{
		{"a page", page, "\r\n<!doctype html>", 5 * time.Minute},
		{"JSON", page, `{"errmsg":"<html>"}`, 0},
		{"nothing", page, "", 0},
		{"within", feedback.Text{Pattern: regexp.MustCompile(`(?i)too many requests`), Lasts: time.Second},
			"<h1>Too Many Requests</h1>", time.Second},
		{"an end", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: time.Second,
			End: feedback.Printed{Pattern: regexp.MustCompile(`in (\w+)`)}.Answer}, "slow down, come back in 30s", 30 * time.Second},
		{"no end", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: time.Second,
			End: feedback.Printed{Pattern: regexp.MustCompile(`in (\w+)`)}.Answer}, "slow down", time.Second},
		{"behind the first bytes", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: time.Second},
			strings.Repeat(" ", 4093) + "slow", 0},
		{"at their end", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: time.Second},
			strings.Repeat(" ", 4092) + "slow", time.Second},
		{"within more", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: time.Second, Max: 5000},
			strings.Repeat(" ", 4096) + "slow", time.Second},
		{"no pattern", feedback.Text{Lasts: time.Second}, "slow", 0},
		{"too long", feedback.Text{Pattern: regexp.MustCompile(`slow`), Lasts: 1000 * time.Hour}, "slow", throttle.MaxPenalty},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := answer(200, c.body)
			requireCloses(t, c.want, c.text.Answer(resp))
			requireBody(t, c.body, resp)
		})
	}
}

func TestAmount(t *testing.T) {
	usage := feedback.Amount{Fields: []string{"usage.total_tokens", "cost"}, Per: time.Minute}
	for _, c := range []struct {
		name, body string
		cost       int
		left       *throttle.Quota
	}{
		{"a number", `{"id":"x","usage":{"prompt_tokens":3,"total_tokens":12}}`, 12, left(12, time.Minute)},
		{"a text", `{"usage":{"total_tokens":"12"}}`, 12, left(12, time.Minute)},
		{"a fraction", `{"usage":{"total_tokens":12.5}}`, 13, left(12, time.Minute)},
		{"zero", `{"usage":{"total_tokens":0}}`, 0, left(0, time.Minute)},
		{"the other field", `{"cost":7}`, 7, left(7, time.Minute)},
		{"the first field decides", `{"cost":7,"usage":{"total_tokens":"many"}}`, -1, nil},
		{"negative", `{"usage":{"total_tokens":-12}}`, -1, left(0, time.Minute)},
		{"an exponent", `{"usage":{"total_tokens":1e3}}`, -1, nil},
		{"huge", `{"usage":{"total_tokens":99999999999}}`, -1, nil},
		{"null", `{"usage":null}`, -1, nil},
		{"nothing", ``, -1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := jsonAnswer(200, c.body)
			requireCost(t, c.cost, usage.Cost(resp))
			requireQuota(t, c.left, usage.Left, resp)
			requireBody(t, c.body, resp)
		})
	}
	requireQuota(t, nil, usage.Left, jsonAnswer(401, `{"cost":7}`))
	requireQuota(t, nil, feedback.Amount{Fields: []string{"cost"}}.Left, jsonAnswer(200, `{"cost":7}`))
	requireQuota(t, left(7, throttle.MaxPenalty),
		feedback.Amount{Fields: []string{"cost"}, Per: 100 * time.Hour}.Left, jsonAnswer(200, `{"cost":7}`))
	usage.Max = 8
	requireCost(t, -1, usage.Cost(jsonAnswer(200, `{"cost":7}`)))
}

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
