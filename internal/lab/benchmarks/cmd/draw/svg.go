package main

import (
	"math"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/internal/svg"
)

// A picture is some charts side by side.
type picture struct {
	title, note string
	charts      []chart
}

// A chart compares contenders by the length of bars, or on a logarithmic scale
// by the place of dots.
type chart struct {
	title string
	bars  []bar
	line  float64 // a limit to mark, or 0
	most  float64 // where the scale ends, or 0 for the largest value
	log   bool
}

// A bar is one contender.
type bar struct {
	name  string
	value float64
	text  string // says the value
	ours  bool
	bad   bool // a limit was broken
}

// Sizes, in pixels.
const (
	width   = 880
	head    = 76 // above the charts
	row     = 26
	thick   = 14
	names   = 160 // for the contenders' names
	letter  = 7   // about the width of one
	gap     = 10  // before the text behind a bar
	between = 24  // two charts
)

// The colours, on light and on dark pages.
const (
	rules = `  .value { fill: #59636e }
  .chart { font-weight: 600 }
  .ours-name { font-weight: 600 }
  .ours { fill: #1a7f37 }
  .peer { fill: #8c959f }
  .bad { fill: #cf222e }
  .line { stroke: #1f2328; stroke-dasharray: 4 3 }
`
	dark = `    .value { fill: #9198a1 }
    .ours { fill: #3fb950 }
    .peer { fill: #656c76 }
    .bad { fill: #f85149 }
    .line { stroke: #f0f6fc }
`
)

// empty reports whether there is nothing to draw.
func (p picture) empty() bool {
	for _, c := range p.charts {
		if len(c.bars) > 0 {
			return false
		}
	}
	return true
}

// svg draws the picture.
func (p picture) svg() string {
	rows := 0
	for _, c := range p.charts {
		rows = max(rows, len(c.bars))
	}

	height := head + row*rows + svg.Margin
	if p.titled() {
		height += row
	}

	d := svg.New(width, float64(height), p.title, p.note, rules, dark)
	each := (width - 2*svg.Margin - between*float64(len(p.charts)-1)) / float64(len(p.charts))
	for i, c := range p.charts {
		x, y := svg.Margin+float64(i)*(each+between), float64(head)
		if p.titled() {
			y += row
			d.Text("chart", x, y-10, c.title)
		}

		c.draw(d, x, y, each)
	}

	return d.String()
}

// titled reports whether the charts have titles of their own.
func (p picture) titled() bool { return p.charts[0].title != "" }

// draw draws the chart's rows from the given corner on.
func (c chart) draw(d *svg.Drawing, x, y, width float64) {
	texts := gap
	for _, b := range c.bars {
		texts = max(texts, gap+letter*utf8.RuneCountInString(b.text))
	}

	left, most := x+names, width-names-float64(texts)
	for i, b := range c.bars {
		mid := y + float64(i*row+row/2)
		d.Text(b.nameClass(), x, mid+5, b.name)
		length := c.scale(b.value) * most

		if c.log {
			d.Circle(b.class(), left+length, mid, thick/2-1)
		} else {
			d.Rect(b.class(), svg.Box{X: left, Y: mid - thick/2, Width: max(length, 1), Height: thick, Radius: 2})
		}

		d.Text("value", left+length+gap, mid+5, b.text)
	}

	if c.line > 0 {
		at := left + c.scale(c.line)*most
		d.Line("line", at, y, at, y+float64(row*len(c.bars)))
	}
}

// scale maps a value to 0…1.
func (c chart) scale(v float64) float64 {
	most := c.most
	for _, b := range c.bars {
		most = math.Max(most, b.value)
	}
	if c.log {
		return math.Log10(math.Max(v, 10)/10) / math.Log10(most/10)
	}
	return v / most
}

func (b bar) class() string {
	switch {
	case b.bad:
		return "bad"
	case b.ours:
		return "ours"
	}
	return "peer"
}

func (b bar) nameClass() string {
	if b.ours {
		return "ours-name"
	}
	return "name"
}
