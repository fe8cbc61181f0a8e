package benchmarks

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// BenchmarkUpstream is an API that bans its callers for five seconds after one
// request too many in any second. Each request is up to 30 ms on its way
// there, so what is exact at the start need not be exact at the arrival.
func BenchmarkUpstream(b *testing.B) {
	eachContender(b, func(b *testing.B, c contender) {
		r := runFleet(b, c, fleet.Config{
			Redis: newServer(b).pooled(), Limit: "40/s",
			Delay: 30 * time.Millisecond, Ban: 5 * time.Second,
		})
		b.ReportMetric(float64(r.Bans), "bans")
		b.ReportMetric(100*r.Useful, "useful-%")
		b.ReportMetric(float64(r.ArrivalsWorst), "most-arrivals/s")
	})
}
