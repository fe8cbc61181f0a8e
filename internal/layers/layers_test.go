package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cyclic are the packages whose files still refer to each other in cycles.
var cyclic = []string{
	"internal/chaos",
	"storetest",
}

// TestRepository: in no package of any module do files refer to each other in a cycle.
func TestRepository(t *testing.T) {
	modules, err := filepath.Glob("../../*/go.mod")
	require.NoError(t, err)
	deeper, err := filepath.Glob("../../*/*/go.mod")
	require.NoError(t, err)
	for _, mod := range append(append(modules, deeper...), "../../go.mod") {
		if filepath.Base(filepath.Dir(mod)) == "tools" {
			continue // it has no package
		}
		all, err := packages(filepath.Dir(mod), "./...")
		require.NoError(t, err, mod)
		require.NotEmpty(t, all, mod)
		for _, p := range all {
			if _, path, _ := strings.Cut(p.path, "fleetthrottle/throttle/"); !slices.Contains(cyclic, path) {
				assert.Empty(t, p.cycle, p.path)
			}
		}
	}
}

// TestPackages: files come in the order to read them in, and those of a cycle are found.
func TestPackages(t *testing.T) {
	all, err := packages(".", "./testdata/cycle", "./testdata/layers")
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []reference{{"low.go", "top.go", "field"}, {"low.go", "top.go", "high"}, {"top.go", "low.go", "Low"}}, all[0].cycle)
	require.Empty(t, all[1].cycle)
	require.Equal(t, []string{"word.go", "sentence.go", "page.go"}, all[1].files)
	_, err = packages(os.TempDir(), "./...")
	require.Error(t, err)
}
