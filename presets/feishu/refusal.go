package feishu

import (
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What Feishu answers instead of an answer.
var (
	refused = feedback.First(
		feedback.When{Status: []int{429}}.Then(until(time.Minute)),
		feedback.When{Status: []int{400}}.Then(feedback.Codes{
			Fields: []string{"code"},
			Lasts:  map[string]time.Duration{"99991400": time.Minute},
			End:    until(time.Minute),
		}.Answer),
	)

	// messageRefused is about one receiver, or about one message.
	messageRefused = feedback.When{Status: []int{400, 429}}.Then(feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"230020": time.Second},
		End:    until(time.Second),
	}.Answer)

	overloaded = feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"11232": time.Minute},
	}.Answer
)

// until is the penalty of a refusal that says when it ends, or of a window where it does not say.
func until(window time.Duration) feedback.Reader {
	return feedback.First(
		feedback.When{Header: map[string]string{"X-Ogw-Ratelimit-Reset": "0"}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Until(feedback.Headers{Reset: "X-Ogw-Ratelimit-Reset"}),
		feedback.RetryAfter(window),
	)
}
