package dashscope

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// said is the penalty of the 429s with some codes, in either form of the API.
func said(lasts map[string]time.Duration) feedback.Penalty {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.Codes{
		Fields: []string{"code", "error.code"}, Lasts: lasts, End: feedback.RetryAfter(0),
	}.Penalty)
}

// tokensRefused is the penalty of the refusals that are about tokens.
var tokensRefused = said(map[string]time.Duration{
	"Throttling.AllocationQuota": time.Minute, "insufficient_quota": time.Minute,
})

// noMoney knows the 429s that are no refusals: they stay until the bill is paid.
var noMoney = said(map[string]time.Duration{
	"PrepaidBillOverdue": feedback.NotRefused, "PostpaidBillOverdue": feedback.NotRefused, "CommodityNotPurchased": feedback.NotRefused,
})

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Penalty {
	return feedback.First(
		noMoney,
		tablerow.WithoutDenials(feedback.First(
			tablerow.PenaltyIfCharged(tokens, said(map[string]time.Duration{
				"Throttling.AllocationQuota": feedback.NotRefused, "insufficient_quota": feedback.NotRefused,
			})),
			said(map[string]time.Duration{
				"Throttling.RateQuota": time.Minute, "LimitRequests": time.Minute, "limit_requests": time.Minute,
				"Throttling.BurstRate": time.Second, "limit_burst_rate": time.Second,
			}),
			feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.RetryAfter(time.Second)),
		)),
		tablerow.Outage(),
	)
}
