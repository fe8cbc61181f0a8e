package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is what the testing package prints, three times for one benchmark.
const sample = `commit: 0123456
goos: linux
BenchmarkShared/1-key/4x64/throttle-2     1   400000 acquires/s   10.0 times-redis_rate
BenchmarkShared/1-key/4x64/throttle-2     1   100000 acquires/s   2.5 times-redis_rate
BenchmarkShared/1-key/4x64/throttle-2     1   300000 acquires/s   7.5 times-redis_rate
BenchmarkShared/1-key/4x64/redis_rate-2   1   40000 acquires/s    1 times-redis_rate
BenchmarkShared/1-key/4x64/ulule-2        1   50000 acquires/s    1.25 times-redis_rate
BenchmarkFleet/40-per-s/throttle-2        1   40 most-by-store/s  40 most/0.95s  97 used-%
BenchmarkFleet/40-per-s/redis_rate-2      1   80 most-by-store/s  79 most/0.95s  100 used-%
BenchmarkFleet/40-per-s/sorted_set-2      1   43 most-by-store/s  40 most/0.95s  100 used-%
PASS
`

func TestRead(t *testing.T) {
	r, err := read(strings.NewReader(sample))
	require.NoError(t, err)
	require.Equal(t, []string{"redis_rate", "throttle", "ulule"}, r.below("Shared/1-key/4x64"))
	require.Equal(t, []float64{10, 2.5, 7.5}, r["Shared/1-key/4x64/throttle"]["times-redis_rate"])

	median, ok := r.value("Shared/1-key/4x64/throttle", "acquires/s")
	require.True(t, ok)
	require.Equal(t, 300000.0, median)
	_, ok = r.value("Shared/1-key/4x64/throttle", "bytes")
	require.False(t, ok)
	_, ok = r.value("Shared/elsewhere", "acquires/s")
	require.False(t, ok)
}

func TestReadAll_LaterFilesReplaceEarlierOnes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"2026-11.txt": "BenchmarkA-2 1 1 x\nBenchmarkA-2 1 1 x\nBenchmarkB-2 1 1 x\n",
		"2026-12.txt": "BenchmarkA-2 1 2 x\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r, err := readAll(dir)
	require.NoError(t, err)
	require.Equal(t, results{"A": {"x": {2}}, "B": {"x": {1}}}, r)
}

func TestCharts(t *testing.T) {
	r, err := read(strings.NewReader(sample))
	require.NoError(t, err)
	all := pictures(r)
	require.Equal(t, []bar{
		{name: "throttle", value: 300000, text: "300,000 (7.50 × redis_rate)", ours: true},
		{name: "ulule", value: 50000, text: "50,000 (1.25 × redis_rate)"},
		{name: "redis_rate", value: 40000, text: "40,000 (1.00 × redis_rate)"},
	}, all["acquires"].charts[0].bars)
	require.Equal(t, []bar{
		{name: "throttle", value: 40, text: "40 (97 %)", ours: true},
		{name: "redis_rate", value: 80, text: "80 (100 %)", bad: true},
		{name: "sorted set", value: 43, text: "43 (100 %)"},
	}, all["fleet"].charts[0].bars)
	require.True(t, all["memory"].empty())
}

func TestSVG_IsWellFormedAndHasTheText(t *testing.T) {
	p := picture{title: "a < b", note: "why", charts: []chart{
		{title: "one & only", line: 5, bars: []bar{{name: "x", value: 10, text: "ten", bad: true}, {name: "y"}}},
		{title: "two", log: true, most: 1000, bars: []bar{{name: "z", value: 100, ours: true}}},
	}}
	var text strings.Builder
	lengths := map[string]string{}
	d := xml.NewDecoder(strings.NewReader(p.svg()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			for _, a := range token.Attr {
				lengths[token.Name.Local+" "+a.Name.Local] = a.Value
			}
		}
	}
	for _, want := range []string{"a < b", "why", "one & only", "ten", "x", "y", "z"} {
		require.Contains(t, text.String(), want)
	}
	require.Equal(t, "ours", lengths["circle class"])
	require.Equal(t, "1", lengths["rect width"], "nothing is drawn as a hair")
}

func TestScale(t *testing.T) {
	linear := chart{bars: []bar{{value: 80}, {value: 20}}}
	require.Equal(t, 0.25, linear.scale(20))
	powers := chart{log: true, most: 100_000}
	require.Equal(t, 0.5, powers.scale(1000))
	require.Zero(t, powers.scale(0))
}
