package throttle

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func now() time.Duration { return time.Since(born) }

// born is when the process began.
var born = time.Now()

// A decayingMax is the longest of some recent durations. Many goroutines may update it
// at once.
type decayingMax struct{ nanos atomic.Int64 }

func (m *decayingMax) get() time.Duration { return time.Duration(m.nanos.Load()) }

// add keeps the longest. Each shorter one takes off a 256th, until less than a
// millisecond is left, which is not worth keeping.
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

// A rttEstimator estimates how long a store's answers take: their mean, but not much
// more than the shortest of the last few. So the mean counts for a store that is far
// away, and for one that is slow for long; a hiccup does not count, and the first fast
// answer ends a slow phase. An estimate that is too small costs a start that is booked
// again. One that is too large costs quota: starts that were given much room stay
// booked after the store is fast again.
type rttEstimator struct {
	estimate atomic.Int64 // the estimate

	mu      sync.Mutex
	mean    time.Duration
	samples [rttSamples]time.Duration
	seen    int           // how many answers have come
	lastAt  time.Duration // when the last one came
}

const (
	// rttSamples is how many answers in a row must be slow before that is
	// believed: a store that needs a second for each has then been slow for as
	// many seconds.
	rttSamples = 6

	// An answer that took outlierFactor times the shortest of them is an outlier,
	// unless it took less than DefaultJitter, which costs little.
	outlierFactor = 4
)

func (e *rttEstimator) get() time.Duration { return time.Duration(e.estimate.Load()) }

// add takes in an answer that came at a time and took so long. Callers share answers,
// and a hiccup delays all that are on their way. So an answer that was on its way
// together with the last one, for most of the time, says nothing new. Neither does
// one that took no time: it came from memory.
func (e *rttEstimator) add(took, came time.Duration) {
	if took <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen > 0 && came-took/2 < e.lastAt {
		return
	}
	e.lastAt = came
	e.samples[e.seen%rttSamples] = took
	e.seen++
	most := max(outlierFactor*slices.Min(e.samples[:min(e.seen, rttSamples)]), DefaultJitter)
	if took < e.mean {
		e.mean = min(e.mean, most) // forget the part that was not believed
	}
	e.mean += (took - e.mean) / 4
	e.estimate.Store(int64(min(e.mean, most)))
}

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
