package throttle_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeCodeCompiles: readers copy the code of README and the guides, so each block
// that is a complete program passes go vet as it stands, and each other block is a part
// of an example, or of a recipe that sdktest runs.
func TestReadmeCodeCompiles(t *testing.T) {
	files := repositoryFiles(t)
	var examples strings.Builder
	for _, f := range files {
		if base := path.Base(f); strings.HasPrefix(base, "example_") || strings.HasPrefix(f, "sdktest/") && path.Ext(f) == ".go" {
			examples.WriteString(squeeze(read(t, f)) + " ")
		}
	}
	programs := 0
	for _, page := range files {
		if !copied(page) {
			continue
		}
		for _, b := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			if strings.HasPrefix(b[1], "package main\n") {
				programs++
				require.NoError(t, vet(t, b[1]), "%s: %s", page, b[1])
			} else {
				require.True(t, strings.Contains(examples.String(), squeeze(b[1])), "%s: no example has: %s", page, b[1])
			}
		}
	}
	require.GreaterOrEqual(t, programs, 2)
	require.Error(t, vet(t, "package main\n\nfunc main() { throttle.New() }\n"))
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// copied says of which pages the code is checked here. Those of modules, and of SDKs, are
// checked beside their code; pages that explain the inside have code to read only.
func copied(page string) bool {
	switch page {
	case "README.md", "README.zh-CN.md", "docs/guide.md", "docs/live.md", "docs/migration.md", "docs/production.md", "docs/recipes.md":
		return true
	}
	return strings.HasPrefix(page, "docs/zh/") && path.Ext(page) == ".md"
}

// vet runs go vet on a program that consists of one file. The file lies outside, so that
// it is part of no package; its imports are those of this module.
func vet(t *testing.T, program string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
	t.Logf("%s", out)
	return err
}

// TestGuaranteesLinkTests: every test that the page of guarantees names is in a file that
// it links.
func TestGuaranteesLinkTests(t *testing.T) {
	page := read(t, "docs/guarantees.md")
	var tests strings.Builder
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+_test\.go)\)`).FindAllStringSubmatch(page, -1) {
		tests.WriteString(read(t, filepath.Join("docs", filepath.FromSlash(m[1]))))
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(page, -1) {
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
