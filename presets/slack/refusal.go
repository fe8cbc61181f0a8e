package slack

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// refused closes a method. Bodies of refusals are short, so only the beginning of a body is read.
func refused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Minute)),
		feedback.Codes{
			Fields: []string{"error"},
			Lasts:  map[string]time.Duration{"ratelimited": time.Minute},
			End:    feedback.RetryAfter(0),
			Max:    1 << 10,
		}.Answer,
		tablerow.Outage(),
	)
}
