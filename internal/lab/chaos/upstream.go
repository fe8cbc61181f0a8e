package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// serviceTime is how long the upstream takes for a slow request.
const serviceTime = 100 * time.Millisecond

// An upstream counts arrivals and requests in flight.
type upstream struct {
	counts *fleet.Upstream
	server *httptest.Server

	mu      sync.Mutex
	flights []flight
	refuse  *refusal // for the next request under the window, or nil
}

// A flight is one slow request. Its times count from the Unix epoch.
type flight struct {
	call     string
	from, to time.Duration
}

// A refusal is an answer of 429 that is held back.
type refusal struct {
	retryAfter string        // its field Retry-After
	caught     chan struct{} // closed when a request gets it
	answer     chan struct{} // closed when the answer may leave
}

func newUpstream() *upstream {
	const never = -time.Hour // a ban that is over before it begins: it counts, and lets everybody pass
	u := &upstream{counts: fleet.NewUpstream(window, time.Second, never)}
	u.server = fleet.Serve(u, 0)
	return u
}

// ServeHTTP counts a request under the window, and answers it with a refusal if refuseNext has prepared one. It holds any
// other slow request for serviceTime, and records its flight.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := fleet.Now()
	if strings.HasPrefix(r.URL.Path, "/pull/") {
		u.counts.ServeHTTP(w, r)
		if held := u.next(); held != nil {
			close(held.caught)
			<-held.answer
			w.Header().Set("Retry-After", held.retryAfter)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
	}

	if strings.HasSuffix(r.URL.Path, "/slow") {
		sleep(r.Context(), serviceTime)

		// Record the end before the answer is written: from then on the fleet may use the slot again.
		u.landed(flight{r.Header.Get(callHeader), from, fleet.Now()})
	}
}

// landed records a flight that has ended.
func (u *upstream) landed(f flight) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flights = append(u.flights, f)
}

// refuseNext prepares a refusal for the next request under the window, with that Retry-After. The caller closes the
// refusal's answer to let it leave.
func (u *upstream) refuseNext(retryAfter string) *refusal {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refuse = &refusal{retryAfter: retryAfter, caught: make(chan struct{}), answer: make(chan struct{})}
	return u.refuse
}

// next takes the refusal that waits for a request, or nil.
func (u *upstream) next() *refusal {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.refuse
	u.refuse = nil
	return taken
}

// An arrival is a request under the window.
type arrival struct {
	at     time.Duration // since the Unix epoch
	member string
}

// arrivals returns all arrivals under the window until now, in order.
func (u *upstream) arrivals() []arrival {
	var all []arrival
	epoch := u.counts.Epoch()
	for _, a := range u.counts.Arrivals() {
		member, _, _ := strings.Cut(a.Worker, "/")
		all = append(all, arrival{epoch + a.At, member})
	}
	return all
}

// inFlight returns the slow requests that have ended; calls are by ID. A request whose call failed counts as in flight
// until the call returned: the upstream notices the end later, which is not the fleet's doing.
func (u *upstream) inFlight(calls map[string]call) []flight {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Clone(u.flights)
	for i := range all {
		if c, ok := calls[all[i].call]; ok && c.Err != "" {
			all[i].to = max(all[i].from, min(all[i].to, c.Returned))
		}
	}
	return all
}
