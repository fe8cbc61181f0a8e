package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
)

// A chart is how many requests start in each part of a job, and what binds there.
type chart struct {
	Width  int64    `json:"width_ms"` // of a column; 0: less than a millisecond
	Starts []int    `json:"starts"`
	Binds  []string `json:"binds"` // a policy; "": none

	title    string
	policies []string // that bind anywhere, for the legend
	rates    []float64
	width    time.Duration
	end      time.Duration
}

// The size of a chart in a terminal.
const (
	chartColumns = 60
	chartRows    = 8
)

// newChart returns the chart of a timeline until an end; its rows are these policies.
func newChart(l *simulation.Timeline, end time.Duration, of []simulation.Use) chart {
	columns := l.Columns(end, chartColumns)
	c := chart{Width: columns.Width.Milliseconds(), width: columns.Width, end: end, Starts: []int{}, Binds: []string{}, title: "starts a second"}

	bound := make(map[string]bool)
	for i := range columns.Bins {
		b := &columns.Bins[i]
		binds := ""
		if k := b.Binds(); k >= 0 {
			binds = of[k].Policy.Name
		}

		bound[binds] = true
		c.Starts, c.Binds = append(c.Starts, b.Starts), append(c.Binds, binds)
		c.rates = append(c.rates, float64(b.Starts)/columns.Width.Seconds())
	}

	for i := range of {
		if name := of[i].Policy.Name; bound[name] {
			c.policies = append(c.policies, name)
		}
	}

	return c
}

// ceiling is where the scale ends: 1, 2 or 5 times a power of ten.
func (c *chart) ceiling() float64 {
	most := 0.0
	for _, r := range c.rates {
		most = max(most, r)
	}

	if most == 0 {
		return 1
	}

	ten := math.Pow(10, math.Floor(math.Log10(most)))
	for _, k := range []float64{1, 2, 5} {
		if most <= k*ten {
			return k * ten
		}
	}

	return 10 * ten
}

// mark returns the letter of what binds in a column.
func (c *chart) mark(binds string) string {
	for i, p := range c.policies {
		if p == binds {
			return string(rune('a' + i%26))
		}
	}
	return "."
}

// eighths are parts of a character, from below.
var eighths = []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// text draws the chart for a terminal.
func (c *chart) text() string {
	var w strings.Builder
	most := c.ceiling()
	scale := fmt.Sprintf("%g", most)
	pad := strings.Repeat(" ", len(scale))
	fmt.Fprintf(&w, "%s\n", c.title)

	for row := chartRows - 1; row >= 0; row-- {
		label := pad
		if row == chartRows-1 {
			label = scale
		}

		fmt.Fprintf(&w, "%s │", label)
		line := ""
		for _, r := range c.rates {
			line += eighths[int(min(8, max(0, math.Round(r/most*chartRows*8)-float64(8*row))))]
		}

		fmt.Fprintf(&w, "%s\n", strings.TrimRight(line, " "))
	}

	fmt.Fprintf(&w, "%*s └%s\n%s  ", len(scale), "0", strings.Repeat("─", len(c.rates)), pad)
	for _, b := range c.Binds {
		w.WriteString(c.mark(b))
	}

	end := brief(c.end)
	fmt.Fprintf(&w, "\n%s  0s%*s\n", pad, max(len(c.rates)-2, len(end)+1), end)

	for _, p := range c.policies {
		fmt.Fprintf(&w, "%s  %s binds: %s\n", pad, c.mark(p), p)
	}

	return w.String()
}
