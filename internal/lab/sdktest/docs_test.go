package sdktest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsAreTheTestedCode: what docs/sdks.md shows stands here, to the letter, and all
// recipes are shown.
func TestDocsAreTheTestedCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/sdks.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range shown {
		require.Contains(t, code.String(), "\n"+block[1])
	}
	recipes := regexp.MustCompile(`(?m)^func recipe\w+\(.*$`).FindAllString(code.String(), -1)
	require.Len(t, recipes, 17)
	for _, recipe := range recipes {
		require.Contains(t, string(page), "```go\n"+recipe)
	}
}
