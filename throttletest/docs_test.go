package throttletest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage: the code of docs/use/testing.md is code of the examples, and the page is short.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/use/testing.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)

	code := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, code, 2)
	for _, block := range code {
		require.Contains(t, string(examples), block[1])
	}

	words := strings.Fields(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(page), ""))
	require.LessOrEqual(t, len(words), 600)
}
