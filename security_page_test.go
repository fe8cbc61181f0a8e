package throttle_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecurityPageIsTrue: every link of SECURITY.md leads to a file, and every test
// that it names is in a file that it links.
func TestSecurityPageIsTrue(t *testing.T) {
	links, tests := regexp.MustCompile(`\]\(([^)#:]+)\)`), regexp.MustCompile("`(Test[A-Za-z0-9_]+)[`/]")
	page := read(t, "SECURITY.md")
	linked := ""
	for _, m := range links.FindAllStringSubmatch(page, -1) {
		linked += read(t, filepath.FromSlash(m[1]))
	}
	named := tests.FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.Contains(t, linked, "func "+m[1]+"(")
	}
}
