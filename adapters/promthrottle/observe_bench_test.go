package promthrottle_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
)

// BenchmarkObserve is what metrics add to a request that nothing holds.
func BenchmarkObserve(b *testing.B) { hotpath.Benchmark(b, promthrottle.New().Observe) }

// BenchmarkBudgets is what it adds to such a request that Budgets is scraped.
func BenchmarkBudgets(b *testing.B) { hotpath.BenchmarkStatuses(b) }
