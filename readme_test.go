package throttle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeCodeCompiles: readers copy the code of README and the guide, so each block
// that is a complete program passes go vet as it stands, and each other block is a part
// of an example.
func TestReadmeCodeCompiles(t *testing.T) {
	examples := squeeze(read(t, "example_test.go") + read(t, "example_bans_test.go") + read(t, "example_limiters_test.go"))
	programs := 0
	for _, b := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(read(t, "README.md")+read(t, "docs/guide.md"), -1) {
		if strings.HasPrefix(b[1], "package main\n") {
			programs++
			require.NoError(t, vet(t, b[1]), b[1])
		} else {
			require.Contains(t, examples, squeeze(b[1]))
		}
	}
	require.GreaterOrEqual(t, programs, 2)
	require.Error(t, vet(t, "package main\n\nfunc main() { throttle.New() }\n"))
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
