package llm

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// FirstAnswer is how many tokens an answer is taken to have that reserves none, until enough answers
// of its key have told: more than most have, so that programs that start together do not send far
// more than the limit before the first answer tells.
const FirstAnswer = 1500

// EnoughAnswers is how many answers must have told before they count for more than FirstAnswer. Of many
// that began together the first to end are short.
const EnoughAnswers = 64

// Costs estimate what requests cost a row of tokens: the tokens that a request sends and reserves, and for a request that
// reserves none an average answer. They learn the average from answers. Costs are safe for concurrent use.
type Costs struct {
	most    int                          // the largest cost
	own     func(*http.Request) int      // the program's own estimate in place of the others, or nil
	combine func(sent, reserved int) int // see Sum and Larger
	key     func(*http.Request) string   // requests of one key have similar answers
	answers feedback.Estimates
}

// NewCosts returns the Costs of a row with a limit. The limit 0 means [Unpublished]. If own is not nil, the program estimates all costs
// itself. Otherwise combine makes the estimate of the tokens that a request sends and reserves, and answers are learned for each key.
func NewCosts(limit int, own func(*http.Request) int, combine func(sent, reserved int) int, key func(*http.Request) string) *Costs {
	return &Costs{cmp.Or(limit, Unpublished), own, combine, key, feedback.Estimates{Least: EnoughAnswers}}
}

// Sum is for an upstream that counts both.
func Sum(sent, reserved int) int { return sent + reserved }

// Larger is for an upstream that counts the larger of the two.
func Larger(sent, reserved int) int { return max(sent, reserved) }

// Cost is a [throttle.Policy.Cost]: the estimated cost of a request, at most the limit, or 0 for a request
// without tokens.
func (c *Costs) Cost(r *http.Request) int {
	reserved := c.reserved(r)
	n := c.known(r, reserved)

	// A request that reserves nothing is expected to have an average answer, unless the program estimates its cost.
	if n > 0 && c.own == nil && reserved == 0 {
		n += c.answers.Cost(c.key(r), firstAnswer(r))
	}
	return c.AtMost(n)
}

// Known returns the part of the estimate that a request itself tells: without the answer that it is expected to get.
func (c *Costs) Known(r *http.Request) int { return c.AtMost(c.known(r, c.reserved(r))) }

// known is Known without an upper bound.
func (c *Costs) known(r *http.Request, reserved int) int {
	if c.own != nil {
		return c.own(r)
	}

	// Uploads have no tokens.
	sent := Sent(r)
	if sent == 0 {
		return 0
	}
	return c.combine(sent, reserved)
}

// reserved returns the tokens that a request reserves, if they count for the estimate.
func (c *Costs) reserved(r *http.Request) int {
	if c.own != nil {
		return 0
	}
	return Reserved(r)
}

// AtMost returns a cost, or the limit if that is less: the upstream, not an estimate, should refuse requests that are too large.
func (c *Costs) AtMost(tokens int) int { return min(tokens, c.most) }

// Usage returns the Usage of a row whose answers state their tokens in the field a. The Costs learn from these answers. least returns the tokens that an
// upstream keeps charged for a request even if its answer takes fewer, because the upstream refunds nothing of an estimate. A nil least means 0.
func (c *Costs) Usage(a feedback.Amount, least func(*http.Request) int) Usage {
	count := func(r *http.Request) Count {
		// Read the request now: the Count must not.
		learn := c.Learn(r)
		floor := 0
		if least != nil {
			floor = c.AtMost(least(r))
		}
		return func(used int, inFlight time.Duration) int {
			learn(used, inFlight)
			return max(used, floor)
		}
	}
	return Usage{Told: Told(a), Count: count, Untold: c.Untold, Booked: c.Cost}
}

// Learn reads a request, and returns a function that learns from the tokens that the request and its answer took
// together. The function takes the request's estimated tokens off, because only answers are learned.
func (c *Costs) Learn(r *http.Request) Learn {
	sent, learn := Sent(r), c.Untold(r)
	return func(used int, inFlight time.Duration) { learn(max(0, used-sent), inFlight) }
}

// Untold is a [Usage.Untold] that learns as if each event had one token. It learns nothing from a request
// that reserves tokens, or whose cost the program estimates.
func (c *Costs) Untold(r *http.Request) Learn {
	// Nothing is expected of an answer for which tokens are reserved, or whose cost the program estimates.
	if c.own != nil || Reserved(r) > 0 {
		return func(int, time.Duration) {}
	}

	key := c.key(r)
	return func(written int, inFlight time.Duration) { c.answers.Settled(key, written, inFlight) }
}

// A Learn learns from the tokens of an answer, and its time in flight.
type Learn = func(tokens int, inFlight time.Duration)

// firstAnswer is the estimated answer to a request before any answer is known. Embeddings and
// moderation verdicts write nothing.
func firstAnswer(r *http.Request) int {
	path := throttle.RawPath(r)
	if strings.HasSuffix(path, "/embeddings") || strings.HasSuffix(path, "/moderations") {
		return 0
	}
	return FirstAnswer
}
