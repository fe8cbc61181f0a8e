package throttle

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// A dialEstimator estimates how long requests to each host take to get a connection,
// so that a request can be handed to the base that much before its start and be
// ready in time. The estimate only saves quota: the pre-write check keeps the
// promise.
type dialEstimator struct {
	hosts [64]dialPlace
}

// A dialPlace is the place of all hosts with the same hash. A later host displaces the one
// before.
type dialPlace struct{ atomic.Pointer[hostDials] }

type hostDials struct {
	host    string
	longest decayingMax
	silent  atomic.Bool // the base does not call the hooks of httptrace
}

// longestDial bounds how early a request is handed to the base, which holds a
// connection for it from then on.
const longestDial = time.Second

var dialSeed = maphash.MakeSeed()

// place returns the place of a host.
func (e *dialEstimator) place(host string) *dialPlace {
	return &e.hosts[maphash.String(dialSeed, host)%uint64(len(e.hosts))]
}

// usual returns how much before its start a request to host should be handed to the
// base; 0 if connections are idle, or nothing is known.
func (p *dialPlace) usual(host string) time.Duration {
	t := p.Load()
	if t == nil || t.host != host || t.silent.Load() {
		return 0
	}
	return t.longest.get()
}

// add notes how long one connection took. A connection that was used before needed no
// dialling: handing the request over early would only keep it from others.
func (p *dialPlace) add(host string, took time.Duration, reused bool) {
	t := p.Load()
	if t == nil || t.host != host {
		t = &hostDials{host: host}
		p.Store(t)
	}
	if reused {
		took = 0
	}
	t.longest.add(min(took, longestDial))
}

// markSilent notes that the base got an answer from host without calling the hook for
// a connection. Then no pre-write check would stop a request that is handed over early.
func (p *dialPlace) markSilent(host string) {
	if t := p.Load(); t != nil && t.host == host {
		t.silent.Store(true)
	}
}
