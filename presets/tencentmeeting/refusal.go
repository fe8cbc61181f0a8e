package tencentmeeting

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// said is the penalty of the answers with a code: for the Retry-After, or until the end, or for
// lasts.
func said(code string, lasts time.Duration, end ...feedback.Reader) feedback.Reader {
	return feedback.Codes{
		Fields: []string{"error_info.error_code"}, Lasts: map[string]time.Duration{code: lasts},
		End: feedback.First(feedback.RetryAfter(0), feedback.First(end...)),
	}.Answer
}

var (
	dayRefused      = said("190311", 24*time.Hour, feedback.UntilMidnight(beijing))
	endpointRefused = said("190313", time.Minute)
	createRefused   = said("500029", 10*time.Minute)
)

// minuteRefused is the penalty of the refusals that are about all calls of a minute.
func minuteRefused() feedback.Reader {
	return feedback.First(
		said("190310", time.Minute),
		said("1903*", 0), // a refusal of a different row
		said("500029", 0),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
