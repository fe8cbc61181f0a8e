package feedback_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// The codes of an upstream that refuses with a 200, and prints in words when the
// refusal ends. A policy has only the codes that close its own budgets.
func ExampleCodes() {
	policy := throttle.Policy{
		Name: "app and API", Match: "oapi.dingtalk.com/", Key: throttle.RawPath, Limit: throttle.PerSecond(20),
		Answer: feedback.Codes{
			Fields: []string{"sub_code", "errcode"},
			Lasts: map[string]time.Duration{
				"90018": time.Second,
				"90006": time.Minute,
			},
			End: feedback.Printed{
				Fields:  []string{"sub_msg", "errmsg"},
				Pattern: regexp.MustCompile(`限制将在 (.+) 结束`),
				As:      feedback.At(time.DateTime, time.FixedZone("Asia/Shanghai", 8*60*60)),
			}.Answer,
		}.Answer,
	}

	fmt.Println(policy.Answer(jsonAnswer(200, `{"errcode":0,"errmsg":"ok"}`)))
	fmt.Println(policy.Answer(jsonAnswer(200, `{"errcode":90018,"errmsg":"…"}`)))
	fmt.Println(policy.Answer(jsonAnswer(200, // and sent at 11:04:05 in Shanghai
		`{"errcode":88,"sub_code":"90006","sub_msg":"限制将在 2026-01-02 11:04:35 结束"}`)))
	// Output:
	// nothing
	// refused, closes for 1s
	// refused, closes for 31s
}

// The order in which GitHub asks its callers to look: Retry-After; the reset, if
// nothing is left; a minute, if it is a secondary limit. Most answers of 403
// are none of these.
func ExampleFirst() {
	read := feedback.When{Status: []int{403, 429}}.Then(feedback.First(
		feedback.RetryAfter(0),
		feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
		feedback.Codes{
			Fields: []string{"message"},
			Lasts:  map[string]time.Duration{"*secondary rate limit*": time.Minute},
		}.Answer,
	))

	fmt.Println(read(answer(403, "", "Retry-After", "7")))
	fmt.Println(read(answer(403, "", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767323075")))
	fmt.Println(read(jsonAnswer(403, `{"message":"You have exceeded a secondary rate limit. …"}`)))
	fmt.Println(read(jsonAnswer(403, `{"message":"Resource not accessible by integration"}`)))
	// Output:
	// refused, closes for 7s
	// refused, closes for 31s, 0 left for 31s
	// refused, closes for 1m0s
	// nothing
}

// What an upstream says is left, for a fleet that is not alone: by name, as the
// IETF's draft has it, or in headers of its own.
func ExampleRateLimit() {
	read := feedback.RateLimit{Name: "daily"}.Answer
	fmt.Println(read(answer(200, "", "RateLimit", `"burst";r=9;t=1, "daily";r=120;t=3600`)))
	fmt.Println(read(answer(200, "", "RateLimit", `"burst";r=9;t=1`)))
	// Output:
	// 120 left for 1h0m0s
	// nothing
}

// Used and size of a bucket that has room for two more each second.
func ExampleHeaders() {
	read := feedback.Headers{Used: "X-Shopify-Shop-Api-Call-Limit", Per: 500 * time.Millisecond}.Answer
	fmt.Println(read(answer(200, "", "X-Shopify-Shop-Api-Call-Limit", "32/40")))
	// Output: 8 left for 500ms
}

// A code that looks like a throttle and is none: waiting does not bring money.
func ExampleNotRefused() {
	read := feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
		feedback.Codes{
			Fields:     []string{"error.code"},
			NotRefused: []string{"insufficient_quota"},
		}.Answer,
		feedback.RetryAfter(time.Second),
	))
	fmt.Println(read(jsonAnswer(429, `{"error":{"code":"rate_limit_exceeded"}}`)))
	fmt.Println(read(jsonAnswer(429, `{"error":{"code":"insufficient_quota"}}`)))
	// Output:
	// refused, closes for 1s
	// not refused
}

// What a request has truly cost, told by its answer.
func ExampleAmount() {
	read := feedback.Amount{Fields: []string{"usage.total_tokens"}}.Cost
	fmt.Println(read(jsonAnswer(200, `{"usage":{"prompt_tokens":9,"total_tokens":12}}`)))
	fmt.Println(read(jsonAnswer(200, `{"id":"x"}`)))
	// Output:
	// cost 12
	// nothing
}

// Some upstreams refuse with a code in the body of a 200. The function looks at
// the first bytes, and the caller still reads all of them.
func ExamplePeekBody() {
	read := func(resp *http.Response) throttle.Answer {
		head, err := feedback.PeekBody(resp, 1024)
		if err != nil || !bytes.Contains(head, []byte(`"errcode":130101`)) {
			return throttle.Answer{}
		}
		return throttle.Refused(10 * time.Minute)
	}

	resp := &http.Response{
		StatusCode: http.StatusOK,
		Body:       io.NopCloser(strings.NewReader(`{"errcode":130101,"errmsg":"send too fast"}`)),
	}
	fmt.Println(read(resp))

	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output:
	// refused, closes for 10m0s
	// {"errcode":130101,"errmsg":"send too fast"} <nil>
}
