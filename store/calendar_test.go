package store_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/golden"
	"github.com/fleetthrottle/throttle/store"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

// TestWindow finds the window of a moment.
func TestWindow(t *testing.T) {
	golden.Lines(t, "windows", func(in string) string {
		text, at, _ := strings.Cut(in, " at ")
		l, err := store.ParseLimit(text)
		require.NoError(t, err)
		start, end := l.Window(instant(t, at))
		return start.UTC().Format(time.RFC3339Nano) + " to " + end.UTC().Format(time.RFC3339Nano)
	})
	start, end := store.CalendarWindow(1, store.Day, time.FixedZone("", 100*3600)).Window(instant(t, "2026-01-02T03:04:05Z"))
	require.True(t, start.Equal(instant(t, "2026-01-01T20:00:00Z")), "an offset of no sense")
	require.True(t, end.Equal(instant(t, "2026-01-02T20:00:00Z")), "an offset of no sense")
}

func TestWindowOfOtherLimits(t *testing.T) {
	for _, l := range []store.Limit{
		{},
		store.PerSecond(1),
		store.LeakyBucket(1, time.Second),
		store.FixedWindow(1, 0),
		store.FixedWindow(1, -time.Second),
		store.FixedWindow(1, 1500),
		store.CalendarWindow(1, 0, nil),
		store.CalendarWindow(1, store.Year+1, nil),
		store.CalendarWindow(1, store.WeekFrom(time.Saturday+1), nil),
	} {
		start, end := l.Window(time.Unix(0, 0))
		require.Zero(t, start, "%v", l)
		require.Zero(t, end, "%v", l)
	}
}

func TestWindowsFollowEachOther(t *testing.T) {
	for _, per := range []time.Duration{time.Microsecond, time.Millisecond, 7 * time.Second, 1001 * time.Hour} {
		l := store.FixedWindow(1, per)
		_, end := l.Window(time.Unix(0, 0).Add(-50 * per))
		for range 100 {
			before, edge := l.Window(end.Add(-1))
			require.Equal(t, end, edge)
			require.Equal(t, per, edge.Sub(before))
			end, edge = l.Window(end)
			require.Equal(t, per, edge.Sub(end))
			end = edge
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	at := time.Date(2026, 7, 15, 10, 30, 0, 0, time.UTC)
	limits := map[string]store.Limit{
		"fixed":          store.FixedWindow(1, 20*time.Second),
		"day UTC":        store.CalendarWindow(1, store.Day, nil),
		"day Berlin":     store.CalendarWindow(1, store.Day, zone(b, "Europe/Berlin")),
		"month Shanghai": store.CalendarWindow(1, store.Month, zone(b, "Asia/Shanghai")),
		"month Berlin":   store.CalendarWindow(1, store.Month, zone(b, "Europe/Berlin")),
	}
	for name, l := range limits {
		b.Run(name, func(b *testing.B) {
			start, end := l.Window(at)
			require.False(b, at.Before(start) || !at.Before(end))
			b.ReportAllocs()
			for b.Loop() {
				l.Window(at)
			}
		})
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	at := time.Date(2026, 3, 29, 10, 30, 0, 0, time.UTC)
	l := store.CalendarWindow(1, store.Month, zone(t, "Europe/Berlin"))
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Window(at) }))
}
