// Package golden compares the outputs of a function with the outputs that a file names.
package golden

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// of32Bits has the largest numbers where an int has 32 bits: the largest limit, store.MaxCost, MaxCost + 1, 2 × (MaxCost + 1) and
// math.MaxInt.
var of32Bits = strings.NewReplacer("allow at most 1099511627776 starts", "allow at most 2147483647 starts",
	"1099511627776", "536870912", "1099511627777", "536870913", "2199023255554", "1073741826",
	"9223372036854775807", "2147483647")

// Numbers returns a text in which store.MaxCost and math.MaxInt of 64 bits are those of this program's int.
func Numbers(text string) string {
	if strconv.IntSize == 64 {
		return text
	}
	return of32Bits.Replace(text)
}

// Lines compares each line "input => output" of testdata/vectors/NAME.txt with the output for the input.
// With UPDATE=1 in the environment Lines writes the outputs anew. Comments, which begin with "#", and other lines stay.
func Lines(t *testing.T, name string, output func(in string) string) {
	t.Helper()
	file := "testdata/vectors/" + name + ".txt"
	text, err := os.ReadFile(file)
	require.NoError(t, err)

	update := os.Getenv("UPDATE") != ""
	lines := strings.Split(Numbers(string(text)), "\n")
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

	// The files have the numbers of 64 bits, so only a program of 64 bits may write them.
	if update {
		require.Equal(t, 64, strconv.IntSize, "the files have the numbers of 64 bits")
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
	}
}
