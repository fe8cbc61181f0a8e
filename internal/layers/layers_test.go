package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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
