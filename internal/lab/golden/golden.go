// Package golden compares the outputs of a function with the outputs that a file names.
package golden

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lines compares each line "input => output" of testdata/vectors/NAME.txt with the output for the input.
// With UPDATE=1 in the environment Lines writes the outputs anew. Comments, which begin with "#", and other lines stay.
func Lines(t *testing.T, name string, output func(in string) string) {
	t.Helper()
	file := "testdata/vectors/" + name + ".txt"
	text, err := os.ReadFile(file)
	require.NoError(t, err)

	update := os.Getenv("UPDATE") != ""
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		in, want, found := strings.Cut(line, " => ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}

		got := output(in)
		if !update {
			require.Equal(t, want, got, "%s:%d: %s", file, i+1, in)
		}

		lines[i] = in + " => " + got
	}

	if update {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
	}
}
