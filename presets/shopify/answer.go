package shopify

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

var (
	// tooMany closes REST.
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))

	// queryCost is null in a refusal.
	queryCost = feedback.Amount{Fields: []string{"extensions.cost.actualQueryCost"}}.Cost

	// What a refusal says of the points: how many the query needs, how many the bucket holds, and how many
	// come back in a second.
	pointsAsked = feedback.Amount{Fields: []string{"extensions.cost.requestedQueryCost"}}.Cost
	bucketSize  = feedback.Amount{Fields: []string{"extensions.cost.throttleStatus.maximumAvailable"}}.Cost
	restoreRate = feedback.Amount{Fields: []string{"extensions.cost.throttleStatus.restoreRate"}}.Cost

	// pointsLeft are all there is for a second: then the next come in.
	pointsLeft = feedback.Amount{
		Fields: []string{"extensions.cost.throttleStatus.currentlyAvailable"},
		Per:    time.Second,
	}.Left
)

// throttled is the penalty of GraphQL.
func (o Options) throttled() feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"errors.*.extensions.code"},
			Lasts:  map[string]time.Duration{"THROTTLED": time.Second},
			End:    feedback.First(feedback.RetryAfter(0), o.untilRestored),
		}.Answer,
		tooMany,
		tablerow.Outage(),
	)
}

// untilRestored is the time until a bucket has the points that a refused query has asked for, or is
// full if it never has that many. It is 0 if the answer does not tell, or nothing is missing.
func (o Options) untilRestored(resp *http.Response) throttle.Answer {
	asked, _ := pointsAsked(resp).Cost()
	perSecond, _ := restoreRate(resp).Cost()
	there, known := pointsLeft(resp).Left()
	if size, told := bucketSize(resp).Cost(); told {
		asked = min(asked, size)
	}
	if perSecond <= 0 || !known || asked <= there.Left {
		return throttle.Answer{}
	}

	restored := points(asked-there.Left, perSecond)

	// Behind a penalty the store fills the bucket from a single point on, so the query waits there for what
	// it is estimated to cost.
	if resp.Request != nil {
		restored -= points(o.Estimate(resp.Request)-1, o.Plan.Points)
	}

	return throttle.Refused(max(restored, time.Millisecond))
}

// points is the time in which n points come back.
func points(n, perSecond int) time.Duration {
	return time.Duration(float64(n) / float64(perSecond) * float64(time.Second))
}

// callsLeft reads "32/40". What is left of it is all there is until the next
// call leaks out of the bucket.
func callsLeft(calls throttle.Limit) feedback.Reader {
	return feedback.Headers{
		Used: "X-Shopify-Shop-Api-Call-Limit",
		Per:  calls.Per() / time.Duration(calls.N()),
	}.Left
}
