package store

import "time"

// Window returns the window of a FixedWindow or CalendarWindow that holds t: start belongs
// to the window, end to the next. Windows follow each other without gap or overlap. Both
// times are zero for limits of every other kind, and for limits that Validate refuses.
//
// A day of the calendar begins at the first instant whose local date is that day or a later
// one. That is midnight where midnight exists. Where clocks are put back over midnight it
// is the first of two midnights, so that a window never returns. A day that a zone leaves
// out has no window at all.
func (l Limit) Window(t time.Time) (start, end time.Time) {
	switch {
	case l.kind != KindFixedWindow:
		return time.Time{}, time.Time{}
	case l.loc != nil:
		return l.calendarWindow(t)
	}
	return l.fixedWindow(t)
}

// fixedWindow is Window for a FixedWindow: its windows begin at multiples of per since 1970.
func (l Limit) fixedWindow(t time.Time) (start, end time.Time) {
	if l.per <= 0 || l.per%time.Microsecond != 0 {
		return time.Time{}, time.Time{}
	}

	// into is how far t is in its window. Before 1970 the remainder is below 0.
	at, per := t.UnixMicro(), l.per.Microseconds()
	into := at % per
	if into < 0 {
		into += per
	}

	start = time.UnixMicro(at - into).UTC()
	return start, start.Add(l.per)
}

// calendarWindow is Window for a CalendarWindow.
func (l Limit) calendarWindow(t time.Time) (start, end time.Time) {
	if !l.unit.known() {
		return time.Time{}, time.Time{}
	}

	// The window lasts from the first instant of its first day to the first instant of the next unit.
	first := l.unit.firstDay(t.In(l.loc))
	next := l.unit.following(first)
	start, end = firstInstant(first, l.loc), firstInstant(next, l.loc)

	// Where clocks went back over midnight, the local date of t may be a date whose window is over.
	for !t.Before(end) {
		next = l.unit.following(next)
		start, end = end, firstInstant(next, l.loc)
	}

	return start, end
}

// firstDay returns the date on which the unit that holds t's date begins. In this
// file a date is its midnight in UTC, where a day is always 24 hours.
func (u Unit) firstDay(t time.Time) time.Time {
	year, month, day := t.Date()
	switch {
	case u == Day: // the date itself
	case u.isWeek():
		sinceFirst := (int(t.Weekday()-u.weekday()) + 7) % 7
		day -= sinceFirst
	case u == Month:
		day = 1
	case u == Quarter:
		month, day = month-(month-1)%3, 1
	case u == Year:
		month, day = time.January, 1
	}

	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// following returns the date on which the next unit begins. The unit before it begins on
// date.
func (u Unit) following(date time.Time) time.Time {
	switch {
	case u.isWeek():
		return date.AddDate(0, 0, 7)
	case u == Month:
		return date.AddDate(0, 1, 0)
	case u == Quarter:
		return date.AddDate(0, 3, 0)
	case u == Year:
		return date.AddDate(1, 0, 0)
	}
	return date.AddDate(0, 0, 1)
}

// firstInstant returns the first instant at which clocks in loc show date or
// later. [time.Date] does not say which instant it returns for a midnight that
// is left out or comes twice, so firstInstant walks through the stretches of time
// between two changes of the clocks.
func firstInstant(date time.Time, loc *time.Location) time.Time {
	at := date.AddDate(0, 0, -2).In(loc) // no clock is two days ahead of UTC
	for {
		// The offset of this stretch says when its clocks show midnight.
		start, end := zoneBounds(at)
		_, offset := at.Zone()
		midnight := date.Add(-time.Duration(offset) * time.Second).In(loc)

		switch {
		// The stretch is over before its midnight: go on with the next.
		case !end.IsZero() && !midnight.Before(end):
			at = end

		// The clocks were put forward over midnight: the stretch begins later on that date.
		case !start.IsZero() && midnight.Before(start):
			return start

		default:
			return midnight
		}
	}
}

// zoneBounds is t.ZoneBounds, except that its end lies after t. On the last day of a leap
// year the end that ZoneBounds returns does not (golang/go#81583, seen with Go 1.26), and a
// walk from end to end would never arrive.
func zoneBounds(t time.Time) (start, end time.Time) {
	const day = 24 * time.Hour
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = t.Truncate(day).Add(day) // the year's end in UTC
	}
	return start, end
}
