package anthropic

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
)

// tokens says what requests cost a row of tokens.
type tokens struct {
	limit    int // a minute, or 0 for an unknown limit
	estimate func(*http.Request) int
	count    func(*http.Request) llm.Count
	told     func(data []byte) int // the usage in a JSON text, or -1 if the text has none
}

// cost is a [throttle.Policy.Cost]: the estimate, bounded by the limit.
func (t *tokens) cost(r *http.Request) int {
	return min(t.estimate(r), cmp.Or(t.limit, llm.Unpublished))
}

// settle returns a reader of costs that counts a kind of usage.
func (t *tokens) settle(used feedback.Reader) feedback.Reader { return t.usage().Settled(used) }

// usage says where answers and streams tell their tokens.
func (t *tokens) usage() llm.Usage { return llm.Usage{Told: t.told, Count: t.count, Booked: t.cost} }

// asTold counts the usage, and learns nothing.
func asTold(*http.Request) llm.Count {
	return func(used int, _ time.Duration) int { return used }
}

// whole is the whole of a guess, in thousandths.
const whole = 1000

// input returns the costs under the row of tokens sent, with that limit a minute. The estimate is own or, if that is nil,
// the guess of llm.Sent by the length of the body, times a ratio that is learned for each key: the more of the input is
// cached, the smaller it is.
func input(key func(*http.Request) string, own func(*http.Request) int, limit int) *tokens {
	t := &tokens{limit: limit, estimate: own, count: asTold, told: inputTold}

	// The program's own estimate needs no learning.
	if own != nil {
		return t
	}

	ratios := new(feedback.Estimates)
	t.estimate = func(r *http.Request) int {
		n := llm.Sent(r)

		// An upload sends no tokens.
		if n == 0 {
			return 0
		}
		return max(1, int(float64(n)*float64(ratios.Cost(key(r), whole))/whole))
	}

	t.count = func(r *http.Request) llm.Count {
		k := key(r)
		guess := float64(max(1, llm.Sent(r)))
		return func(used int, inFlight time.Duration) int {
			ratios.Settled(k, int(float64(used)*whole/guess), inFlight)
			return used
		}
	}

	return t
}

// output returns the costs under the row of tokens written, with that limit a minute. The estimate is own or, if that is
// nil, the average of earlier answers of the key, at most max_tokens.
func output(key func(*http.Request) string, own func(*http.Request) int, limit int) *tokens {
	t := &tokens{limit: limit, estimate: own, count: asTold, told: outputTold}

	// The program's own estimate needs no learning.
	if own != nil {
		return t
	}

	averages := new(feedback.Estimates)
	t.estimate = func(r *http.Request) int {
		most := max(1, llm.Reserved(r))
		return min(most, averages.Cost(key(r), most))
	}

	t.count = func(r *http.Request) llm.Count {
		k := key(r)
		return func(used int, inFlight time.Duration) int {
			averages.Settled(k, used, inFlight)
			return used
		}
	}

	return t
}
