package feishu

import (
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

// What Feishu answers instead of an answer.
var (
	reset = feedback.First(
		feedback.When{Header: map[string]string{"X-Ogw-Ratelimit-Reset": "0"}}.Penalty(feedback.RetryAfter(time.Second)),
		feedback.Headers{Reset: "X-Ogw-Ratelimit-Reset", Status: []int{400, 429}}.Penalty,
		feedback.RetryAfter(0),
	)

	refused = feedback.First(
		feedback.When{Status: []int{429}}.Penalty(feedback.First(reset, feedback.For(time.Minute))),
		feedback.When{Status: []int{400}}.Penalty(feedback.Codes{
			Fields: []string{"code"},
			Lasts:  map[string]time.Duration{"99991400": time.Minute},
			End:    reset,
		}.Penalty),
	)

	// messageRefused is about one receiver, or about one message.
	messageRefused = feedback.When{Status: []int{400, 429}}.Penalty(feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"230020": time.Second},
		End:    reset,
	}.Penalty)

	overloaded = feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"11232": time.Minute},
	}.Penalty
)
