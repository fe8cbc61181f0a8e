package spapi

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// refused closes an empty bucket until the next request has flowed in.
func refused(l throttle.Limit) feedback.Reader {
	usual := l.Per() / time.Duration(max(l.N(), 1))
	return feedback.First(
		feedback.When{Status: []int{429}}.Then(feedback.First(
			feedback.RetryAfter(0), atRate, feedback.For(usual),
		)),
		tablerow.Outage(),
	)
}

// atRate is how long a request takes to flow in, by the rate in the answer, or 0 without a rate.
func atRate(resp *http.Response) throttle.Answer {
	rate, err := strconv.ParseFloat(resp.Header.Get("x-amzn-RateLimit-Limit"), 64)
	if err != nil || !(rate > 0) { // nor NaN
		return throttle.Answer{}
	}
	return throttle.Refused(time.Duration(math.Ceil(min(float64(time.Second)/rate, float64(throttle.MaxPenalty)))))
}
