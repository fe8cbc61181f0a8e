package main

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// TestPages: every page of the repository has the figures of their sources.
func TestPages(t *testing.T) {
	soak.WithoutRace(t)
	t.Chdir("../../..")
	require.NoError(t, run(false))
}

const list = `# A comment.
wait
	code.go: wait = (\d+)
	waits ([\d,]+) ms
	(\d+) ms of waiting
`

// TestCompare: a page that differs is told, and mended; a pattern that finds nothing is told.
func TestCompare(t *testing.T) {
	all, err := parse(list)
	require.NoError(t, err)
	value, err := all[0].value(fstest.MapFS{"code.go": {Data: []byte("const wait = 1000\n")}})
	require.NoError(t, err)
	require.Equal(t, "1000", value)
	p := pages{{name: "a.md", text: "It waits 1,000 ms.\nIt waits 900 ms: 10 ms of waiting."}, {name: "b.md", text: "nothing"}}
	places, err := all[0].compare(p, value, false)
	require.Equal(t, []string{"a.md:1", "a.md:2", "a.md:2"}, places)
	require.EqualError(t, err, "a.md:2 says 900, but wait is 1000 (code.go)\na.md:2 says 10, but wait is 1000 (code.go)")
	_, err = all[0].compare(p, value, true)
	require.NoError(t, err)
	require.Equal(t, "It waits 1,000 ms.\nIt waits 1000 ms: 1000 ms of waiting.", p[0].text)
	_, err = all[0].compare(p[1:], value, false)
	require.ErrorContains(t, err, `wait: no page has waits ([\d,]+) ms`)
	_, err = all[0].value(os.DirFS(t.TempDir()))
	require.ErrorContains(t, err, "wait: ")
}

// TestParse: all mistakes of a list are told.
func TestParse(t *testing.T) {
	_, err := parse("\tx\na\n\tf: (\\d\nb\n\tf: (.)\n\t..\n")
	for _, mistake := range []string{"line 1: a pattern without a figure", "line 3: error parsing", "line 6: \"..\" has not one group", "a has no source", "b has no source"} {
		require.ErrorContains(t, err, mistake)
	}
}
