package svg_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/svg"
)

// TestDrawing: a drawing is well-formed whatever its texts are, and has what was drawn.
func TestDrawing(t *testing.T) {
	d := svg.New(100, 50, `a < "b"`, "why & what", "  .bar { fill: red }\n", "    .bar { fill: blue }\n")
	d.Rect("bar", svg.Box{X: 10, Y: 20.25, Width: 30.04, Height: 5})
	d.Line("limit", 1, 2, 3.5, 4)
	d.Text("name", 5, 6, "</svg>")
	drawn := d.String()
	for _, want := range []string{
		`viewBox="0 0 100 50"`, `  .bar { fill: red }`, `    .bar { fill: blue }`,
		`<rect class="ground" x="0.5" y="0.5" width="99" height="49" rx="8"/>`,
		`<rect class="bar" x="10" y="20.2" width="30" height="5"/>`,
		`<line class="limit" x1="1" y1="2" x2="3.5" y2="4"/>`,
		`<text class="name" x="5" y="6">&lt;/svg&gt;</text>`,
	} {
		require.Contains(t, drawn, want)
	}
	var text strings.Builder
	for decoder := xml.NewDecoder(strings.NewReader(drawn)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if token, ok := token.(xml.CharData); ok {
			text.Write(token)
		}
	}
	require.Contains(t, text.String(), `a < "b"`)
	require.Contains(t, text.String(), "why & what")
}
