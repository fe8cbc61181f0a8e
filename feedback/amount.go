package feedback

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// Amount is a number in a JSON body: the cost of the request ([Amount.Cost]), or the budget's
// remaining quota ([Amount.Left]). Fractions are rounded to be safe: a cost up, a quota down. A
// negative quota counts as 0.
type Amount struct {
	// Fields are the paths of the amount, as in [Codes].
	Fields []string

	// Per is how long the remaining quota holds. Only Left needs it: without Per, Left says
	// nothing.
	Per time.Duration

	// Max is how many bytes of the body are read. Defaults to 64 KB, the maximum.
	Max int64
}

// Cost is a [Reader] that takes the amount for the cost of the request.
func (a Amount) Cost(resp *http.Response) throttle.Answer {
	n, ok := a.read(resp)
	if !ok || n < 0 {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithCost(int(math.Ceil(n)))
}

// Meter is a [throttle.Policy.Meter] for bodies that state the cost late: streams, of which the
// last event with the amount counts, and JSON longer than Max. See [Events].
func (a Amount) Meter(resp *http.Response) throttle.Meter {
	return Events(resp, func(data []byte) int {
		if n, ok := a.In(data); ok {
			return n
		}
		return -1
	})
}

// In returns the amount in a JSON text. ok is false if the text has no amount, or a negative
// amount. The text may be truncated.
func (a Amount) In(data []byte) (n int, ok bool) {
	// Nearly all events of a stream are without the amount, and a look for the name is cheap.
	if !slices.ContainsFunc(a.Fields, func(field string) bool { return mayHave(data, field) }) {
		return 0, false
	}

	text, ok := firstFieldOf(jsonscan.Of(data), a.Fields, isAmount)
	amount, _ := amountOf(text)
	if !ok || amount < 0 {
		return 0, false
	}
	return int(math.Ceil(amount)), true
}

// mayHave reports whether a JSON text may have a field: whether the last name of the field's path
// is in the text. A text with escapes may have every name, and an array every number.
func mayHave(data []byte, field string) bool {
	name := field[strings.LastIndexByte(field, '.')+1:]
	return name == "*" || digits(name) || bytes.Contains(data, []byte(name)) || bytes.IndexByte(data, '\\') >= 0
}

// Left is a [Reader] that takes the amount for the budget's remaining quota. It ignores a 401 and
// an answer out of a cache.
func (a Amount) Left(resp *http.Response) throttle.Answer {
	// Without Per the quota would have no end.
	if a.Per <= 0 || !speaks(resp) {
		return throttle.Answer{}
	}
	n, ok := a.read(resp)
	if !ok {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithLeft(throttle.Quota{Left: max(0, int(n)), Reset: min(a.Per, throttle.MaxPenalty)})
}

// read reads the amount out of an answer.
func (a Amount) read(resp *http.Response) (n float64, ok bool) {
	text, ok := firstField(resp, a.Fields, atMost(a.Max, mostBytes), isAmount)
	if !ok {
		return 0, false
	}
	return amountOf(text)
}

// amountOf reads a text as an amount; ok is false if the text is none.
func amountOf(text string) (n float64, ok bool) {
	text, negative := strings.CutPrefix(text, "-")
	n, ok = number(text)
	if negative {
		n = -n
	}
	return n, ok && n <= math.MaxInt32
}

// isAmount reports whether a text is an amount.
func isAmount(text string) bool {
	_, ok := amountOf(text)
	return ok
}
