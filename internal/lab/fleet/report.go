package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// settle is how long a fleet may take to come to rest: shares of the quota are
// measured after that.
const settle = 2 * time.Second

// A Report has the results of a run. Shares of the quota and between workers leave
// out the first two seconds.
type Report struct {
	Config Config

	Starts     int            // requests that were let through
	Used       float64        // the share of the quota that they are
	Worst      int            // the most starts of one budget in a window, by the store's clock
	Trips      float64        // round trips to Redis for each start, those still to come included
	Jain       float64        // fairness between workers, see Jain
	Inversions float64        // the share of pairs served in the reverse order, see Inversions
	Overtaken  int            // the pairs among them that had no excuse, see Overtaken
	Longest    time.Duration  // the longest wait
	Events     map[string]int // what throttle's transport told, by kind
	Samples    []Sample       // all calls of all workers

	Arrivals      int     // requests that the upstream saw
	ArrivalsWorst int     // the most in a window
	Bans          int     // how often it banned
	Refused       int     // requests that met a ban
	Useful        float64 // the share of the quota that was answered with 200
}

// report joins the results of all processes of a run that began at begin. It leaves the upstream's part to saw.
func report(c Config, limit throttle.Limit, begin time.Time, results []result) Report {
	r := Report{Config: c, Events: map[string]int{}}
	var samples []Sample

	trips := 0
	for _, one := range results {
		samples = append(samples, one.Samples...)
		trips += one.Trips
		for kind, n := range one.Events {
			r.Events[kind] += n
		}
	}

	var all []time.Duration
	starts := map[string][]time.Duration{}

	booked := 0 // starts that have come, or were still to come at the end
	for _, s := range samples {
		if s.OK {
			all = append(all, s.start())
			starts[s.Key] = append(starts[s.Key], s.start())
		}
		if s.OK || s.Start != 0 {
			booked++
		}
	}

	for _, at := range starts {
		r.Worst = max(r.Worst, stat.Most(at, limit.Per()))
	}

	// The times of all samples are durations since the Unix epoch, so that processes can be compared.
	from := time.Duration(begin.UnixNano())
	end := from + c.Load
	r.Starts = len(all)
	r.Used = stat.Used(all, from+settle, end, limit.N()*max(c.Keys, 1), limit.Per())
	r.Trips = float64(trips) / float64(max(booked, 1))
	r.Inversions, r.Longest = Inversions(samples), Longest(samples)
	r.Jain = Jain(slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return s.Served < from+settle }))
	r.Samples = slices.Clone(samples)

	// Members that leave at the end give back their starts, which later callers may get: no queue is at fault then.
	r.Overtaken = Overtaken(slices.DeleteFunc(samples, func(s Sample) bool { return s.Booked >= end }))
	return r
}

// saw adds the upstream's observations.
func (r *Report) saw(up *Upstream, begin time.Time) {
	arrivals := up.Arrivals()
	r.Arrivals = len(arrivals)
	r.Refused = len(slices.DeleteFunc(arrivals, func(a Arrival) bool { return !a.Refused }))
	r.ArrivalsWorst, r.Bans = up.Worst(), up.Bans()
	r.Useful = up.Useful(begin.Add(settle), begin.Add(r.Config.Load))
}

const row = "| %-24s | %9s | %6d | %6.1f | %5d | %5.2f | %5.3f | %5.2f | %5d | %7s | %8d | %5d | %4d | %6.1f | %v |"

// Header returns the table's head that fits [Report.String].
func Header() string {
	return "| run                      | limit     | starts | used % | worst | trips | Jain  | inv % | overt | longest " +
		"| arrivals | worst | bans | useful | events |\n" +
		"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
}

// String returns the report as one row of a table.
func (r Report) String() string {
	return fmt.Sprintf(row, r.Config.Name, r.Config.Limit, r.Starts, 100*r.Used, r.Worst, r.Trips, r.Jain,
		100*r.Inversions, r.Overtaken, r.Longest.Round(time.Millisecond), r.Arrivals, r.ArrivalsWorst, r.Bans, 100*r.Useful, r.Events)
}
