package riot

import (
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// unsaid is for how long a refusal counts that does not say so.
const unsaid = 5 * time.Second

// refused is the penalty of the 429s of one type.
func refused(kind string) feedback.Reader {
	return feedback.When{
		Status: []int{429},
		Header: map[string]string{"X-Rate-Limit-Type": kind},
	}.Then(feedback.RetryAfter(unsaid))
}

// serviceRefused is the penalty of all other refusals.
func serviceRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Header: map[string]string{"X-Rate-Limit-Type": "application"}}.Then(feedback.For(0)),
		feedback.When{Header: map[string]string{"X-Rate-Limit-Type": "method"}}.Then(feedback.For(0)),
		feedback.When{Status: []int{429}}.Then(feedback.RetryAfter(unsaid)),
		tablerow.Outage(),
	)
}

// left returns a reader of the remaining calls in an app's or a method's window: of "100:120" and
// "57:120" they are 43.
func left(whose string, window time.Duration) feedback.Reader {
	return feedback.Headers{
		Limit: "X-" + whose + "-Rate-Limit",
		Used:  "X-" + whose + "-Rate-Limit-Count",
		Per:   window,
	}.Left
}

// leftOfMethod returns readers of the remaining calls in each known window of methods.
func leftOfMethod() (all []feedback.Reader) {
	for _, seconds := range []time.Duration{1, 10, 60, 120, 600} {
		all = append(all, left("Method", seconds*time.Second))
	}
	return all
}
