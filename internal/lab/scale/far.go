package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// seedsFar is how often a fleet is simulated at each distance: the use of a limit by
// those who are far away depends on chance.
const seedsFar = 3

// far prints what four nodes use of a limit at several distances from Redis, and how long
// callers wait who find room.
func (r report) far() {
	r.say("\n## Redis far away: four nodes, simulated, %d runs of each, by seeds 1 to %d\n", seedsFar, seedsFar)
	r.say("Each way takes a quarter to three quarters of the distance, at random. Room: half of the limit, at random times.")
	r.say("Full: more callers than the limit, each of which comes again at once; used is of what the limit and its jitter allow.\n")
	r.say("| limit | distance | room: wait p50 | p99 | full: callers | starts/s | used | wait p50 | p99 | most in 1 s |")
	r.say("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, rate := range []int{20, 40, 1000} {
		for _, distance := range []time.Duration{0, 10, 40, 100, 150, 200, 300} {
			s := scene{
				Nodes: 4, Upstreams: 1, PerSecond: rate, Trip: distance * time.Millisecond,
				Settle: 10 * time.Second, Length: time.Minute, Share: 0.5,
			}

			if rate == 1000 {
				s.Length = 10 * time.Second
			}

			room := r.runs(s)
			s.Share, s.Callers = 0, max(8, rate*3/10)
			full := r.runs(s)
			starts := func(f figures) float64 { return f.Starts }
			used := func(f figures) float64 { return 100 * f.Used }
			p50 := func(f figures) time.Duration { return f.P50 }
			p99 := func(f figures) time.Duration { return f.P99 }
			r.say("| %d | %v | %v | %v | %d | %s | %s %% | %v | %v | %d |", rate, s.Trip,
				short(middle(room, p50)), short(middle(room, p99)), s.Nodes*s.Callers, reach(full, starts), reach(full, used),
				short(middle(full, p50)), short(middle(full, p99)),
				slices.Max(each(slices.Concat(room, full), func(f figures) int { return f.Worst })))
		}
	}
}

// runs simulates a scene several times.
func (r report) runs(s scene) (all []figures) {
	for s.Seed = 1; s.Seed <= seedsFar; s.Seed++ {
		all = append(all, played(r.t, r.b, s).figures())
	}
	return all
}

// middle returns the median of a figure.
func middle(all []figures, of func(figures) time.Duration) time.Duration {
	return stat.Quantile(each(all, of), 0.5)
}

// reach returns the least and the most of a figure.
func reach(all []figures, of func(figures) float64) string {
	values := each(all, of)
	return fmt.Sprintf("%.1f to %.1f", slices.Min(values), slices.Max(values))
}

// each returns one figure of all runs.
func each[T any](all []figures, of func(figures) T) (values []T) {
	for _, f := range all {
		values = append(values, of(f))
	}
	return values
}
