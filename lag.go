package throttle

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A lag is how long a store's answers take: a mean of them, but not much more
// than the shortest of the last few. So the mean is believed of a store that is
// far away, and of one that is slow for long. A hiccup counts for nothing, and a
// slow store that is fast again is known to be with its first answer. It is a
// guess: too little costs a start that is taken anew, but too much costs quota,
// and a queue of starts that were given much room lasts for longer than what
// made them need it.
type rttEstimator struct {
	believed atomic.Int64 // what is believed

	mu      sync.Mutex
	mean    time.Duration
	samples [rttSamples]time.Duration
	seen    int           // how many answers there were
	lastAt  time.Duration // when the last of them did
}

const (
	// lately is how many answers in a row must be slow before that is
	// believed: a store that needs a second for each has been slow for so many
	// seconds then.
	rttSamples = 6

	// muchMore is how many times the shortest of them is much more than it. What
	// is less than DefaultJitter is not: it is no hiccup, and costs little.
	outlierFactor = 4
)

func (e *rttEstimator) get() time.Duration { return time.Duration(e.believed.Load()) }

// note learns from an answer that came just now and was on its way for took.
// Callers share answers, and a hiccup holds up all that are on their way. So an
// answer that was on its way with the last one, for most of the time, tells
// nothing new. Nor does one that took no time: it came from memory.
func (e *rttEstimator) add(took time.Duration) {
	if took <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	came := now()
	if e.seen > 0 && came-took/2 < e.lastAt {
		return
	}
	e.lastAt = came
	e.samples[e.seen%rttSamples] = took
	e.seen++
	most := max(outlierFactor*slices.Min(e.samples[:min(e.seen, rttSamples)]), DefaultJitter)
	if took < e.mean {
		e.mean = min(e.mean, most) // what was not believed is forgotten
	}
	e.mean += (took - e.mean) / 4
	e.believed.Store(int64(min(e.mean, most)))
}
