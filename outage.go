package throttle

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A ruleMemory is what a rule remembers of answers, in this program.
type ruleMemory struct {
	illegible atomic.Bool  // Observe was told of an answer that could not be looked at
	outages   atomic.Int32 // how many answers in a row were a 503
}

// outagesMost is how many answers in a row are a 503 before that is the upstream's
// word and not that of one backend behind its load balancer: of a third of the
// answers, ten in a row come once in 60,000.
const outagesMost = 10

// defaultPenalty is the penalty of a policy that has none of its own: [RetryAfter],
// but a 503 counts only if many in a row were one. Else it is for the caller alone to
// wait.
func (m *ruleMemory) defaultPenalty(resp *http.Response) time.Duration {
	if resp.StatusCode != http.StatusServiceUnavailable {
		m.outages.Store(0)
	} else if m.outages.Add(1) < outagesMost {
		return 0
	}
	return RetryAfter(resp)
}
