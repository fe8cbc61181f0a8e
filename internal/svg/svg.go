// Package svg writes drawings as SVG that can be read on light and on dark pages.
package svg

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// A Drawing is an SVG in the making. Each element is drawn above the elements before it.
type Drawing struct{ text strings.Builder }

// Margin is the free space at the sides of a drawing.
const Margin = 24

// style is the style sheet of all drawings, for light and dark pages. A drawing brings its own background.
const style = `
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .note { fill: #59636e }
%s  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
%s  }
`

// New starts a drawing with a title and a note at its top. rules and dark are CSS to add to the style
// sheet: rules for all pages, dark for dark pages.
func New(width, height float64, title, note, rules, dark string) *Drawing {
	d := new(Drawing)

	// A screen reader speaks the title.
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img">`+"\n", number(width), number(height))
	d.printf("<title>%s</title>\n<style>"+style+"</style>\n", Escape(title), rules, dark)

	// Half a pixel inwards, so that the line of the frame is sharp.
	d.Rect("ground", Box{0.5, 0.5, width - 1, height - 1, 8})
	d.Text("title", Margin, 34, title)
	d.Text("note", Margin, 56, note)

	return d
}

// A Box is where a rectangle lies.
type Box struct {
	X, Y, Width, Height float64
	Radius              float64 // of its corners
}

// Rect draws a rectangle.
func (d *Drawing) Rect(class string, b Box) {
	d.printf(`<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, number(b.X), number(b.Y), number(b.Width), number(b.Height))
	if b.Radius > 0 {
		d.printf(` rx="%s"`, number(b.Radius))
	}
	d.printf("/>\n")
}

// Line draws a line from (x1, y1) to (x2, y2).
func (d *Drawing) Line(class string, x1, y1, x2, y2 float64) {
	d.printf(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, number(x1), number(y1), number(x2), number(y2))
}

// Text writes a text with its baseline at y. The text starts at x, unless the style of its class sets a different text-anchor.
func (d *Drawing) Text(class string, x, y float64, text string) {
	d.printf(`<text class="%s" x="%s" y="%s">%s</text>`+"\n", class, number(x), number(y), Escape(text))
}

// String returns the drawing.
func (d *Drawing) String() string { return d.text.String() + "</svg>\n" }

func (d *Drawing) printf(format string, args ...any) { fmt.Fprintf(&d.text, format, args...) }

// number returns x rounded to a tenth of a pixel.
func number(x float64) string { return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0") }

// Escape returns s as text inside XML.
func Escape(s string) string {
	var w strings.Builder
	_ = xml.EscapeText(&w, []byte(s)) // a strings.Builder never fails
	return w.String()
}
