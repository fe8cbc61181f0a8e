package shopify

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

var (
	// tooMany closes REST.
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.RetryAfter(time.Second))

	// throttled closes GraphQL.
	throttled = feedback.First(tooMany, feedback.Codes{
		Fields: []string{"errors.*.extensions.code"},
		Lasts:  map[string]time.Duration{"THROTTLED": time.Second},
	}.Penalty)

	// queryCost is null in a refusal.
	queryCost = feedback.Amount{Fields: []string{"extensions.cost.actualQueryCost"}}.Settle

	// pointsLeft are all there is for a second: then the next come in.
	pointsLeft = feedback.Amount{
		Fields: []string{"extensions.cost.throttleStatus.currentlyAvailable"},
		Per:    time.Second,
	}.Quota
)

// callsLeft reads "32/40". What is left of it is all there is until the next
// call leaks out of the bucket.
func callsLeft(calls throttle.Limit) feedback.Quota {
	return feedback.Headers{
		Used: "X-Shopify-Shop-Api-Call-Limit",
		Per:  calls.Per() / time.Duration(calls.N()),
	}.Quota
}
