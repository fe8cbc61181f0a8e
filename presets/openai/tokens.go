package openai

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
)

// tokens says what requests cost the row of tokens.
type tokens struct {
	o       Options
	key     func(*http.Request) string
	learns  bool               // Options.Cost is the default
	written feedback.Estimates // what requests take beyond what they send, for each key
}

// cost is what a request is estimated to cost. One that reserves no tokens for its answer is
// expected to be answered as those before it.
func (t *tokens) cost(r *http.Request) int {
	n := t.o.Cost(r)
	if t.learns && n > 0 && llm.Reserved(r) == 0 {
		n += t.written.Cost(t.key(r), 0)
	}
	return t.atMost(n)
}

// settle returns the usage that the answer tells.
func (t *tokens) settle(resp *http.Response) int { return t.usage().Settled(resp, usage.Settle(resp)) }

// usage is how answers and streams tell their usage.
func (t *tokens) usage() llm.Usage {
	return llm.Usage{Told: told, Count: t.count, Booked: t.cost}
}

// told returns the usage that a JSON text tells; below 0 if it does not.
func told(data []byte) int {
	if n, ok := usage.In(data); ok {
		return n
	}
	return -1
}

// count counts the usage, but not less than was reserved: OpenAI does not give that back either.
func (t *tokens) count(r *http.Request) llm.Count {
	reserved, sent, key := t.atMost(llm.Reserved(r)), llm.Sent(r), t.key(r)
	return func(used int, inFlight time.Duration) int {
		if t.learns && reserved == 0 {
			t.written.Settled(key, max(0, used-sent), inFlight)
		}
		return max(used, reserved)
	}
}

func (t *tokens) atMost(tokens int) int { return min(tokens, cmp.Or(t.o.Tokens, llm.Unpublished)) }
