package chart

import (
	"fmt"
	"math"
)

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
