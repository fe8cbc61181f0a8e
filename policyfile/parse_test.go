package policyfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/policyfile"
)

// TestGood: a file with most that can be said is read, and its tests pass.
func TestGood(t *testing.T) {
	f, err := policyfile.Load("testdata/good.yaml")
	require.NoError(t, err)
	require.NoError(t, f.Check())
	require.Len(t, f.Tests, 3)
}

// TestMistakes: all mistakes are reported at once, in the order of the file.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/bad*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := policyfile.Load(file)
			require.Error(t, err)
			golden(t, file+".txt", err.Error()+"\n")
		})
	}
}

// golden compares with a file, or writes it if UPDATE is set. The forms of limits that a mistake
// names are left out.
func golden(t *testing.T, file, got string) {
	t.Helper()
	_, err := throttle.ParseLimit("?")
	_, forms, _ := strings.Cut(err.Error(), "understood are ")
	got = strings.ReplaceAll(got, forms, "…")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
