package throttle

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// dials remembers how long it takes each host's requests to get a connection,
// so that a request whose start is still to come can be handed to the base that
// much earlier and be ready in time. It is a guess that only saves quota: the
// last look at the grant (journey.connected) keeps the promise.
type dialEstimator struct {
	hosts [64]atomic.Pointer[hostDials] // a host that comes later displaces one with the same hash
}

type hostDials struct {
	host    string
	longest decayingMax
	silent  atomic.Bool // the base does not tell of its connections
}

// longestDial bounds how early a request is handed to the base: it holds its
// connection from then on.
const longestDial = time.Second

var dialSeed = maphash.MakeSeed()

func (e *dialEstimator) of(host string) *atomic.Pointer[hostDials] {
	return &e.hosts[maphash.String(dialSeed, host)%uint64(len(e.hosts))]
}

// usual returns how much earlier than its start a request to host should be
// handed on; 0 if connections are at hand, or nothing is known.
func (e *dialEstimator) usual(host string) time.Duration {
	t := e.of(host).Load()
	if t == nil || t.host != host || t.silent.Load() {
		return 0
	}
	return t.longest.get()
}

// took learns from one connection. Of one that was used before nothing had to be dialled:
// a request that is handed on early only keeps it from others.
func (e *dialEstimator) add(host string, took time.Duration, reused bool) {
	place := e.of(host)
	t := place.Load()
	if t == nil || t.host != host {
		t = &hostDials{host: host}
		place.Store(t)
	}
	if reused {
		took = 0
	}
	t.longest.add(min(took, longestDial))
}

// silent notes that a request to host was answered and the base never told of
// a connection: nothing would stop it at its start if it were handed on early.
func (e *dialEstimator) markSilent(host string) {
	if t := e.of(host).Load(); t != nil && t.host == host {
		t.silent.Store(true)
	}
}
