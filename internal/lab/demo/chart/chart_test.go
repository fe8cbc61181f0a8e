package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/demo/chart"
)

// draw returns the picture and how many elements of each class it has.
func draw(t *testing.T, c chart.Chart) (string, map[string]int) {
	t.Helper()
	var b strings.Builder
	require.NoError(t, c.Draw(&b))
	classes := make(map[string]int)
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String(), classes
		}
		require.NoError(t, err, "the picture must be well-formed")
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					classes[e.Name.Local+"."+a.Value]++
				}
			}
		}
	}
}

func TestBarsBelowTheLimit(t *testing.T) {
	text, classes := draw(t, chart.Chart{
		Title: "Calls & <limits>", Subtitle: "none above", Limit: 20,
		Series: []chart.Series{{"/a", []int{3, 20, 20}}, {"/b", []int{0, 20, 5}}},
	})
	require.Contains(t, text, "Calls &amp; &lt;limits&gt;")
	require.Equal(t, 3+1, classes["rect.s0"], "a bar for each second and the legend")
	require.Equal(t, 2+1, classes["rect.s1"], "a second without calls has no bar")
	require.Equal(t, 0, classes["rect.over"])
	require.Equal(t, 1, classes["line.line"])
}

func TestBarsAboveTheLimit(t *testing.T) {
	_, classes := draw(t, chart.Chart{Limit: 20, Series: []chart.Series{{"/a", []int{21, 150, 20}}}})
	require.Equal(t, 3+1, classes["rect.s0"])
	require.Equal(t, 2+1, classes["rect.over"])
}

func TestGapIsShort(t *testing.T) {
	counts := make([]int, 310)
	counts[0], counts[1], counts[305], counts[309] = 20, 7, 3, 20
	text, classes := draw(t, chart.Chart{
		Limit: 20, Gap: chart.Gap{From: 2, To: 305, Name: "banned"}, Series: []chart.Series{{"/a", counts}},
	})
	require.Equal(t, 4+1, classes["rect.s0"])
	require.Equal(t, 1, classes["rect.gap"])
	require.Contains(t, text, ">banned</text>")
	for _, second := range []string{"1", "2", "306", "310"} {
		require.Contains(t, text, `"tick" text-anchor="middle">`+second+"</text>")
	}
	require.NotContains(t, text, `"tick" text-anchor="middle">3</text>`)
	// Seven seconds and the gap, which is as wide as four, share the 776 units.
	require.Contains(t, text, `class="gap" x="197.1" y="108.0" width="282.2"`)
}

func TestNothingArrived(t *testing.T) {
	_, classes := draw(t, chart.Chart{Limit: 20})
	require.Equal(t, 1, classes["line.line"])
}
