package storetest

import (
	"time"
	_ "time/tzdata" // zones with summer time, also where the system has none

	"github.com/fleetthrottle/throttle"
)

// alignedChecks are about windows that begin at fixed moments. A bench begins
// at a full second of the Unix epoch.
var alignedChecks = []check{
	{"P1_FixedWindowResets", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.at(900 * ms)
		b.starts(2, 900*ms, two)
		b.starts(2, sec, two) // at once after the edge: twice n, as documented
		b.starts(2, 2*sec, two)
		b.at(2*sec - tick)
		b.refused(3*sec, two)
		b.at(2 * sec)
		b.refused(3*sec, two)
		b.at(3 * sec)
		b.starts(2, 3*sec, two)
	}},

	{"P1_FixedWindowLastMoment", func(b *bench) {
		one := charge("one", throttle.FixedWindow(1, sec))
		b.at(sec - tick)
		b.start(sec-tick, one)
		b.start(sec, one)
	}},

	{"P1_FixedWindowCosts", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, sec))
		b.at(500 * ms)
		b.start(500*ms, costing(ten, 7))
		b.start(sec, costing(ten, 4))
		b.start(500*ms, costing(ten, 3))
		b.start(2*sec, costing(ten, 7))
		b.start(sec, costing(ten, 6))
		b.start(2*sec, costing(ten, 3))
		b.start(3*sec, ten)
	}},

	{"P1_FixedWindowOfOddLength", func(b *bench) {
		// 946,684,800 s after the epoch is 2 s before the end of a window of 7 s.
		one := charge("one", throttle.FixedWindow(1, 7*sec))
		b.start(0, one)
		b.refused(2*sec, one)
		b.start(2*sec, one)
		b.start(9*sec, one)
	}},

	{"P1_FixedWindowLaterStart", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.later(1300*ms, two)
		b.starts(2, 0, two)
		b.start(sec, two)
		b.start(2*sec, two)
	}},

	{"P2_FixedWindowJitter", func(b *bench) {
		five := late(charge("five", throttle.FixedWindow(5, sec)), 100*ms)
		b.at(900*ms - tick)
		b.start(900*ms-tick, five)
		b.at(900 * ms)
		b.refused(sec, five) // it could arrive in the next window
		b.start(sec, five)
		b.at(sec)
		b.starts(4, sec, five)
		b.refused(2*sec, five)
	}},
}

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
