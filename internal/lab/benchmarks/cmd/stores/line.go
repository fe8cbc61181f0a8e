package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

// A line is one of the table.
type line struct {
	way                way
	processes, callers int
	held               bool // somebody reads the tables as they were at the beginning
}

// table returns all lines.
func table() (all []line) {
	for _, w := range ways {
		all = append(all, w.line(4, 16))
	}

	for _, w := range ways {
		if w.shared {
			all = append(all, w.line(16, 16))
		}
	}

	for _, w := range ways {
		if w.shared && (w.place == postgres || w.place == mariaDB) {
			all = append(all, line{w, 4, 16, true})
		}
	}

	for _, w := range ways {
		all = append(all, w.line(1, 1))
	}

	return all
}

// line is a line with n processes, if the way is one for more than one process.
func (w way) line(processes, callers int) line {
	if w.place == memory {
		return line{w, 1, processes * callers, false}
	}
	return line{w, processes, callers, false}
}

func (l line) name() string {
	if l.held {
		return l.way.name + ", a snapshot is held"
	}
	return l.way.name
}

// measure starts the processes and returns their results.
func (l line) measure(ctx context.Context, b *bench.Bench, length time.Duration) *result {
	p := l.way.place
	b.Must(p.empty(ctx))

	if l.held {
		end := p.hold(ctx, b)
		defer func() { b.Must(end()) }()
	}

	all, err := crew.Muster(ctx, role, slices.Repeat([]orders{{l.way.name, p.at, l.callers, length}}, l.processes))
	b.Must(err)
	defer all.Kill()
	b.Must(all.Tell("go"))

	r := &result{length: length, took: make(times)}
	for _, m := range all {
		took := make(times)
		b.Must(m.Hear(&took))
		r.starts = append(r.starts, took.count())
		r.took.merge(took)
	}

	return r
}

// A result sums up the processes of a line.
type result struct {
	length time.Duration
	took   times
	starts []int // of each process
}

// String returns the result's columns of the table.
func (r *result) String() string {
	all := float64(r.took.count())
	text := fmt.Sprintf("%9.0f", all/r.length.Seconds())
	for _, share := range []float64{0.5, 0.99, 0.999, 1} {
		text += fmt.Sprintf(" %9v", r.took.quantile(share))
	}
	if len(r.starts) == 1 {
		return text
	}
	percent := func(starts int) float64 { return 100 * float64(starts*len(r.starts)) / all }
	return text + fmt.Sprintf("   %.0f–%.0f %%", percent(slices.Min(r.starts)), percent(slices.Max(r.starts)))
}
