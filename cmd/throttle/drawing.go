package main

import (
	"fmt"

	"github.com/fleetthrottle/throttle/internal/svg"
)

// Sizes of a drawing, in pixels.
const (
	drawingWidth  = 880
	drawingHeight = 220 // of the columns
	drawingLeft   = 64
	drawingTop    = 72
	drawingRow    = 22 // of the legend
)

// drawingRules has colours of policies that people who do not see red and green can tell
// apart.
const drawingRules = `  .axis { stroke: #8c959f }
  .p { fill: #8c959f }
  .p0 { fill: #0072b2 } .p1 { fill: #e69f00 } .p2 { fill: #009e73 }
  .p3 { fill: #cc79a7 } .p4 { fill: #56b4e9 } .p5 { fill: #d55e00 }
`

// drawingColours is how many colours there are.
const drawingColours = 6

// drawing returns the chart as SVG.
func (c *chart) drawing(title, note string) string {
	const right, bottom = drawingWidth - svg.Margin, drawingTop + drawingHeight
	legend := append([]string{""}, c.policies...)
	height := bottom + 2*svg.Margin + drawingRow*len(legend)
	d := svg.New(drawingWidth, float64(height), title, note+"; "+c.title, drawingRules, "")
	most := c.ceiling()

	each := float64(right-drawingLeft) / float64(max(1, len(c.rates)))
	for i, r := range c.rates {
		tall := r / most * drawingHeight
		d.Rect(c.colour(c.Binds[i]), svg.Box{X: drawingLeft + float64(i)*each, Y: bottom - tall, Width: each, Height: tall})
	}

	d.Line("axis", drawingLeft, drawingTop, drawingLeft, bottom)
	d.Line("axis", drawingLeft, bottom, right, bottom)
	d.Text("note", svg.Margin, drawingTop+10, fmt.Sprintf("%g", most))
	d.Text("note", svg.Margin, bottom, "0")
	d.Text("note", drawingLeft, bottom+18, "0s")
	end := brief(c.end)
	d.Text("note", float64(right-7*len(end)), bottom+18, end)

	for i, p := range legend {
		y := float64(bottom + svg.Margin + drawingRow*i + 18)
		d.Rect(c.colour(p), svg.Box{X: drawingLeft, Y: y - 10, Width: 12, Height: 12})
		text := p + " binds"
		if p == "" {
			text = "no limit binds"
		}

		d.Text("note", drawingLeft+20, y, text)
	}

	return d.String()
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
