package waits

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// sharesLimit is so large that the smallest of a hundred shares starts often enough to be measured.
const sharesLimit = 1000

// shares lets a heap of one share, a light share and others, of weights 1 to 8, use one budget.
func shares(t *testing.T) (rows []row) {
	for _, n := range inFull([]int{2, 10, 100}, []int{10}) {
		rows = append(rows, sharesOf(t, n)...)
	}
	return rows
}

// sharesOf plays so many shares: the first asks for a tenth of its part, the second has the heap, and all but the
// first always have callers that wait.
func sharesOf(t *testing.T, n int) []row {
	s, line := newStage(t), lineOf(sharesLimit)
	heap := inFull(10_000, 1000)
	windows := inFull(10, 3)
	from := 3 * line.span
	end := from + time.Duration(windows)*line.span
	weights, sum := make([]int, n), 0
	for i := range weights {
		weights[i] = []int{1, 2, 4, 8}[i%4]
		sum += weights[i]
	}
	part := func(i int) float64 { return line.rate() * float64(weights[i]) / float64(sum) }
	var visits []visit
	comes := func(i int, at time.Duration) { visits = append(visits, visit{came: at, start: never, api: i}) }
	for i := 1; i < n; i++ {
		// What the first leaves goes to the others; an idle budget serves a window at once.
		for range int(1.3 * part(i) * float64(sum) / float64(sum-1) * end.Seconds()) {
			comes(i, time.Duration(len(visits))*time.Microsecond)
		}
	}
	for range heap {
		comes(1, time.Duration(len(visits))*time.Microsecond)
	}
	dice(n).Shuffle(len(visits), func(i, j int) { visits[i].api, visits[j].api = visits[j].api, visits[i].api })
	every := time.Duration(float64(10*time.Second) / part(0))
	for at := time.Second; at < end; at += every {
		comes(0, at)
	}
	slices.SortFunc(visits, func(a, b visit) int { return int(a.came - b.came) })
	l := must(throttle.NewLimiters(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: store.PerSecond(sharesLimit)}},
	}))
	s.play(visits, end, func(ctx context.Context, v *visit) error {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), throttle.Demand{Policy: "api", Share: fmt.Sprint(v.api), Weight: weights[v.api]})
		if err == nil {
			v.start = s.now()
		}
		return err
	})
	s.kept(visits, sharesLimit, time.Second)
	started := between(visits, from, end)
	light := only(started, func(v *visit) bool { return v.api == 0 })
	off := 0.0
	for i := 1; i < n; i++ {
		got := float64(len(only(started, func(v *visit) bool { return v.api == i })))
		want := float64(weights[i]) / float64(sum-weights[0]) * float64(len(started)-len(light))
		off = max(off, (max(got, want)-min(got, want)-1)/want) // starts are whole
	}
	what := fmt.Sprintf("%d shares, %d/s, one has a heap of %d", n, sharesLimit, heap)
	return []row{
		below(what+": a share's part is off by, %", 100*off, 100*offShares),
		atMost(what+": the longest wait of a light share", longest(light), waitShare+time.Duration(float64(time.Second)/part(0))),
		atLeast(what+": used", used(spends(visits), from, end, sharesLimit, line.span), usedShares),
	}
}
