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
type dials struct {
	hosts [64]atomic.Pointer[dialTime] // a host that comes later displaces one with the same hash
}

type dialTime struct {
	host   string
	usual  recent
	silent atomic.Bool // the base does not tell of its connections
}

// longestDial bounds how early a request is handed to the base: it holds its
// connection from then on.
const longestDial = time.Second

var dialSeed = maphash.MakeSeed()

func (d *dials) of(host string) *atomic.Pointer[dialTime] {
	return &d.hosts[maphash.String(dialSeed, host)%uint64(len(d.hosts))]
}

// usual returns how much earlier than its start a request to host should be
// handed on; 0 if connections are at hand, or nothing is known.
func (d *dials) usual(host string) time.Duration {
	t := d.of(host).Load()
	if t == nil || t.host != host || t.silent.Load() {
		return 0
	}
	return t.usual.get()
}

// took learns from one connection. Of one that was used before nothing had to be dialled:
// a request that is handed on early only keeps it from others.
func (d *dials) took(host string, took time.Duration, reused bool) {
	place := d.of(host)
	t := place.Load()
	if t == nil || t.host != host {
		t = &dialTime{host: host}
		place.Store(t)
	}
	if reused {
		took = 0
	}
	t.usual.noteMost(min(took, longestDial))
}

// silent notes that a request to host was answered and the base never told of
// a connection: nothing would stop it at its start if it were handed on early.
func (d *dials) silent(host string) {
	if t := d.of(host).Load(); t != nil && t.host == host {
		t.silent.Store(true)
	}
}
