package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Amount is a number in a JSON body: what the request has cost, or what is left.
// A fraction is rounded against the caller: a cost up, a rest down.
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
	return -1
}

// Quota is a [throttle.Policy.Quota]: the amount is what is left.
func (a Amount) Quota(resp *http.Response) (q throttle.Quota, ok bool) {
	return throttle.Quota{}, false
}
