package soak

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithoutRaceIsRun: what every change must pass runs the tests without the race detector that
// make test leaves out. Otherwise nothing would run them.
func TestWithoutRaceIsRun(t *testing.T) {
	root := os.DirFS("../../..")
	packages, tests := make(map[string]bool), make(map[string]bool)
	require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/lab/soak/") {
			return err
		}
		source, err := fs.ReadFile(root, name)
		if err != nil || !strings.Contains(string(source), "soak.WithoutRace(") {
			return err
		}
		packages["./"+path.Dir(name)] = true
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		for _, test := range callers(file, "WithoutRace") {
			tests[test] = true
		}
		return err
	}))

	got, modules := make(map[string]bool), strings.Fields(list(t, "modules"))
	for _, dir := range strings.Fields(list(t, "packages")) {
		got["./"+path.Clean(dir)] = true
	}
	for dir := range packages {
		if slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(dir+"/", m+"/") }) {
			got[dir] = true
		}
	}
	require.Equal(t, packages, got)

	pattern := regexp.MustCompile(list(t, "tests"))
	for test := range tests {
		require.Regexp(t, "^Test", test, "soak.WithoutRace is called by the test itself")
		require.Regexp(t, pattern, test)
	}
	require.NotRegexp(t, pattern, "Test")

	makefile, err := fs.ReadFile(root, "Makefile")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^test-without-race:.*\n\t@\$\(SHORT\) -run "\$\$\(scripts/without-race.sh tests\)" \$\$\(scripts/without-race.sh packages\)$`, string(makefile))
	require.Contains(t, string(makefile), `for module in $$(scripts/without-race.sh modules); do`)
	require.NotRegexp(t, `(?m)^SHORT = .*-race`, string(makefile))

	gates, err := fs.ReadFile(root, ".ci/run")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^for target in (?:\S+ )*test-without-race `, string(gates))
}

// TestLongFormsAreRun: make soak runs the tests that are longer there.
func TestLongFormsAreRun(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\t@folders=\$\$\(go run ./internal/lab/soak/longforms\) && echo "\$\$folders" \| \{`, string(makefile))
	require.Regexp(t, `(?m)^\t\(cd "\$\$folder" && go test .*-run "\$\$tests" \. `, strings.ReplaceAll(string(makefile), "\t\t(", "\t("))
}

// TestSeeds: $SOAK multiplies the cases of make soak, and never those of make test. A wrong value is told.
func TestSeeds(t *testing.T) {
	for text, want := range map[string]int{"": 20, "1": 20, "4": 80} {
		t.Setenv("SOAK", text)
		if testing.Short() {
			want = 3
		}
		require.Equal(t, want, Seeds(20, 3), text)
	}

	for _, text := range []string{"0", "-3", "many", "1.5"} {
		require.PanicsWithValue(t, `$SOAK is a whole number from 1, not "`+text+`"`, func() { factor(text) })
	}
}

// callers returns the names of a file's functions that call a function of another package.
func callers(file *ast.File, function string) (names []string) {
	for _, d := range file.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			if f, inside := d.(*ast.FuncDecl); ok && inside && called.Sel.Name == function {
				names = append(names, f.Name.Name)
			}
			return true
		})
	}
	return names
}

// list returns what the script prints.
func list(t *testing.T, what string) string {
	t.Helper()
	out, err := exec.Command("sh", "../../../scripts/without-race.sh", what).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
