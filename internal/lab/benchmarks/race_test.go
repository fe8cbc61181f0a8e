package benchmarks

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A contestant does the same work as the others of its race, in its own way.
type contestant struct {
	name string
	run  func(calls int) error // makes so many calls

	allocs uint64
	rounds []float64 // nanoseconds for a call, round by round
}

// race gives all contestants a turn in each iteration, so that whatever else
// the machine does meets all of them. It reports medians over the rounds: what
// a call of each contestant takes and how many times that of the others the
// first one takes. The latter is the figure to look at. What belongs to all
// contestants together, such as ns/op, would mean nothing and is left out.
func race(b *testing.B, calls int, all ...contestant) {
	b.Helper()
	for i := range all {
		all[i].warmUp(b, calls)
	}
	for first := 0; b.Loop(); first++ {
		for i := range all {
			all[(first+i)%len(all)].round(b, calls)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i := range all {
		all[i].report(b)
		if i > 0 {
			b.ReportMetric(ratio(&all[0], &all[i]), "x/"+all[i].name)
		}
	}
}

// warmUp brings everything into being that later calls find ready, then counts
// allocations: in a round of its own, because counting them disturbs. As in
// package testing, a fraction of one is none.
func (c *contestant) warmUp(b *testing.B, calls int) {
	require.NoError(b, c.run(calls), c.name)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := c.run(calls)
	runtime.ReadMemStats(&after)
	require.NoError(b, err, c.name)
	c.allocs = (after.Mallocs - before.Mallocs) / uint64(calls)
}

func (c *contestant) round(b *testing.B, calls int) {
	start := time.Now()
	err := c.run(calls)
	took := time.Since(start)
	require.NoError(b, err, c.name)
	c.rounds = append(c.rounds, float64(took)/float64(calls))
}

func (c *contestant) report(b *testing.B) {
	b.ReportMetric(median(c.rounds), c.name+"-ns/call")
	b.ReportMetric(float64(c.allocs), c.name+"-allocs/call")
}

// ratio compares two contestants round by round.
func ratio(c, d *contestant) float64 {
	ratios := make([]float64, len(c.rounds))
	for i := range ratios {
		ratios[i] = c.rounds[i] / d.rounds[i]
	}
	return median(ratios)
}

func median[T cmp.Ordered](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// together makes the calls from several goroutines, each an equal share.
func together(goroutines, calls int, call func(i int) error) error {
	share := calls / goroutines
	errs := make([]error, goroutines)
	work := func(g int) {
		for i := g * share; i < (g+1)*share && errs[g] == nil; i++ {
			errs[g] = call(i)
		}
	}
	if goroutines == 1 {
		work(0)
		return errs[0]
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() { work(g) })
	}
	all.Wait()
	return errors.Join(errs...)
}
