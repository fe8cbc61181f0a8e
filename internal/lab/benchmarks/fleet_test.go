package benchmarks

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/stat"
)

var (
	load     = flag.Duration("load", 1500*time.Millisecond, "how long each run with a limit that binds is")
	everyone = flag.Bool("everyone", false, "put limits that bind on all contenders, and not only on a few")
)

// A fleet in which 64 wait, wherever they run.
const (
	processes  = 4
	perProcess = 16
)

// starvedAfter is how long nobody should have to wait for a start.
const starvedAfter = 5 * time.Second

// hair is a second that is a little too short: what is above the limit in it is
// not there because somebody woke late.
const hair = 950 * time.Millisecond

// BenchmarkFleet is a limit that binds: how much of it is used, how many starts
// there are in any second, in what order they are and what they cost.
func BenchmarkFleet(b *testing.B) {
	for _, quota := range []int{40, 1000} {
		b.Run(fmt.Sprintf("%d-per-s", quota), func(b *testing.B) {
			eachContender(b, func(b *testing.B, c contender) {
				s := newServer(b)
				before := s.read(b)
				r := runFleet(b, c, fleet.Config{Redis: s.pooled(), Limit: fmt.Sprintf("%d/s", quota)})
				used := s.read(b).since(before)
				reportFleet(b, r, quota)
				b.ReportMetric(100*used.cpu/float64(load.Microseconds()), "redis-cpu-%")
			})
		})
	}
}

// eachContender runs a benchmark once for each, one after the other: one that
// polls would keep the others from waking in time.
func eachContender(b *testing.B, run func(*testing.B, contender)) {
	chosen := contenders()
	if !*everyone {
		chosen = chosen[:few]
	}
	for _, c := range chosen {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				run(b, c)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pooled is the server's URL for clients with enough connections.
func (s *server) pooled() string { return fmt.Sprintf("%s?pool_size=%d", s.URL(), poolSize) }

func runFleet(b *testing.B, c contender, config fleet.Config) fleet.Report {
	b.Helper()
	config.Name, config.Limiter, config.Jitter = "fleet", c.limiter(), c.jitter
	config.Processes, config.Workers, config.Load = processes, perProcess, *load
	r, err := fleet.Run(b.Context(), config)
	require.NoError(b, err)
	return r
}

// reportFleet reports what the workers saw. Where a limiter tells its starts by
// the store's clock, they are counted as well.
func reportFleet(b *testing.B, r fleet.Report, quota int) {
	b.Helper()
	var starts, waits []time.Duration
	starved := 0
	for _, s := range r.Samples {
		waits = append(waits, s.Served-s.Asked)
		if s.OK {
			starts = append(starts, s.Served)
		} else if s.Served-s.Asked > starvedAfter {
			starved++
		}
	}
	require.GreaterOrEqual(b, len(starts), quota, "premise: the limit was reached")
	slices.Sort(waits)
	begin := slices.MinFunc(r.Samples, func(a, b fleet.Sample) int { return int(a.Asked - b.Asked) }).Asked
	used := stat.Used(starts, begin+warmUp(), begin+*load, quota, time.Second)

	b.ReportMetric(100*used, "used-%")
	b.ReportMetric(float64(stat.Most(starts, time.Second)), "most/s")
	b.ReportMetric(float64(stat.Most(starts, hair)), "most/0.95s")
	b.ReportMetric(float64(r.Worst), "most-by-store/s")
	b.ReportMetric(r.Trips, "trips/start")
	b.ReportMetric(100*r.Inversions, "inversions-%")
	b.ReportMetric(r.Jain, "jain")
	b.ReportMetric(seconds(waits[len(waits)*99/100]), "p99-s")
	b.ReportMetric(seconds(r.Longest), "max-s")
	b.ReportMetric(float64(starved), "starved")
}

// warmUp is the part of a run in which what a full bucket gave is not counted
// as use.
func warmUp() time.Duration { return min(2*time.Second, *load/4) }

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
