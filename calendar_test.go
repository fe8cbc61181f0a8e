package throttle_test

import (
	"sort"
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

func TestWindow(t *testing.T) {
	berlin, shanghai := zone(t, "Europe/Berlin"), zone(t, "Asia/Shanghai")
	fixed := func(per time.Duration) throttle.Limit { return throttle.FixedWindow(1, per) }
	calendar := func(u throttle.Unit, loc *time.Location) throttle.Limit {
		return throttle.CalendarWindow(1, u, loc)
	}
	for _, c := range []struct {
		name           string
		limit          throttle.Limit
		at, start, end string
	}{
		{"fixed, inside", fixed(20 * time.Second), "2026-01-02T03:04:39.999999999Z", "2026-01-02T03:04:20Z", "2026-01-02T03:04:40Z"},
		{"fixed, at its start", fixed(20 * time.Second), "2026-01-02T03:04:40Z", "2026-01-02T03:04:40Z", "2026-01-02T03:05:00Z"},
		{"fixed, before 1970", fixed(time.Minute), "1969-12-31T23:59:59Z", "1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z"},
		{"fixed, its start before 1970", fixed(time.Minute), "1969-12-31T23:59:00Z", "1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z"},
		{"fixed, seven seconds", fixed(7 * time.Second), "1970-01-01T00:00:13.5Z", "1970-01-01T00:00:07Z", "1970-01-01T00:00:14Z"},
		{"fixed, one microsecond", fixed(time.Microsecond), "1970-01-01T00:00:00.0000015Z", "1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000002Z"},
		{"fixed, counted from 1970 and not from year 1", fixed(72 * time.Hour), "1970-01-02T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-04T00:00:00Z"},

		{"day", calendar(throttle.Day, nil), "2026-01-02T03:04:05Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"},
		{"day in Shanghai", calendar(throttle.Day, shanghai), "2026-01-01T16:00:00Z", "2026-01-01T16:00:00Z", "2026-01-02T16:00:00Z"},
		{"day of 23 hours", calendar(throttle.Day, berlin), "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"day of 25 hours", calendar(throttle.Day, berlin), "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"week, on Monday", calendar(throttle.Week, nil), "2026-01-05T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"},
		{"week, on Sunday", calendar(throttle.Week, nil), "2026-01-04T23:59:59Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"month in Shanghai", calendar(throttle.Month, shanghai), "2026-01-31T15:59:59Z", "2025-12-31T16:00:00Z", "2026-01-31T16:00:00Z"},
		{"month of 28 days", calendar(throttle.Month, nil), "2026-02-28T12:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"month of 29 days", calendar(throttle.Month, nil), "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"no leap year", calendar(throttle.Month, nil), "2100-02-28T23:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"month of 30 days", calendar(throttle.Month, nil), "2026-04-30T12:00:00Z", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"},
		{"the last of a year", calendar(throttle.Month, nil), "2026-12-31T12:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},

		{"no midnight", calendar(throttle.Day, zone(t, "Africa/Cairo")), "2024-04-26T12:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		{"two midnights", calendar(throttle.Day, zone(t, "America/Havana")), "2024-11-03T05:30:00Z", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		{"the hour before midnight comes twice", calendar(throttle.Day, zone(t, "America/Sao_Paulo")), "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"a minute past midnight, then back", calendar(throttle.Day, zone(t, "America/St_Johns")), "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"before a day left out", calendar(throttle.Day, zone(t, "Pacific/Apia")), "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"after a day left out", calendar(throttle.Day, zone(t, "Pacific/Apia")), "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"the last day of a leap year", calendar(throttle.Day, berlin), "2040-12-31T12:00:00Z", "2040-12-30T23:00:00Z", "2040-12-31T23:00:00Z"},
		{"the day before it", calendar(throttle.Day, berlin), "2040-12-30T12:00:00Z", "2040-12-29T23:00:00Z", "2040-12-30T23:00:00Z"},
		{"the day after it", calendar(throttle.Day, berlin), "2041-01-01T12:00:00Z", "2040-12-31T23:00:00Z", "2041-01-01T23:00:00Z"},
		{"the second day after it", calendar(throttle.Day, berlin), "2041-01-02T12:00:00Z", "2041-01-01T23:00:00Z", "2041-01-02T23:00:00Z"},
		{"an offset of no sense", calendar(throttle.Day, time.FixedZone("", 100*3600)), "2026-01-02T03:04:05Z", "2026-01-01T20:00:00Z", "2026-01-02T20:00:00Z"},
		{"year 1", calendar(throttle.Day, nil), "0001-01-01T12:00:00Z", "0001-01-01T00:00:00Z", "0001-01-02T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start, end := c.limit.Window(instant(t, c.at))
			require.Equal(t, c.start, start.UTC().Format(time.RFC3339Nano))
			require.Equal(t, c.end, end.UTC().Format(time.RFC3339Nano))
		})
	}
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
