package throttle

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle/internal/peek"
)

// codings are those that upstreams are known to use and nobody here can decode.
// Others are not named: their name is the upstream's own text.
var codings = map[string]bool{"br": true, "zstd": true, "compress": true}

// legible tells the observer, once for each policy, that a function of the policy
// wanted to look at an answer in a coding that nobody here can read.
func (r *roundTrip) reportIllegible(p *compiledPolicy, c *Charge, resp *http.Response) {
	coding := peek.Refused(resp)
	if coding == "" || r.observe == nil || p.illegibleReported.Swap(true) {
		return
	}
	if !codings[coding] {
		coding = "an unknown coding"
	}
	err := fmt.Errorf("throttle: policy %q cannot look at answers in %s: let Accept-Encoding be unset, or gzip", p.Name, coding)
	r.observe(r.req.Context(), eventOf(Illegible, c, 0, err))
}
