package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of a drawing, in pixels.
const (
	drawingWidth  = 880
	drawingHeight = 220 // of the columns
	drawingLeft   = 64
	drawingTop    = 72
	drawingMargin = 24
	drawingRow    = 22 // of the legend
)

// drawingStyle has colours for light and dark, on a ground of their own. Those of policies
// can be told apart by people who do not see red and green.
const drawingStyle = `
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .note { fill: #59636e }
  .axis { stroke: #8c959f }
  .p { fill: #8c959f }
  .p0 { fill: #0072b2 } .p1 { fill: #e69f00 } .p2 { fill: #009e73 }
  .p3 { fill: #cc79a7 } .p4 { fill: #56b4e9 } .p5 { fill: #d55e00 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
  }
`

// drawingColours is how many colours there are.
const drawingColours = 6

// drawing returns the chart of a plan as SVG.
func (p *planned) drawing() string {
	title := fmt.Sprintf("%s take %s", count(p.Requests, "request", "requests"), brief(p.took))
	note := fmt.Sprintf("%s with %s each, %d ms a request", count(p.Nodes, "node", "nodes"), count(p.Workers, "worker", "workers"), p.Latency)
	return p.Chart.drawing(title, note)
}

// drawing returns the chart as SVG.
func (c *chart) drawing(title, note string) string {
	bottom := drawingTop + drawingHeight
	legend := append([]string{""}, c.policies...)
	height := bottom + 2*drawingMargin + drawingRow*len(legend)
	var w strings.Builder
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", drawingWidth, height)
	fmt.Fprintf(&w, "<title>%s</title>\n<style>%s</style>\n", escaped(title), drawingStyle)
	fmt.Fprintf(&w, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", drawingWidth-1, height-1)
	label(&w, drawingMargin, 32, "title", title)
	label(&w, drawingMargin, 54, "note", note+"; "+c.title)
	most := c.ceiling()
	each := float64(drawingWidth-drawingLeft-drawingMargin) / float64(max(1, len(c.rates)))
	for i, r := range c.rates {
		tall := r / most * drawingHeight
		fmt.Fprintf(&w, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
			c.colour(c.Binds[i]), drawingLeft+float64(i)*each, float64(bottom)-tall, each, tall)
	}
	fmt.Fprintf(&w, `<path class="axis" fill="none" d="M%d %dV%dH%d"/>`+"\n", drawingLeft, drawingTop, bottom, drawingWidth-drawingMargin)
	label(&w, drawingMargin, drawingTop+10, "note", fmt.Sprintf("%g", most))
	label(&w, drawingMargin, bottom, "note", "0")
	label(&w, drawingLeft, bottom+18, "note", "0s")
	end := brief(c.end)
	label(&w, drawingWidth-drawingMargin-7*len(end), bottom+18, "note", end)
	for i, p := range legend {
		y := bottom + drawingMargin + drawingRow*i + 18
		fmt.Fprintf(&w, `<rect class="%s" x="%d" y="%d" width="12" height="12"/>`+"\n", c.colour(p), drawingLeft, y-10)
		text := p + " binds"
		if p == "" {
			text = "no limit binds"
		}
		label(&w, drawingLeft+20, y, "note", text)
	}
	w.WriteString("</svg>\n")
	return w.String()
}

// colour returns the class of what binds.
func (c *chart) colour(binds string) string {
	for i, p := range c.policies {
		if p == binds {
			return fmt.Sprintf("p%d", i%drawingColours)
		}
	}
	return "p"
}

func label(w *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(w, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escaped(text))
}

func escaped(s string) string {
	var w strings.Builder
	_ = xml.EscapeText(&w, []byte(s)) // a strings.Builder never fails
	return w.String()
}
