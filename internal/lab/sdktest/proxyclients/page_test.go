package proxyclients

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// row returns what the table of docs/use/other-languages.md has for a client.
func (c *client) row() string {
	refused := "status 429"
	if c.refused != "" {
		refused = "`" + c.refused + "`"
	}
	return fmt.Sprintf("| %s | `%s` | %s | `%s` | %s | %s |\n", c.title, c.line, c.gives, c.late, refused, c.repeats)
}

// TestPage: docs/use/other-languages.md says of each client what the stories show.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/use/other-languages.md")
	require.NoError(t, err)
	for _, c := range slices.Concat(clients, pypiClients) {
		require.Contains(t, string(page), c.row())
	}
	for _, w := range ways("127.0.0.1:7070") {
		require.Regexp(t, "(?m)^\\|.*\\| `?"+w.refused+"`? \\|$", string(page), w.name)
	}
}
