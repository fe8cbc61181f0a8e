package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

func TestMain(m *testing.M) {
	crew.Main(role, member)
	os.Exit(m.Run())
}

// BenchmarkStores measures each line for a moment, so that none rots.
func BenchmarkStores(b *testing.B) {
	for b.Loop() {
		var out strings.Builder
		o := options{length: 10 * time.Millisecond, runs: 1, only: regexp.MustCompile(""), dir: os.TempDir()}
		require.NoError(b, o.measure(b.Context(), &out))
		_, lines, _ := strings.Cut(out.String(), "shares\n")
		for _, l := range table() {
			line, rest, _ := strings.Cut(lines, "\n")
			require.Regexp(b, "^"+regexp.QuoteMeta(l.name())+` +\d+ × \d+ +[1-9]\d*( +[\d.]+(ns|µs|ms|s)){4}`, line)
			lines = rest
		}
		require.Empty(b, lines)
	}
}

// TestResult: quantiles, and the shares of processes.
func TestResult(t *testing.T) {
	r := result{length: time.Second, took: make(times), starts: []int{10, 30}}
	for i := range 40 {
		r.took.add(time.Duration(1+i)*time.Millisecond + 4*time.Nanosecond)
	}
	require.Equal(t, "       40      20ms      39ms      39ms      40ms   50–150 %", r.String())
	r = result{length: 2 * time.Second, took: times{12346: 1}, starts: []int{1}}
	require.Equal(t, strings.Fields("0 12.346µs 12.346µs 12.346µs 12.346µs"), strings.Fields(r.String()))
}

// TestTimes: three digits are kept.
func TestTimes(t *testing.T) {
	took := make(times)
	for _, d := range []time.Duration{0, 999, 1004, 1005, 12345, 1999 * time.Millisecond} {
		took.add(d)
	}
	require.Equal(t, times{0: 1, 999: 1, 1000: 1, 1010: 1, 12300: 1, 2 * time.Second: 1}, took)
	took.merge(times{999: 2})
	require.Equal(t, 8, took.count())
	require.Equal(t, time.Duration(999), took.quantile(0.5))
}
