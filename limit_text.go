package throttle

import (
	"strconv"
	"strings"
	"time"
)

// String prints the limit in the form that [ParseLimit] reads; the zero Limit
// is "no limit". Reading it back gives the same limit if [New] accepts it and
// its time zone has a name of the IANA database or a fixed offset.
func (l Limit) String() string {
	switch l.kind {
	case 0:
		return "no limit"
	case KindUnlimited:
		return "unlimited"
	}
	text := strconv.Itoa(l.n) + "/"
	switch {
	case l.kind == KindConcurrency:
		return strconv.Itoa(l.n) + " in flight"
	case l.kind == KindTokenBucket:
		return text + periodText(l.per) + " burst " + strconv.Itoa(l.burst)
	case l.loc != nil:
		return strings.TrimSpace(text + l.unit.text() + " " + zoneText(l.loc))
	case l.kind == KindFixedWindow:
		return text + periodText(l.per) + " fixed"
	case l.kind == KindLeakyBucket:
		return text + periodText(l.per) + " paced"
	}
	return text + periodText(l.per)
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

// zoneText names a zone; "" is UTC. A zone whose offset never changes is
// printed as that offset, because the name of a [time.FixedZone] is the
// caller's invention and may be the name of another zone.
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
