package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/svg"
)

// The measures of the picture: two plots of calls, and one of waits, below one another.
const (
	pictureWidth       = 860.0
	plotLeft, plotWide = 68.0, pictureWidth - 68.0 - svg.Margin
	plotHigh, plotStep = 112.0, 188.0
	firstPlot          = 118.0
	nameAbove          = 26.0 // how far above its plot
	pictureHigh        = firstPlot + 3*plotStep - 18
)

const pictureRules = `  .name { font-weight: 600 }
  .base { stroke: #8c959f }
  .limit { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .mark { fill: #b35900; text-anchor: end }
  .tick { fill: #59636e; text-anchor: middle }
  .scale { fill: #59636e; text-anchor: end }
  .job { fill: #0969da }
  .user { fill: #1a9e8f }
  .refused { fill: #cf222e }
  .beside { fill: #bf8700 }
`

const pictureDark = `    .base { stroke: #656c76 }
    .limit { stroke: #f0883e }
    .mark { fill: #f0883e }
    .tick, .scale { fill: #9198a1 }
    .job { fill: #4493f8 }
    .user { fill: #3fc7b6 }
    .refused { fill: #f85149 }
    .beside { fill: #d29922 }
`

// A drawing is the picture in the making.
type drawing struct {
	*svg.Drawing
	seconds int // how long the axis of time is
}

// picture draws the calls of each second as the services counted them, and the waits of users.
func (r *report) picture() string {
	var notes []string
	for i, s := range r.sources {
		notes = append(notes, fmt.Sprintf("%s: at most %d of %d calls in any second, %d refused", s.tally.source, most(r.counts[i]), s.policy.Limit.N(), refused(r.counts[i])))
	}
	d := &drawing{svg.New(pictureWidth, pictureHigh, "A job beside users, under the limits of two services", strings.Join(notes, " · "), pictureRules, pictureDark), second(r.lastCall()) + 1}
	for i, s := range r.sources {
		d.calls(firstPlot+float64(i)*plotStep, s.tally.source+": calls in each second", r.counts[i], s.policy.Limit.N())
	}
	d.waits(firstPlot+2*plotStep, r.users)
	return d.String()
}

// x is where a moment lies.
func (d *drawing) x(at time.Duration) float64 {
	return plotLeft + plotWide*at.Seconds()/float64(d.seconds)
}

// axes draws the axes of a plot and its name. Its top stands for a number of something.
func (d *drawing) axes(top float64, name, high string) {
	base := top + plotHigh
	d.Text("name", svg.Margin, top-nameAbove, name)
	d.Line("base", plotLeft, base, plotLeft+plotWide, base)
	d.Text("scale", plotLeft-8, top+5, high)
	d.Text("scale", plotLeft-8, base+4, "0")
	every := int(math.Ceil(float64(d.seconds) / 20))
	for s := 0; s < d.seconds; s += every {
		d.Text("tick", d.x(time.Duration(s)*time.Second), base+18, fmt.Sprint(s))
	}
}

// calls draws the calls of each second: those of the job, of users above, and what was refused.
func (d *drawing) calls(top float64, name string, calls []downstream.Call, limit int) {
	kinds := []string{"job", "user", "refused"}
	counts := make([][3]int, d.seconds)
	high := limit
	for _, c := range calls {
		kind := 0
		switch {
		case c.Refused:
			kind = 2
		case c.OfUser:
			kind = 1
		}
		n := &counts[min(second(c.At), d.seconds-1)]
		n[kind]++
		high = max(high, n[0]+n[1]+n[2])
	}
	d.axes(top, name, fmt.Sprint(high))
	slot := plotWide / float64(d.seconds)
	unit := plotHigh / float64(high)
	for s, n := range counts {
		y := top + plotHigh
		for kind, count := range n {
			y -= unit * float64(count)
			d.Rect(kinds[kind], svg.Box{X: plotLeft + slot*(float64(s)+0.1), Y: y, Width: slot * 0.8, Height: unit * float64(count)})
		}
	}
	y := top + plotHigh - unit*float64(limit)
	d.Line("limit", plotLeft, y, plotLeft+plotWide, y)
	d.Text("mark", plotLeft+plotWide, y-6, fmt.Sprintf("limit: %d in any second", limit))
	d.legend(top-nameAbove, []string{"job", "user", "refused"}, []string{"the job", "users", "refused"})
}

// waits draws each wait of users where its call started.
func (d *drawing) waits(top float64, users []waiting) {
	classes := []string{"user", "beside"}
	var names []string
	longest := 100 * time.Millisecond
	for _, u := range users {
		if lengths := u.lengths(); len(lengths) > 0 {
			longest = max(longest, slices.Max(lengths))
		}
	}
	d.axes(top, "How long users waited", longest.Round(10*time.Millisecond).String())
	for i, u := range users {
		names = append(names, u.who)
		for _, w := range u.all {
			d.Circle(classes[i], min(d.x(w.startedAt), plotLeft+plotWide), top+plotHigh*(1-float64(w.length)/float64(longest)), 3)
		}
	}
	d.Text("tick", plotLeft+plotWide/2, top+plotHigh+38, "second of the job")
	d.legend(top-nameAbove, classes, names)
}

// legend names colours, from the right.
func (d *drawing) legend(y float64, classes, names []string) {
	const letter = 6.6 // about as wide as one is
	x := pictureWidth - svg.Margin
	for i, name := range slices.Backward(names) {
		x -= letter * float64(len(name))
		d.Text("note", x, y, name)
		d.Rect(classes[i], svg.Box{X: x - 18, Y: y - 10, Width: 12, Height: 12, Radius: 2})
		x -= 36
	}
}
