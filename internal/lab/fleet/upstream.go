package fleet

import (
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// Headers of requests to an [Upstream].
const (
	// WorkerHeader names the worker that sent a request.
	WorkerHeader = "X-Fleet-Worker"

	// StartHeader says when a request left its limiter, in nanoseconds since the Unix epoch. An [Upstream] counts a request
	// with this header at that time, and not on its arrival: the test is then about the limiter and not about the stalls of
	// the machine, or of a worker that is stopped, on the way from one to the other.
	StartHeader = "X-Fleet-Start"
)

// An Upstream is the API that a fleet must not annoy. It stamps each request on
// arrival, or by its [StartHeader], and at the first arrival that makes more than n within per it refuses
// everything for a while, without a hint for how long. It is safe for
// concurrent use.
type Upstream struct {
	n     int
	per   time.Duration
	ban   time.Duration
	epoch time.Time

	mu       sync.Mutex
	arrivals []Arrival     // in the order of their stamps
	lifted   time.Duration // when the latest ban ends or ended
	bans     int
}

// An Arrival is one request that reached an [Upstream].
type Arrival struct {
	At      time.Duration // since the Upstream was made
	Worker  string        // from [WorkerHeader]
	Refused bool          // it met a ban, or caused one
}

// NewUpstream returns an Upstream that allows n arrivals in any interval of
// length per and bans for the given time.
func NewUpstream(n int, per, ban time.Duration) *Upstream {
	return &Upstream{n: n, per: per, ban: ban, epoch: time.Now()}
}

// ServeHTTP counts a request. It answers 200, or 403 if the request causes a ban or comes during one.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(u.epoch) // first of all: whatever comes later takes time
	if start, err := strconv.ParseInt(r.Header.Get(StartHeader), 10, 64); err == nil {
		at = time.Unix(0, start).Sub(u.epoch)
	}

	if !u.admit(Arrival{At: at, Worker: r.Header.Get(WorkerHeader)}) {
		w.WriteHeader(http.StatusForbidden)
	}
}

// admit records an arrival, and begins a ban if the arrival is one too many. It returns false if the arrival is refused: it
// began a ban or came during one.
func (u *Upstream) admit(a Arrival) bool {
	u.mu.Lock()
	defer u.mu.Unlock()

	// Requests may get here in a different order than they were stamped.
	i := sort.Search(len(u.arrivals), func(i int) bool { return u.arrivals[i].At > a.At })
	u.arrivals = slices.Insert(u.arrivals, i, a)
	if a.At >= u.lifted && u.crowded(i) {
		u.bans++
		u.lifted = a.At + u.ban
	}
	u.arrivals[i].Refused = a.At < u.lifted
	return !u.arrivals[i].Refused
}

// crowded reports whether some interval of length per holds more than n arrivals because of arrival i. Arrivals before the
// end of the latest ban do not count. The mutex is held.
func (u *Upstream) crowded(i int) bool {
	// Look at each n+1 arrivals in a row that have arrival i among them.
	for last := max(i, u.n); last < len(u.arrivals); last++ {
		first := last - u.n
		if first > i {
			return false
		}
		if u.arrivals[first].At >= u.lifted && u.arrivals[last].At-u.arrivals[first].At < u.per {
			return true
		}
	}
	return false
}

// Arrivals returns a copy of all arrivals until now, earliest first.
func (u *Upstream) Arrivals() []Arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.arrivals)
}

// Epoch returns when the Upstream was made, since the Unix epoch.
func (u *Upstream) Epoch() time.Duration { return time.Duration(u.epoch.UnixNano()) }

// Bans returns how many bans there were.
func (u *Upstream) Bans() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bans
}

// Worst returns the most arrivals, refusals included, in any interval of
// length per.
func (u *Upstream) Worst() int {
	return stat.Most(times(u.Arrivals(), func(a Arrival) time.Duration { return a.At }), u.per)
}

// Useful returns the share of the quota between from and to that was answered
// with 200; see [Used].
func (u *Upstream) Useful(from, to time.Time) float64 {
	var answered []time.Duration
	for _, a := range u.Arrivals() {
		if !a.Refused {
			answered = append(answered, a.At)
		}
	}
	return stat.Used(answered, from.Sub(u.epoch), to.Sub(u.epoch), u.n, u.per)
}

// PerWorker returns how many requests of each worker were answered with 200.
func (u *Upstream) PerWorker() map[string]int {
	count := map[string]int{}
	for _, a := range u.Arrivals() {
		if !a.Refused {
			count[a.Worker]++
		}
	}
	return count
}
