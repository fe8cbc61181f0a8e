package vet

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs are the modules that nobody imports: commands, benchmarks and tests, which are released with the root.
var programs = []string{"internal/lab/benchmarks", "cmd/throttle", "servers/dashboard/browsertest", "adapters/promthrottle/promql", "internal/lab/manifests", "internal/lab/sdktest", "internal/tools"}

// TestModulesCompileTogether: code of a library module, tests apart, imports no internal package of another module. An
// internal package may change in any version, so two versions that "go get" chooses would not compile together.
func TestModulesCompileTogether(t *testing.T) {
	modules, err := filepath.Glob("../../../*/go.mod")
	require.NoError(t, err)
	deeper, err := filepath.Glob("../../../*/*/go.mod") // adapters/x, stores/x
	require.NoError(t, err)

	libraries := 0
	for _, file := range append(modules, deeper...) {
		dir := filepath.Dir(file)
		name, err := filepath.Rel("../../..", dir)
		require.NoError(t, err)
		if slices.Contains(programs, filepath.ToSlash(name)) {
			continue
		}
		libraries++
		for path, imports := range importsOf(t, dir) {
			require.Empty(t, foreignInternals(repository+"/"+filepath.ToSlash(name), imports), path)
		}
	}
	require.GreaterOrEqual(t, libraries, 9, "modules were not found")
}

// TestCopiesAreEqual: a module that may not import an internal package has a copy, which is mended with the original.
func TestCopiesAreEqual(t *testing.T) {
	for _, file := range []string{"inbound.go", "queue.go"} {
		original, err := os.ReadFile(filepath.Join("../../inbound", file))
		require.NoError(t, err)
		copied, err := os.ReadFile(filepath.Join("../../../servers/envoy/internal/inbound", file))
		require.NoError(t, err)
		require.Equal(t, string(original), string(copied), "cp internal/inbound/%s servers/envoy/internal/inbound", file)
	}
}

// importsOf returns what the packages of a module import, tests apart.
func importsOf(t *testing.T, dir string) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	list.Dir = dir
	out, err := list.Output()
	require.NoError(t, err, dir)

	all := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = fields[1:]
	}
	return all
}

// foreignInternals returns those imports of a module's package that are internal packages of other modules of the repository.
func foreignInternals(module string, imports []string) (all []string) {
	for _, path := range imports {
		if isInternal(path) && !strings.HasPrefix(path, module+"/") {
			all = append(all, path)
		}
	}
	return all
}

// TestForeignInternals: which imports are refused.
func TestForeignInternals(t *testing.T) {
	const module = repository + "/pgstore"
	require.Equal(t,
		[]string{repository + "/internal/ledger", repository + "/redisstore/internal/wire", repository + "/pgstores/internal/a"},
		foreignInternals(module, []string{
			"internal/abi", "context", "example.com/internal/a", repository, repository + "/store", module + "/internal/tx", repository + "/internals",
			repository + "/internal/ledger", repository + "/redisstore/internal/wire", repository + "/pgstores/internal/a",
		}))
}
