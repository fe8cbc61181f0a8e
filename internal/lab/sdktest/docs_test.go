package sdktest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsAreTheTestedCode: what docs/use/sdks.md shows stands here, to the letter, apart from lines that it leaves out; the page
// links each recipe, and names the versions of go.mod.
func TestDocsAreTheTestedCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/use/sdks.md")
	require.NoError(t, err)
	page := string(text)

	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var code strings.Builder
	recipes := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
		for _, recipe := range regexp.MustCompile(`(?m)^func (recipe\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			recipes++
			require.Contains(t, page, "[`"+recipe[1]+"`](../../internal/lab/sdktest/"+file+")")
		}
	}
	require.Equal(t, 17, recipes)

	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for part := range strings.SplitSeq(block[1], "\t// …\n") {
			require.Contains(t, code.String(), "\n"+part)
		}
	}

	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	versions := regexp.MustCompile("`([\\w./-]+)@(v[\\w.-]+)`").FindAllStringSubmatch(page, -1)
	require.GreaterOrEqual(t, len(versions), 15)
	for _, v := range versions {
		require.Contains(t, string(mod), "\t"+v[1]+" "+v[2]+"\n")
	}
}
