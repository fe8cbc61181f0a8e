package feedback

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Amount is a number in a JSON body: what the request has cost, or what is left.
// A fraction is rounded against the caller: a cost up, a rest down. A rest below 0
// is 0: the budget is overdrawn.
type Amount struct {
	// Fields say where, as in [Codes].
	Fields []string

	// Per is for how long what is left is all there is. Only Quota needs it.
	Per time.Duration

	// Max is how many bytes are looked at. Defaults to 64 KB, which is the
	// most.
	Max int64
}

// Settle is a [throttle.Policy.Settle]: the amount is what the request has cost.
func (a Amount) Settle(resp *http.Response) int {
	n, ok := a.read(resp)
	if !ok || n < 0 {
		return -1
	}
	return int(math.Ceil(n))
}

// Quota is a [throttle.Policy.Quota]: the amount is what is left. A 401 and an
// answer out of a cache are ignored.
func (a Amount) Quota(resp *http.Response) (q throttle.Quota, ok bool) {
	if a.Per <= 0 || !speaks(resp) {
		return throttle.Quota{}, false
	}
	n, ok := a.read(resp)
	if !ok {
		return throttle.Quota{}, false
	}
	return throttle.Quota{Left: max(0, int(n)), Reset: min(a.Per, throttle.MaxPenalty)}, true
}

func (a Amount) read(resp *http.Response) (n float64, ok bool) {
	_, ok = firstField(resp, a.Fields, atMost(a.Max, mostBytes), func(text string) (fits bool) {
		text, negative := strings.CutPrefix(text, "-")
		if n, fits = number(text); negative {
			n = -n
		}
		return fits && n <= math.MaxInt32
	})
	return n, ok
}
