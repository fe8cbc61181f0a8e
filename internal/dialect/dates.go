package dialect

import (
	"net/http"
	"strings"
	"time"
)

// date parses a moment in a form of HTTP, of ISO 8601 or of mail, or as common languages print one.
// unit is the precision of the form. A text without a zone is rejected: the moment may be hours
// away.
func date(text string) (moment time.Time, unit time.Duration, ok bool) {
	// To parse takes long, and most texts are too short for a moment, or far too long.
	if len(text) < len("2006-01-02T15Z") || len(text) > len("Fri Jan 02 2026 03:04:35 GMT+0000 (Coordinated Universal Time)") {
		return time.Time{}, 0, false
	}

	if moment, err := http.ParseTime(text); err == nil {
		return moment, time.Second, true
	}
	if digits(text[:4]) && text[4] == '-' {
		return isoDate(text)
	}

	// Rewrite the zones of JavaScript and of mail as offsets, so that few forms are enough.
	text, _, _ = strings.Cut(text, " (")
	text = strings.Replace(text, "GMT+", "+", 1)
	text = strings.Replace(text, "GMT-", "-", 1)
	text = strings.Replace(text, "UTC", "+0000", 1)
	text = strings.Replace(text, "GMT", "+0000", 1)

	return parsed(text, mailDates)
}

// A form is a layout of moments.
type form struct {
	layout string
	unit   time.Duration // of the smallest part that is written
}

// isoDates are the forms of ISO 8601, and mailDates the forms of mail (RFC 5322), of JavaScript and
// of Ruby, after the rewriting in date and isoDate.
var (
	isoDates = []form{
		{"2006-01-02T15:04:05Z07:00", time.Second}, {"2006-01-02T15:04:05Z0700", time.Second}, {"2006-01-02T15:04:05Z07", time.Second},
		{"2006-01-02T15:04Z07:00", time.Minute}, {"2006-01-02T15:04Z0700", time.Minute}, {"2006-01-02T15:04Z07", time.Minute},
		{"2006-01-02T15Z07:00", time.Hour}, {"2006-01-02T15Z0700", time.Hour}, {"2006-01-02T15Z07", time.Hour},
	}
	mailDates = []form{
		{"Mon, 2 Jan 2006 15:04:05 -0700", time.Second}, {"2 Jan 2006 15:04:05 -0700", time.Second},
		{"Mon, 2 Jan 2006 15:04 -0700", time.Minute}, {"2 Jan 2006 15:04 -0700", time.Minute},
		{"Mon Jan 2 2006 15:04:05 -0700", time.Second}, {"Mon Jan _2 15:04:05 -0700 2006", time.Second},
	}
)

// isoDate is date for ISO 8601, also with blanks between the date, the time and the zone,
// and with the zone's name: "2026-01-02T03:04:35Z", "2026-01-02 03:04 UTC",
// "2026-01-02 03:04:35 +0000 UTC".
func isoDate(text string) (moment time.Time, unit time.Duration, ok bool) {
	const day = len("2006-01-02")
	separator, clock := text[day], strings.ToUpper(text[day+1:])
	if separator != 'T' && separator != 't' && separator != ' ' {
		return time.Time{}, 0, false
	}

	// A name of the zone behind an offset repeats it. Without an offset the name is the zone.
	clock, utc := strings.CutSuffix(strings.Replace(clock, "GMT", "UTC", 1), "UTC")
	clock = strings.ReplaceAll(clock, " ", "")
	if utc && !strings.ContainsAny(clock, "+-Z") {
		clock += "Z"
	}
	return parsed(text[:day]+"T"+clock, isoDates)
}

// parsed reads a moment in the first of the forms that fits. ok is false if none fits.
func parsed(text string, forms []form) (moment time.Time, unit time.Duration, ok bool) {
	for _, f := range forms {
		moment, err := time.Parse(f.layout, text)
		if err == nil {
			return moment, f.unit, true
		}
	}
	return time.Time{}, 0, false
}

// UnitOf returns the unit that a layout of [time.Parse] cuts moments to, from a second
// to a day: a finer layout counts as of seconds, and a coarser one as of days.
func UnitOf(layout string) time.Duration {
	const day = 24 * time.Hour
	moment := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	text := moment.Format(layout)
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if moment.Add(unit).Format(layout) != text {
			return unit
		}
	}
	return day
}
