package throttle_test

import (
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
