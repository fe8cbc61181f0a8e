package throttle_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeCodeIsTakenFromTheExamples: whoever copies it copies what compiles.
func TestReadmeCodeIsTakenFromTheExamples(t *testing.T) {
	readme, examples := read(t, "README.md"), squeeze(read(t, "example_test.go")+read(t, "example_bans_test.go"))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		require.Contains(t, examples, squeeze(b[1]))
	}
}

// TestReadmeLinksLead: every link leads to a file, and every test it names is there.
func TestReadmeLinksLead(t *testing.T) {
	readme := read(t, "README.md")
	var tests strings.Builder
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readme, -1) {
		tests.WriteString(read(t, filepath.FromSlash(m[1])))
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(readme, -1) {
		require.Contains(t, tests.String(), "func "+name[1]+"(")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// squeeze makes indentation irrelevant.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
