package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// figures sum up a record. Counts are for each start, or for each second.
type figures struct {
	Starts    float64 // in a second, of each upstream
	Used      float64 // of the starts that the limit and its jitter allow
	Worst     int     // the most starts of one upstream in one interval of a second
	Calls     float64 // of scripts, for a start
	Published float64 // messages, for a start
	P50, P99  time.Duration
	Longest   time.Duration
	Jain      float64       // between callers in a closed loop
	load      redissim.Load // of all servers, in a second and for each upstream
}

// jitter is how much longer a window is by default, so that starts may be late by as much.
const jitter = 35 * time.Millisecond

// figures adds a record up.
func (r *record) figures() (f figures) {
	var waits []time.Duration
	starts, used, fair := 0, 0.0, 0.0
	for _, samples := range r.Samples {
		var served []time.Duration
		var counted []fleet.Sample
		for _, s := range samples {
			if s.OK {
				served = append(served, s.Served)
			}

			if s.Served >= r.from && s.Served < r.to && s.OK {
				starts++
				waits = append(waits, s.Served-s.Asked)
			}

			if s.Served >= r.from {
				counted = append(counted, s)
			}
		}

		f.Worst = max(f.Worst, stat.Most(served, time.Second))
		used += stat.Used(served, r.from, r.to, r.PerSecond, time.Second)
		fair += fleet.Jain(counted)
	}

	n, seconds := float64(len(r.Samples)), r.Length.Seconds()
	f.Starts = float64(starts) / n / seconds
	f.Used = used / n * (1 + jitter.Seconds())
	if r.Callers > 0 {
		f.Jain = fair / n
	}

	f.P50, f.P99, f.Longest = stat.Quantile(waits, 0.5), stat.Quantile(waits, 0.99), stat.Quantile(waits, 1)
	var all redissim.Load
	for _, l := range r.Loads {
		all = all.Plus(l)
	}

	f.load = all
	f.Calls = float64(all.Calls) / float64(max(starts, 1))
	f.Published = float64(all.Published()) / float64(max(starts, 1))

	return f
}
