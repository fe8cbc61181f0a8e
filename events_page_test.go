package throttle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEventsPage: docs/events.md has a row for each kind of event, and names each field;
// its code is that of an example.
func TestEventsPage(t *testing.T) {
	page := read(t, "docs/events.md")
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	require.NoError(t, err)
	kinds, fields := 0, 0
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return false
		case *ast.ValueSpec:
			kinds++
			require.Contains(t, page, "\n| `"+n.Names[0].Name+"` | ")
		case *ast.Field:
			for _, name := range n.Names {
				fields++
				require.Regexp(t, "\n\\| .*`"+name.Name+"`.* \\| ", page)
			}
		}
		return true
	})
	require.Equal(t, 15, kinds)
	require.Equal(t, 12, fields)
	code := page[strings.Index(page, "```go\n")+6 : strings.LastIndex(page, "```")]
	require.Contains(t, squeeze(read(t, "example_events_test.go")), squeeze(code))
}
