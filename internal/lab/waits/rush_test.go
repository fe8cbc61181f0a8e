package waits

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// rush lets a crowd come at once that the limit needs seconds for.
func rush(t *testing.T) []row {
	callers, most := 10_000, lastOfCrowd
	if !*long {
		callers, most = 2000, lastOfCrowd-8*lineOf(1000).span
	}
	l := newLimiter(newStore(t), store.PerSecond(1000))
	must(l.Status(t.Context(), "")) // it is connected
	visits := rushed(callers)
	before := heap()
	s := newStage(t)
	each := make(chan uint64, 1)
	s.at(800*ms, func() { each <- (heap() - before) / uint64(callers) })
	s.play(visits, time.Minute, s.limiter(l))
	waited := only(visits, all)
	what := fmt.Sprintf("%d callers at once, 1000/s, Redis", callers)
	return []row{
		atMost(what+": the last one", last(waited), most).also("%d started", len(waited)).
			knownIn("docs/internals/line.md", last(waited) <= most+300*ms),
		below(what+": heap for each while they wait, bytes", float64(<-each), bytesOfCrowd),
	}
}

// heap returns what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
