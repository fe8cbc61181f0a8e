package feedback_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

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
	requireCloses(t, 0, usage.Answer(jsonAnswer(400, `{"1":[{"wait":99}]}`)))
	requireCloses(t, 40*time.Second, plain.Answer(answer(400, "", "X-Error", "closed for 30s", "X-Error", "closed for 40s")))
	requireCloses(t, 50*time.Second, plain.Answer(answer(429, "", "X-Error", "closed for 30s", "Retry-After", "50")))
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
