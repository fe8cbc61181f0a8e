// Package chart draws how many calls arrived in each second as an SVG picture
// that reads well on light and on dark pages.
package chart

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/fleetthrottle/throttle/internal/svg"
)

// A Chart is what the picture shows.
type Chart struct {
	Title    string
	Subtitle string
	Limit    int // the line; what stands above it is drawn as too much
	Series   []Series
	Gap      Gap // is drawn short, so that a long silence leaves room for the rest
}

// A Gap is a time in which nothing happens. The zero value is none.
type Gap struct {
	From, To int // the first second of it, and the first after it
	Name     string
}

// A Series is one row of bars, one for each second.
type Series struct {
	Name   string
	Counts []int
}

// The picture's measures, in its own units.
const (
	width, height            = 860.0, 420.0
	left, right, top, bottom = 56.0, 28.0, 108.0, 88.0
	plotWidth                = width - left - right
	plotHeight               = height - top - bottom
)

// Draw writes the picture.
func (c Chart) Draw(w io.Writer) error {
	p := &picture{seconds: c.seconds(), high: c.high(), gap: c.Gap}
	p.printf(head, width, height, width, height, svg.Escape(c.Title+". "+c.Subtitle))
	p.text(left, 34, "title", "start", c.Title)
	p.text(left, 56, "sub", "start", c.Subtitle)
	p.axes()
	p.silence()
	wide := c.barWidth(p.slot())
	for second := range p.seconds {
		if !p.gap.holds(second) {
			p.bars(c, second, wide)
		}
	}
	p.limit(c.Limit)
	p.legend(c)
	p.printf("</svg>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// seconds is how long the time axis is.
func (c Chart) seconds() int {
	longest := 1
	for _, s := range c.Series {
		longest = max(longest, len(s.Counts))
	}
	return longest
}

// high is where the count axis ends: above the limit and above every bar.
func (c Chart) high() float64 {
	highest := c.Limit
	for _, s := range c.Series {
		for _, n := range s.Counts {
			highest = max(highest, n)
		}
	}
	unit := step(float64(highest))
	return unit * math.Ceil(float64(highest)*1.1/unit)
}

// step is a round number that divides an axis into about five parts.
func step(high float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(high, 1)/5)))
	for _, times := range []float64{1, 2, 5} {
		if high/(unit*times) <= 6 {
			return max(1, unit*times)
		}
	}
	return max(1, unit*10)
}

// at returns the series that have a bar in one second.
func (c Chart) at(second int) []int {
	var there []int
	for i, s := range c.Series {
		if second < len(s.Counts) && s.Counts[second] > 0 {
			there = append(there, i)
		}
	}
	return there
}

// barWidth is how wide every bar can be, so that the fullest second still fits
// into its slot with some air around it.
func (c Chart) barWidth(slot float64) float64 {
	most := 2
	for second := range c.seconds() {
		most = max(most, len(c.at(second)))
	}
	return min(slot*0.84/float64(most), 46)
}

// overflows reports whether any second holds more than the limit.
func (c Chart) overflows() bool {
	for _, s := range c.Series {
		for _, n := range s.Counts {
			if n > c.Limit {
				return true
			}
		}
	}
	return false
}

// A picture is an SVG in the making.
type picture struct {
	strings.Builder
	seconds int
	high    float64
	gap     Gap
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *picture) text(x, y float64, class, anchor, s string) {
	p.printf("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y, class, anchor, svg.Escape(s))
}
