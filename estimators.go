package throttle

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// now is the time since the process began.
func now() time.Duration { return acquire.Now() }

// A decayingMax is about the longest of the durations that were added lately. Many goroutines may
// update it at once.
type decayingMax struct{ nanos atomic.Int64 }

func (m *decayingMax) get() time.Duration { return time.Duration(m.nanos.Load()) }

// add sets the maximum to d if d is longer. A shorter d makes the maximum shorter by a 256th; a
// maximum below a millisecond becomes 0, because it is not worth keeping.
func (m *decayingMax) add(d time.Duration) {
	old := m.get()
	next := max(d, old-old/256)
	if next < time.Millisecond {
		next = 0
	}
	if next != old {
		m.nanos.Store(int64(next))
	}
}

// A dialEstimator estimates how long requests to each host take to get a connection,
// so that a request can be handed to the base that much before its start and be
// ready in time. The estimate only saves quota: the pre-write check keeps the
// promise.
type dialEstimator struct {
	hosts [64]dialPlace
}

// A dialPlace is the place of all hosts with the same hash. It has what is known of the host that
// was dialled last.
type dialPlace struct{ atomic.Pointer[hostDials] }

type hostDials struct {
	host    string
	longest decayingMax
	silent  atomic.Bool // the base does not call the hooks of httptrace
}

// longestDial bounds how long before its start a request is handed to the base, which holds a
// connection for the request from then on.
const longestDial = time.Second

var dialSeed = maphash.MakeSeed()

// place returns the place of a host.
func (e *dialEstimator) place(host string) *dialPlace {
	return &e.hosts[maphash.String(dialSeed, host)%uint64(len(e.hosts))]
}

// usualDial returns how long before its start a request to host should be handed to the
// base; 0 if the base usually has an idle connection, if nothing is known of the host, or if the
// base calls no hooks.
func (p *dialPlace) usualDial(host string) time.Duration {
	t := p.Load()
	if t == nil || t.host != host || t.silent.Load() {
		return 0
	}
	return t.longest.get()
}

// add notes how long the base took to get a connection to host. A reused connection counts as 0:
// it needed no dialling, and a request that is handed over early keeps it from other requests.
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

// markSilent notes that the base got an answer from host without a call of gotConn. No pre-write
// check would stop a request that is handed to such a base early, so usualDial is 0 then.
func (p *dialPlace) markSilent(host string) {
	if t := p.Load(); t != nil && t.host == host {
		t.silent.Store(true)
	}
}
