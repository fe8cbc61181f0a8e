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

// TestWaits: a process that was stopped does not count, a caller that was passed does, and so does the time in which nobody starts.
func TestWaits(t *testing.T) {
	r := &run{scene: &scene{place: files, n: 2, fault: "stopped"}, length: 6 * time.Second, at: 1_000_000, faulty: 4_000_000}
	for _, w := range []struct {
		process     int
		came, start int64 // milliseconds
	}{{1, 0, 3900}, {0, 3500, 4100}, {1, 4100, 4500}, {2, 3700, 4700}, {2, 4650, 5100}, {1, 5000, 6900}} {
		r.waits = append(r.waits, waited{wait{1000 * w.came, 1000 * w.start}, w.process})
	}
	require.Equal(t, strings.Fields("69.0 % 450ms 1s 1.9s 1.8s 50.0 % 400ms 2.00"), strings.Fields(r.columns(12)))
	require.Equal(t, "nobody has started", (&run{scene: r.scene, length: r.length}).columns(0))
}
