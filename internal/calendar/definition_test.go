// Package calendar_test compares the windows of calendars with their definition, in many zones and
// years. That is much arithmetic: in a package of its own, make test does it without the race detector
// and compiles little for it.
package calendar_test

import (
	"archive/zip"
	"go/build"
	"net/http"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
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
	soak.WithoutRace(t)
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

// TestWindowsOfWeeksAndMonths builds weeks, months, quarters and years of days, which the test
// above has checked.
func TestWindowsOfWeeksAndMonths(t *testing.T) {
	soak.WithoutRace(t)
	units := map[store.Unit]func(time.Time) int{
		throttle.Week: mondayOf, throttle.WeekFrom(time.Sunday): weekFrom(time.Sunday), throttle.WeekFrom(time.Saturday): weekFrom(time.Saturday),
		throttle.Month: firstOf, throttle.Quarter: quarterOf, throttle.Year: time.Time.Year,
	}
	from, to := time.Date(1991, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2039, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range oddZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			days := throttle.CalendarWindow(1, throttle.Day, loc)
			present := make(map[store.Unit]int)
			starts := make(map[store.Unit]time.Time) // once one was seen
			for unit, of := range units {
				present[unit] = of(from.In(loc))
			}

			for at := from; at.Before(to); {
				start, end := days.Window(at)
				for unit, of := range units {
					if number := of(start); number != present[unit] {
						requireWindow(t, throttle.CalendarWindow(1, unit, loc), starts[unit], start)
						present[unit], starts[unit] = number, start
					}
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

// weekFrom returns the function that numbers weeks from a day.
func weekFrom(day time.Weekday) func(time.Time) int {
	return func(t time.Time) int {
		year, month, date := t.Date()
		for time.Date(year, month, date, 0, 0, 0, 0, time.UTC).Weekday() != day {
			date--
		}
		return dateOf(time.Date(year, month, date, 0, 0, 0, 0, time.UTC))
	}
}

func quarterOf(t time.Time) int { return t.Year()*4 + (int(t.Month())-1)/3 }

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

// allZones returns the names of all zones that come with Go.
func allZones(t *testing.T) (names []string) {
	t.Helper()
	database, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer database.Close()
	for _, f := range database.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	require.Greater(t, len(names), 400)
	return names
}

// TestPenaltiesUntilMidnight: in every zone, around every change of its clocks, a penalty until midnight
// ends at the first minute that shows a later date, and one until the first of the month at the first
// minute of a later month. No penalty is negative or zero.
func TestPenaltiesUntilMidnight(t *testing.T) {
	soak.WithoutRace(t)
	checked := 0
	for _, name := range allZones(t) {
		loc := zone(t, name)
		midnight, first := feedback.UntilMidnight(loc), feedback.UntilFirst(loc)
		for _, change := range changes(loc, soak.Most(1995, 2023), 2031) {
			from := change.Add(-27 * time.Hour)
			edges := dayEdges(from, change.Add(30*time.Hour), loc)
			for at := edges[0]; at.Before(change.Add(3 * time.Hour)); at = at.Add(11 * time.Minute) {
				later := edges[slices.IndexFunc(edges, at.Before):]
				resp := &http.Response{StatusCode: 429, Header: http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}}
				require.Equal(t, min(later[0].Sub(at), throttle.MaxPenalty), midnight(resp).Close, "%s at %s", name, at)

				want := throttle.MaxPenalty
				month := func(edge time.Time) bool { return firstOf(edge.In(loc)) > firstOf(later[0].Add(-time.Second).In(loc)) }
				if i := slices.IndexFunc(later, month); i >= 0 {
					want = min(want, later[i].Sub(at))
				}
				require.Equal(t, want, first(resp).Close, "%s at %s", name, at)
				checked++
			}
		}
	}
	require.Greater(t, checked, 100_000)
}
