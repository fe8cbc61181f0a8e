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
func refused(l throttle.Limit) feedback.Penalty {
	usual := l.Per() / time.Duration(max(l.N(), 1))
	return feedback.First(
		feedback.When{Status: []int{429}}.Penalty(feedback.First(
			feedback.RetryAfter(0), atRate, feedback.For(usual),
		)),
		tablerow.Outage(),
	)
}

// atRate is how long a request takes to flow in, by the answer itself; 0 if it
// does not say.
func atRate(resp *http.Response) time.Duration {
	rate, err := strconv.ParseFloat(resp.Header.Get("x-amzn-RateLimit-Limit"), 64)
	if err != nil || !(rate > 0) { // nor NaN
		return 0
	}
	return time.Duration(math.Ceil(min(float64(time.Second)/rate, float64(throttle.MaxPenalty))))
}
