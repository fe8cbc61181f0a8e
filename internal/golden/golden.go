// Package golden compares what a function makes of inputs with what a file says of them.
package golden

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lines compares each line "input => output" of testdata/vectors/NAME.txt with what is made of the input.
// With UPDATE=1 in the environment the outputs are written anew. Other lines, and those that begin with "#", are left alone.
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
