package storetest

import (
	"time"
	_ "time/tzdata" // zones with summer time, also where the system has none

	"github.com/fleetthrottle/throttle"
)

// calendarChecks are about days, weeks and months. A bench begins on Saturday,
// 1 January 2000, at midnight UTC.
var calendarChecks = []check{
	{"P1_CalendarDay", func(b *bench) {
		two := charge("two", throttle.CalendarWindow(2, throttle.Day, nil))
		b.at(23 * time.Hour)
		b.starts(2, 23*time.Hour, two)
		b.refused(24*time.Hour, two)
		b.starts(2, 24*time.Hour, two)
		b.start(48*time.Hour, two)
	}},

	{"P1_CalendarDayInAZone", func(b *bench) {
		shanghai := time.FixedZone("UTC+8", 8*60*60)
		one := charge("one", throttle.CalendarWindow(1, throttle.Day, shanghai))
		b.start(0, one)
		b.start(16*time.Hour, one)
		b.start(40*time.Hour, one)
	}},

	{"P1_CalendarWeek", func(b *bench) {
		one := charge("one", throttle.CalendarWindow(1, throttle.Week, nil))
		b.start(0, one)
		b.start(2*24*time.Hour, one) // Monday the 3rd
		b.start(9*24*time.Hour, one)
	}},

	{"P1_CalendarMonth", func(b *bench) {
		one := charge("one", throttle.CalendarWindow(1, throttle.Month, nil))
		b.start(0, one)
		b.start(b.until(2000, time.February, 1, time.UTC), one)
		b.start(b.until(2000, time.March, 1, time.UTC), one) // after 29 days
		b.at(b.until(2000, time.March, 31, time.UTC))
		b.start(b.until(2000, time.April, 1, time.UTC), one)
	}},

	{"P1_CalendarSummerTime", func(b *bench) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			b.fatalf("no time zone: %v", err)
		}
		one := charge("one", throttle.CalendarWindow(1, throttle.Day, berlin))
		b.at(b.until(2000, time.March, 26, berlin)) // 23 hours long
		b.start(b.now(), one)
		b.start(b.now()+23*time.Hour, one)
		b.at(b.until(2000, time.October, 29, berlin)) // 25 hours long
		b.start(b.now(), one)
		b.start(b.now()+25*time.Hour, one)
	}},

	{"P2_CalendarJitter", func(b *bench) {
		nine := late(charge("nine", throttle.CalendarWindow(9, throttle.Day, nil)), sec)
		b.at(24*time.Hour - sec)
		b.refused(24*time.Hour, nine)
		b.start(24*time.Hour, nine)
	}},
}

// until returns the time from the bench's beginning to midnight of a day.
func (b *bench) until(year int, month time.Month, day int, loc *time.Location) time.Duration {
	return time.Date(year, month, day, 0, 0, 0, 0, loc).Sub(b.zero)
}
