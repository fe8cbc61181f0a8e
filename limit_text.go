package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseLimit reads a limit the way people write it and [Limit.String] prints
// it:
//
//	40/s                      SlidingWindow; s, m, h or any Go duration
//	10000/20s                 the same; 2d is 48 hours
//	40/s paced                LeakyBucket
//	100/m fixed               FixedWindow
//	100/day                   CalendarWindow in UTC; day, week or month
//	5000/month Asia/Shanghai  CalendarWindow in a zone of the IANA database
//	7/week +08:00             CalendarWindow at an offset from UTC
//	2/s burst 40              TokenBucket
//	20 in flight              Concurrency
//	unlimited                 Unlimited
//
// Spaces around the slash, "per" instead of it, and longer names of units
// ("10000 per 20 seconds") are understood too. Words are in lower case.
//
// A limit that ParseLimit returns passes all checks of [New] but the one that
// compares it with [Policy.Jitter]. An error says what was found, where, and
// which forms are understood.
func ParseLimit(s string) (Limit, error) {
	p := limitParser{text: s}
	l, err := p.limit()
	if err == nil {
		err = l.validate(0)
	}
	if err != nil {
		return Limit{}, fmt.Errorf("throttle: limit %q: %w", s, err)
	}
	return l, nil
}

// String prints the limit in the form that [ParseLimit] reads; the zero Limit
// is "no limit". Reading it back gives the same limit if [New] accepts it and
// its time zone has a name of the IANA database or a fixed offset.
func (l Limit) String() string {
	switch l.kind {
	case 0:
		return "no limit"
	case Open:
		return "unlimited"
	}
	text := strconv.Itoa(l.n) + "/"
	switch {
	case l.kind == InFlight:
		return strconv.Itoa(l.n) + " in flight"
	case l.kind == Bucket:
		return text + periodText(l.per) + " burst " + strconv.Itoa(l.burst)
	case l.loc != nil:
		return strings.TrimSpace(text + l.unit.text() + " " + zoneText(l.loc))
	case l.kind == Aligned:
		return text + periodText(l.per) + " fixed"
	case l.kind == Paced:
		return text + periodText(l.per) + " paced"
	}
	return text + periodText(l.per)
}

// MarshalText implements [encoding.TextMarshaler] with the text of
// [Limit.String]; the zero Limit is empty. A limit that could not be read back
// is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if l.kind == 0 {
		return []byte{}, nil
	}
	text := l.String()
	if _, err := ParseLimit(text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseLimit]; an
// empty text is the zero Limit.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

// periodText prints a length without what Duration.String adds to it: "m" and
// not "1m0s".
func periodText(d time.Duration) string {
	switch d {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// text is the unit's name in a limit's text.
func (u Unit) text() string {
	switch u {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	}
	return fmt.Sprintf("unit %d", uint8(u))
}

// zoneText names a zone; "" is UTC. A zone whose offset never changes is
// printed as that offset, because the name of a [time.FixedZone] is the
// caller's invention and may be somebody else's zone.
func zoneText(loc *time.Location) string {
	epoch := time.Unix(0, 0).In(loc)
	if start, end := epoch.ZoneBounds(); !start.IsZero() || !end.IsZero() {
		return loc.String()
	}
	switch _, offset := epoch.Zone(); {
	case offset == 0:
		return ""
	case offset%60 != 0:
		return epoch.Format("-07:00:00")
	}
	return epoch.Format("-07:00")
}
