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

// A Chart is the contents of the picture.
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

// head opens the picture. The classes s0, s1 … colour the series; the colours
// can be told apart by colour-blind readers too.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">
<style>
:root { color-scheme: light dark; }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a; }
.back { fill: #ffffff; }
.title { font-size: 19px; font-weight: 600; fill: #1f2328; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.base { stroke: #8c959f; stroke-width: 1; }
.line { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 6 4; }
.mark { fill: #b35900; font-weight: 600; }
.s0 { fill: #0969da; }
.s1 { fill: #1a9e8f; }
.s2 { fill: #8250df; }
.s3 { fill: #bf8700; }
.over { fill: #cf222e; }
.gap { fill: #cf222e; fill-opacity: 0.12; }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1; }
.back { fill: #0d1117; }
.title { fill: #f0f6fc; }
.grid { stroke: #262c36; }
.base { stroke: #656c76; }
.line { stroke: #f0883e; }
.mark { fill: #f0883e; }
.s0 { fill: #4493f8; }
.s1 { fill: #3fc7b6; }
.s2 { fill: #ab7df8; }
.s3 { fill: #d29922; }
.over { fill: #f85149; }
}
</style>
<rect class="back" width="100%%" height="100%%" rx="8"/>
`

// colours is how many classes of series there are.
const colours = 4

// y is the height of a count on the picture.
func (p *picture) y(count float64) float64 { return top + plotHeight*(1-count/p.high) }

// axes draws the grid and both scales.
func (p *picture) axes() {
	for count, unit := 0.0, step(p.high); count <= p.high; count += unit {
		class := "grid"
		if count == 0 {
			class = "base"
		}

		p.rule(class, p.y(count))
		p.text(left-10, p.y(count)+4.5, "tick", "end", fmt.Sprintf("%.0f", count))
	}

	p.text(left, top-14, "axis", "start", "calls in each second")

	every := int(math.Ceil(p.slots() / 20))
	for second := 0; second < p.seconds; second++ {
		if p.labelled(second, every) {
			p.text(p.x(second)+p.slot()/2, height-bottom+20, "tick", "middle", fmt.Sprint(second+1))
		}
	}

	p.text(left+plotWidth/2, height-bottom+40, "axis", "middle", "second of the run")
}

func (p *picture) rule(class string, y float64) {
	p.printf("<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", class, left, left+plotWidth, y, y)
}

// bars draws one second: the series that have anything in it, side by side.
func (p *picture) bars(c Chart, second int, wide float64) {
	there := c.at(second)
	x := p.x(second) + p.slot()/2 - wide*float64(len(there))/2
	for _, i := range there {
		count := c.Series[i].Counts[second]
		p.bar(fmt.Sprintf("s%d", i%colours), x, wide, 0, min(count, c.Limit))
		if count > c.Limit {
			p.bar("over", x, wide, c.Limit, count)
		}
		x += wide
	}
}

// bar draws one column between two counts, with a thin gap to the next.
func (p *picture) bar(class string, x, wide float64, from, to int) {
	gap := min(wide*0.08, 1.5)
	high := p.y(float64(to))
	p.printf("<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%d</title></rect>\n",
		class, x+gap, high, wide-2*gap, p.y(float64(from))-high, to)
}

// limit draws the line that no bar may pass, with its name at the right above
// the line.
func (p *picture) limit(limit int) {
	y := p.y(float64(limit))
	p.rule("line", y)
	p.text(left+plotWidth, y-7, "mark", "end", fmt.Sprintf("limit: %d per second for each API", limit))
}

// legend names the colours, below the picture.
func (p *picture) legend(c Chart) {
	const glyph = 7.1 // about the width of a letter
	x, y := left, height-24
	name := func(class, label string) {
		p.printf("<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"2\"/>\n", class, x, y-10.5)
		p.text(x+18, y, "name", "start", label)
		x += 18 + glyph*float64(len(label)) + 26
	}

	for i, s := range c.Series {
		name(fmt.Sprintf("s%d", i%colours), s.Name)
	}

	if c.overflows() {
		name("over", "above the limit")
	}
}

// gapSlots is how many seconds' room a longer gap takes.
const gapSlots = 4

// holds reports whether a second lies in the gap.
func (g Gap) holds(second int) bool { return second >= g.From && second < g.To }

// drawn is how many seconds' room the gap takes.
func (g Gap) drawn() int { return min(g.To-g.From, gapSlots) }

// slots is for how many seconds the time axis has room.
func (p *picture) slots() float64 {
	return float64(p.seconds - (p.gap.To - p.gap.From) + p.gap.drawn())
}

// slot is the room of one second.
func (p *picture) slot() float64 { return plotWidth / p.slots() }

// x is where a second begins that does not lie in the gap.
func (p *picture) x(second int) float64 {
	if second >= p.gap.To {
		second += p.gap.drawn() - (p.gap.To - p.gap.From)
	}
	return left + p.slot()*float64(second)
}

// labelled reports whether a second has a number below it: one in every, counted
// anew behind the gap.
func (p *picture) labelled(second, every int) bool {
	switch {
	case p.gap.holds(second):
		return false
	case second >= p.gap.To:
		second -= p.gap.To
	}
	return second%every == 0
}

// silence draws the gap.
func (p *picture) silence() {
	if p.gap.To <= p.gap.From {
		return
	}
	from, wide := p.x(p.gap.From-1)+p.slot(), float64(p.gap.drawn())*p.slot()
	p.printf("<rect class=\"gap\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", from, top, wide, plotHeight)
	p.text(from+wide/2, top+plotHeight/2, "mark", "middle", p.gap.Name)
}
