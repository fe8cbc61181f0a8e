package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
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
	line  float64 // a limit to mark; 0: none
	most  float64 // where the scale ends; 0: at the largest value
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
	margin  = 24
	head    = 76 // above the charts
	row     = 26
	thick   = 14
	names   = 160 // for the contenders' names
	letter  = 7   // about the width of one
	gap     = 10  // before what is written behind a bar
	between = 24  // two charts
)

// style has colours for light and dark, on a ground of their own, so that the
// picture can be read wherever it is put.
const style = `
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .note, .value { fill: #59636e }
  .chart { font-weight: 600 }
  .ours-name { font-weight: 600 }
  .ours { fill: #1a7f37 }
  .peer { fill: #8c959f }
  .bad { fill: #cf222e }
  .line { stroke: #1f2328; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .note, .value { fill: #9198a1 }
    .ours { fill: #3fb950 }
    .peer { fill: #656c76 }
    .bad { fill: #f85149 }
    .line { stroke: #f0f6fc }
  }
`

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
	height := head + row*rows + margin
	if p.titled() {
		height += row
	}
	var w strings.Builder
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", width, height)
	fmt.Fprintf(&w, "<title>%s</title>\n<style>%s</style>\n", escape(p.title), style)
	fmt.Fprintf(&w, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	write(&w, margin, 34, "title", p.title)
	write(&w, margin, 56, "note", p.note)
	each := (width - 2*margin - between*(len(p.charts)-1)) / len(p.charts)
	for i, c := range p.charts {
		y := head
		if p.titled() {
			y += row
			write(&w, margin+i*(each+between), y-10, "chart", c.title)
		}
		c.draw(&w, margin+i*(each+between), y, each)
	}
	w.WriteString("</svg>\n")
	return w.String()
}

// titled reports whether the charts have titles of their own.
func (p picture) titled() bool { return p.charts[0].title != "" }

// draw draws the chart's rows from the given corner on.
func (c chart) draw(w *strings.Builder, x, y, width int) {
	texts := gap
	for _, b := range c.bars {
		texts = max(texts, gap+letter*len([]rune(b.text)))
	}
	left, most := x+names, float64(width-names-texts)
	for i, b := range c.bars {
		top, mid := y+i*row+(row-thick)/2, y+i*row+row/2
		write(w, x, mid+5, b.nameClass(), b.name)
		length := c.scale(b.value) * most
		if c.log {
			fmt.Fprintf(w, `<circle class="%s" cx="%.1f" cy="%d" r="%d"/>`+"\n", b.class(), float64(left)+length, mid, thick/2-1)
		} else {
			fmt.Fprintf(w, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n",
				b.class(), left, top, math.Max(length, 1), thick)
		}
		write(w, left+int(length)+gap, mid+5, "value", b.text)
	}
	if c.line > 0 {
		at := float64(left) + c.scale(c.line)*most
		fmt.Fprintf(w, `<line class="line" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", at, at, y, y+row*len(c.bars))
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

func write(w *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(w, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escape(text))
}

func escape(s string) string {
	var w strings.Builder
	// A strings.Builder never fails.
	_ = xml.EscapeText(&w, []byte(s))
	return w.String()
}
