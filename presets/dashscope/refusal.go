package dashscope

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// said is the penalty of the 429s with some codes, in either form of the API.
func said(lasts map[string]time.Duration) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
		Fields: []string{"code", "error.code"}, Lasts: lasts, End: feedback.RetryAfter(0),
	}.Answer)
}

// tokensRefused is the penalty of the refusals that are about tokens.
var tokensRefused = said(map[string]time.Duration{
	"Throttling.AllocationQuota": time.Minute, "insufficient_quota": time.Minute,
})

// noMoney knows the 429s that are no refusals: they stay until the bill is paid.
var noMoney = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
	Fields:     []string{"code", "error.code"},
	NotRefused: []string{"PrepaidBillOverdue", "PostpaidBillOverdue", "CommodityNotPurchased"},
}.Answer)

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		noMoney,
		tablerow.IfCharged(tokens, said(map[string]time.Duration{
			"Throttling.AllocationQuota": 0, "insufficient_quota": 0,
		})),
		said(map[string]time.Duration{
			"Throttling.RateQuota": time.Minute, "LimitRequests": time.Minute, "limit_requests": time.Minute,
			"Throttling.BurstRate": time.Second, "limit_burst_rate": time.Second,
		}),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
