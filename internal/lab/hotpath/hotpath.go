// Package hotpath measures the cost that a library adds to a request that nothing holds.
package hotpath

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
)

// An empty base answers at once, with nothing.
type empty struct{}

// RoundTrip implements [http.RoundTripper].
func (empty) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// Policies is the table of the measurement. Its limit is never reached.
var Policies = []throttle.Policy{{Name: "a", Match: "/", Limit: throttle.PerSecond(1_000_000_000), Jitter: -1}}

// turn is how many requests are sent in one way before the second way has its turn, so that anything
// the machine does meets both.
const turn = 100

// Benchmark sends requests in turns with an observer and without one: see [Compare].
func Benchmark(b *testing.B, observe func(context.Context, throttle.Event)) {
	Compare(b, sender(b, newTransport(observe)), sender(b, newTransport(nil)))
}

// BenchmarkStatuses sends requests in turns through a transport that was asked for its Statuses, and through one that was
// not: see [Compare].
func BenchmarkStatuses(b *testing.B) {
	// One question is enough: from then on the transport notes its budgets for a while.
	asked := newTransport(nil)
	if _, err := asked.Statuses(b.Context()); err != nil {
		b.Fatal(err)
	}
	Compare(b, sender(b, asked), sender(b, newTransport(nil)))
}

// newTransport returns a transport under the table.
func newTransport(observe func(context.Context, throttle.Event)) *throttle.Transport {
	return throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: Policies, Base: empty{}, Observe: observe}))
}

// Compare calls two functions in turns: with does what without does, and one thing more. It
// reports the nanoseconds of a call of without, and how much longer a call of with takes: medians of
// all turns, so that turns in which the machine was busy do not count. It fails if with allocates more.
func Compare(b *testing.B, with, without func()) {
	// Allocations are exact on every machine, so they are judged, and times only reported.
	base := testing.AllocsPerRun(1000, without)
	if more := testing.AllocsPerRun(1000, with) - base; more > 0 {
		b.Errorf("it allocates %v times more", more)
	}

	var took [2][]time.Duration
	for b.Loop() {
		for i, send := range []func(){with, without} {
			begin := time.Now()
			for range turn {
				send()
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}

	b.ReportMetric(0, "ns/op") // of two turns: it says nothing
	b.ReportMetric(median(took[1]), "ns/without")
	b.ReportMetric(median(took[0])-median(took[1]), "ns/more")
}

// median returns the nanoseconds of a call in the median of some turns.
func median(turns []time.Duration) float64 {
	return float64(stat.Quantile(turns, 0.5)) / turn
}

// sender returns a function that sends a request through a transport.
func sender(b *testing.B, t *throttle.Transport) func() {
	req, err := http.NewRequest(http.MethodGet, "https://example.com/", nil)
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := t.RoundTrip(req); err != nil {
			b.Fatal(err)
		}
	}
}
