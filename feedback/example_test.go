package feedback_test

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// The codes of an upstream that refuses with a 200, and prints in words when the
// refusal ends. A policy has only the codes that close its own budgets.
func ExampleCodes() {
	policy := throttle.Policy{
		Name: "app and API", Match: "oapi.dingtalk.com/", Key: throttle.RawPath, Limit: throttle.PerSecond(20),
		Penalty: feedback.Codes{
			Fields: []string{"sub_code", "errcode"},
			Lasts: map[string]time.Duration{
				"90018": time.Second,
				"90006": time.Minute,
			},
			End: feedback.Printed{
				Fields:  []string{"sub_msg", "errmsg"},
				Pattern: regexp.MustCompile(`限制将在 (.+) 结束`),
				As:      feedback.At(time.DateTime, time.FixedZone("Asia/Shanghai", 8*60*60)),
			}.Penalty,
		}.Penalty,
	}

	fmt.Println(policy.Penalty(jsonAnswer(200, `{"errcode":0,"errmsg":"ok"}`)))
	fmt.Println(policy.Penalty(jsonAnswer(200, `{"errcode":90018,"errmsg":"…"}`)))
	fmt.Println(policy.Penalty(jsonAnswer(200, // and sent at 11:04:05 in Shanghai
		`{"errcode":88,"sub_code":"90006","sub_msg":"限制将在 2026-01-02 11:04:35 结束"}`)))
	// Output:
	// 0s
	// 1s
	// 31s
}

// The order in which GitHub asks its callers to look: Retry-After; the reset, if
// nothing is left; a minute, if it is a secondary limit. Most answers of 403
// are none of these.
func ExampleFirst() {
	penalty := feedback.When{Status: []int{403, 429}}.Penalty(feedback.First(
		feedback.RetryAfter(0),
		feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Penalty,
		feedback.Codes{
			Fields: []string{"message"},
			Lasts:  map[string]time.Duration{"*secondary rate limit*": time.Minute},
		}.Penalty,
	))

	fmt.Println(penalty(answer(403, "", "Retry-After", "7")))
	fmt.Println(penalty(answer(403, "", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767323075")))
	fmt.Println(penalty(jsonAnswer(403, `{"message":"You have exceeded a secondary rate limit. …"}`)))
	fmt.Println(penalty(jsonAnswer(403, `{"message":"Resource not accessible by integration"}`)))
	// Output:
	// 7s
	// 31s
	// 1m0s
	// 0s
}

// What an upstream says is left, for a fleet that is not alone: by name, as the
// IETF's draft has it, or in headers of its own.
func ExampleRateLimit() {
	quota := feedback.RateLimit{Name: "daily"}.Quota
	fmt.Println(quota(answer(200, "", "RateLimit", `"burst";r=9;t=1, "daily";r=120;t=3600`)))
	fmt.Println(quota(answer(200, "", "RateLimit", `"burst";r=9;t=1`)))
	// Output:
	// {120 1h0m0s 0s} true
	// {0 0s 0s} false
}

// Used and size of a bucket that has room for two more each second.
func ExampleHeaders() {
	quota := feedback.Headers{Used: "X-Shopify-Shop-Api-Call-Limit", Per: 500 * time.Millisecond}.Quota
	fmt.Println(quota(answer(200, "", "X-Shopify-Shop-Api-Call-Limit", "32/40")))
	// Output: {8 500ms 0s} true
}

// A code that looks like a throttle and is none: waiting does not bring money.
func ExampleNotRefused() {
	penalty := feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.First(
		feedback.Codes{
			Fields: []string{"error.code"},
			Lasts:  map[string]time.Duration{"insufficient_quota": feedback.NotRefused},
		}.Penalty,
		feedback.RetryAfter(time.Second),
	))
	fmt.Println(penalty(jsonAnswer(429, `{"error":{"code":"rate_limit_exceeded"}}`)) > 0)
	fmt.Println(penalty(jsonAnswer(429, `{"error":{"code":"insufficient_quota"}}`)) > 0)
	// Output:
	// true
	// false
}

// What a request has truly cost, told by its answer.
func ExampleAmount() {
	settle := feedback.Amount{Fields: []string{"usage.total_tokens"}}.Settle
	fmt.Println(settle(jsonAnswer(200, `{"usage":{"prompt_tokens":9,"total_tokens":12}}`)))
	fmt.Println(settle(jsonAnswer(200, `{"id":"x"}`)))
	// Output:
	// 12
	// -1
}
