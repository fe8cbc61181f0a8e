package throttle_test

import (
	"sort"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
	vectors(t, "windows", func(in string) string {
		text, at, _ := strings.Cut(in, " at ")
		start, end := must(throttle.ParseLimit(text)).Window(instant(t, at))
		return start.UTC().Format(time.RFC3339Nano) + " to " + end.UTC().Format(time.RFC3339Nano)
	})
	start, end := throttle.CalendarWindow(1, throttle.Day, time.FixedZone("", 100*3600)).Window(instant(t, "2026-01-02T03:04:05Z"))
	require.True(t, start.Equal(instant(t, "2026-01-01T20:00:00Z")), "an offset of no sense")
	require.True(t, end.Equal(instant(t, "2026-01-02T20:00:00Z")), "an offset of no sense")
}

func TestWindowOfOtherLimits(t *testing.T) {
	for _, l := range []throttle.Limit{
		{},
		throttle.PerSecond(1),
		throttle.LeakyBucket(1, time.Second),
		throttle.FixedWindow(1, 0),
		throttle.FixedWindow(1, -time.Second),
		throttle.FixedWindow(1, 1500),
		throttle.CalendarWindow(1, 0, nil),
		throttle.CalendarWindow(1, throttle.Month+1, nil),
	} {
		start, end := l.Window(time.Unix(0, 0))
		require.Zero(t, start, "%v", l)
		require.Zero(t, end, "%v", l)
	}
}

func TestWindowsFollowEachOther(t *testing.T) {
	for _, per := range []time.Duration{time.Microsecond, time.Millisecond, 7 * time.Second, 1001 * time.Hour} {
		l := throttle.FixedWindow(1, per)
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

// oddZones change their clocks at midnight, by half an hour, in Ramadan, over
// the date line, to the second, or not at all.
var oddZones = []string{
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Anchorage", "America/Asuncion",
	"America/Godthab", "America/Havana", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund",
	"America/St_Johns", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu",
	"Asia/Shanghai", "Asia/Tehran", "Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin", "Europe/Dublin",
	"Pacific/Apia", "Pacific/Fakaofo", "Pacific/Kwajalein", "UTC",
}

// TestWindowAgainstDefinition walks through the minutes around every change of
// the clocks and notes each instant at which a later date is shown than ever
// before. Those, and no others, are the edges of days.
func TestWindowAgainstDefinition(t *testing.T) {
	for _, name := range oddZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			day := throttle.CalendarWindow(1, throttle.Day, loc)
			for _, change := range changes(loc, 1968, 2030) {
				requireDays(t, day, dayEdges(change.Add(-27*time.Hour), change.Add(51*time.Hour), loc))
			}
		})
	}
}

// TestWindowsOfLocalMeanTime does the same for the times before zones, when
// clocks differed from UTC by any number of seconds and the date line moved.
func TestWindowsOfLocalMeanTime(t *testing.T) {
	for _, name := range []string{"America/Juneau", "Asia/Manila", "Europe/Amsterdam", "Asia/Shanghai"} {
		loc := zone(t, name)
		day := throttle.CalendarWindow(1, throttle.Day, loc)
		for _, change := range changes(loc, 1840, 1940) {
			requireDays(t, day, dayEdges(change.Add(-27*time.Hour), change.Add(51*time.Hour), loc))
		}
	}
}

// TestWindowsOfWeeksAndMonths builds weeks and months of days, which the test
// above has checked.
func TestWindowsOfWeeksAndMonths(t *testing.T) {
	from, to := time.Date(1991, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2039, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range oddZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			days := throttle.CalendarWindow(1, throttle.Day, loc)
			weeks := throttle.CalendarWindow(1, throttle.Week, loc)
			months := throttle.CalendarWindow(1, throttle.Month, loc)

			monday, first := mondayOf(from.In(loc)), firstOf(from.In(loc))
			week, month := time.Time{}, time.Time{} // their starts, once one was seen
			for at := from; at.Before(to); {
				start, end := days.Window(at)
				if m := mondayOf(start); m != monday {
					requireWindow(t, weeks, week, start)
					monday, week = m, start
				}
				if f := firstOf(start); f != first {
					requireWindow(t, months, month, start)
					first, month = f, start
				}
				at = end
			}
		})
	}
}

// requireWindow checks that l has a window from start, if that is known, to
// end.
func requireWindow(t *testing.T, l throttle.Limit, start, end time.Time) {
	t.Helper()
	if start.IsZero() {
		return
	}
	samples := []time.Time{end.Add(-1)}
	for i := range time.Duration(48) {
		samples = append(samples, start.Add(i*end.Sub(start)/48))
	}
	for _, at := range samples {
		s, e := l.Window(at)
		if !s.Equal(start) || !e.Equal(end) {
			require.Fail(t, "wrong window", "%v at %v: %v to %v, want %v to %v", l, at, s, e, start, end)
		}
	}
}

func requireDays(t *testing.T, day throttle.Limit, edges []time.Time) {
	t.Helper()
	require.GreaterOrEqual(t, len(edges), 2, "too short a walk has no whole day")
	for i, start := range edges[:len(edges)-1] {
		requireWindow(t, day, start, edges[i+1])
	}
}

// dayEdges walks from a to b and returns the instants at which a later date
// begins than any that was shown since a. It looks at each minute, and at each
// second of a minute in which that happened.
func dayEdges(a, b time.Time, loc *time.Location) (edges []time.Time) {
	latest := dateOf(a.In(loc))
	for at := a; at.Before(b); at = at.Add(time.Minute) {
		date := dateOf(at.In(loc))
		if date <= latest {
			continue
		}
		edge := at.Add(-time.Minute)
		for dateOf(edge.In(loc)) <= latest {
			edge = edge.Add(time.Second)
		}
		latest, edges = date, append(edges, edge)
	}
	return edges
}

// dateOf packs a date into a number that grows with it.
func dateOf(t time.Time) int {
	year, month, day := t.Date()
	return (year*100+int(month))*100 + day
}

func mondayOf(t time.Time) int {
	year, week := t.ISOWeek()
	return year*100 + week
}

func firstOf(t time.Time) int { return dateOf(t) / 100 }

// changes returns the moments at which clocks in loc are changed, found by
// looking at them: a change that is undone within six hours is none.
func changes(loc *time.Location, from, to int) (changes []time.Time) {
	const step = 6 * time.Hour
	at := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; at.Year() < to; at = at.Add(step) {
		before := offset(at, loc)
		if offset(at.Add(step), loc) == before {
			continue
		}
		seconds := sort.Search(int(step/time.Second), func(s int) bool {
			return offset(at.Add(time.Duration(s)*time.Second), loc) != before
		})
		changes = append(changes, at.Add(time.Duration(seconds)*time.Second))
	}
	return changes
}

func offset(t time.Time, loc *time.Location) int {
	_, offset := t.In(loc).Zone()
	return offset
}

func BenchmarkWindow(b *testing.B) {
	at := time.Date(2026, 7, 15, 10, 30, 0, 0, time.UTC)
	limits := map[string]throttle.Limit{
		"fixed":          throttle.FixedWindow(1, 20*time.Second),
		"day UTC":        throttle.CalendarWindow(1, throttle.Day, nil),
		"day Berlin":     throttle.CalendarWindow(1, throttle.Day, zone(b, "Europe/Berlin")),
		"month Shanghai": throttle.CalendarWindow(1, throttle.Month, zone(b, "Asia/Shanghai")),
		"month Berlin":   throttle.CalendarWindow(1, throttle.Month, zone(b, "Europe/Berlin")),
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
	l := throttle.CalendarWindow(1, throttle.Month, zone(t, "Europe/Berlin"))
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Window(at) }))
}
