package acquire

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func Now() time.Duration { return time.Since(born) }

// born is when the process began.
var born = time.Now()

// A rttEstimator estimates how long a store's answers take: their mean, but not much more
// than the shortest of the last few. So the mean counts for a store that is far away or
// slow for long. A hiccup does not count, and the first fast answer ends a slow phase. If
// the estimate is too small, a start is booked again. If it is too large, it costs quota:
// starts with too much room stay booked after the store is fast again.
type rttEstimator struct {
	estimate  atomic.Int64 // in nanoseconds
	deviation atomic.Int64 // by how much answers differ from the mean, on average

	mu      sync.Mutex
	mean    time.Duration
	samples [rttSamples]time.Duration
	seen    int           // how many answers have come
	lastAt  time.Duration // when the last one came
}

const (
	// rttSamples is how many answers in a row must be slow until the estimate believes that the
	// store is slow. A store that needs a second for each answer has then been slow for as many
	// seconds.
	rttSamples = 6

	// An answer that took more than outlierFactor times as long as the shortest of the last
	// rttSamples is an outlier, unless it took less than DefaultJitter, which costs little.
	outlierFactor = 4
)

func (e *rttEstimator) get() time.Duration { return time.Duration(e.estimate.Load()) }

// upper returns an upper bound on nearly all answers: a quarter more than the estimate, or less if
// answers hardly differ.
func (e *rttEstimator) upper() time.Duration {
	return e.get() + min(e.get()/4, 4*time.Duration(e.deviation.Load()))
}

// add takes in how long an answer took and when it arrived. Callers share answers, and a
// hiccup delays all answers that are on their way. So an answer says nothing new if it was
// on its way together with the last answer for most of the time. Neither does an answer
// that took no time: it came from memory.
func (e *rttEstimator) add(took, arrivedAt time.Duration) {
	if took <= 0 {
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	if e.seen > 0 && arrivedAt-took/2 < e.lastAt {
		return
	}

	e.lastAt = arrivedAt
	e.samples[e.seen%rttSamples] = took
	e.seen++
	bound := max(outlierFactor*slices.Min(e.samples[:min(e.seen, rttSamples)]), DefaultJitter)
	if took < e.mean {
		e.mean = min(e.mean, bound) // forget the part above the bound
	}

	e.deviation.Add((int64((took - e.mean).Abs()) - e.deviation.Load()) / 4)
	e.mean += (took - e.mean) / 4
	e.estimate.Store(int64(min(e.mean, bound)))
}

// An overestimate has, for each policy, the settled part of the booked cost, on average of the last
// starts. The zero value knows no policy. Many goroutines may use it at once.
type overestimate struct {
	known    atomic.Bool // some policy is known, so that most callers need not look for theirs
	byPolicy sync.Map    // of *atomic.Int64: the settled part, in units of 1/remainedWhole
}

const (
	remainedWhole  = 1 << 20
	remainedMemory = 16 // how many starts the average covers, about
)

// note notes that the cost of a start under a policy was settled.
func (o *overestimate) note(policy string, booked, settled int) {
	if booked < 1 || settled < 0 {
		return
	}

	v, found := o.byPolicy.Load(policy)
	if !found {
		whole := new(atomic.Int64)
		whole.Store(remainedWhole)
		v, _ = o.byPolicy.LoadOrStore(policy, whole)
		o.known.Store(true)
	}

	// Of two updates at one moment one may be lost, which only makes the average a little older.
	mean := v.(*atomic.Int64)
	old := mean.Load()
	now := remainedWhole * int64(min(settled, booked)) / int64(booked)
	mean.Store(old + (now-old)/remainedMemory)
}

// times returns how many times too high the costs of a policy are, at least 1.
func (o *overestimate) times(policy string) float64 {
	if !o.known.Load() {
		return 1
	}

	v, found := o.byPolicy.Load(policy)
	if !found {
		return 1
	}
	return remainedWhole / float64(max(1, v.(*atomic.Int64).Load()))
}
