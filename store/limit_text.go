package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// String prints the limit in the form that [ParseLimit] reads. The zero Limit is "no
// limit". ParseLimit returns an equal limit for the text if l is valid and its time zone
// has a name of the IANA database or a fixed offset.
func (l Limit) String() string {
	switch l.kind {
	case 0:
		return "no limit"
	case KindUnlimited:
		return "unlimited"
	case KindTold:
		return "told"
	}

	// Every other text begins with the number.
	text := strconv.Itoa(l.n)
	switch {
	case l.kind == KindConcurrency:
		return text + " in flight"
	case l.kind == KindTokenBucket:
		return text + "/" + periodText(l.per) + " burst " + strconv.Itoa(l.burst)

	// The text of UTC is empty, so no space is left behind the unit.
	case l.loc != nil:
		return strings.TrimSpace(text + "/" + l.unit.text() + " " + zoneText(l.loc))
	case l.kind == KindFixedWindow:
		return text + "/" + periodText(l.per) + " fixed"
	case l.kind == KindLeakyBucket:
		return text + "/" + periodText(l.per) + " paced"
	}

	return text + "/" + periodText(l.per)
}

// ParseLimit reads a limit the way people write it and [Limit.String] prints
// it:
//
//	40/s                      SlidingWindow; s, m, h or any Go duration
//	10000/20s                 the same; 2d is 48 hours
//	40/s paced                LeakyBucket
//	100/m fixed               FixedWindow
//	100/day                   CalendarWindow in UTC; day, week, month, quarter or year
//	500/week Sunday           CalendarWindow of weeks from Sunday; from any day of the week
//	5000/month Asia/Shanghai  CalendarWindow in a zone of the IANA database
//	7/week +08:00             CalendarWindow at an offset from UTC
//	2/s burst 40              TokenBucket
//	20 in flight              Concurrency
//	unlimited                 Unlimited
//	told                      Told
//
// Spaces around the slash, "per" instead of it, and longer names of units
// ("10000 per 20 seconds") are understood too. Words are in lower case; days of the
// week may be in any.
//
// A limit that ParseLimit returns is valid, except that its window may be too short
// for a policy's Jitter. An error quotes the text that was not understood, with its
// offset, and lists the forms that are.
func ParseLimit(s string) (Limit, error) {
	p := limitParser{text: s, forms: limitForms}
	l, err := p.limit()
	if err == nil {
		err = l.Validate(0)
	}
	if err != nil {
		return Limit{}, fmt.Errorf("throttle: limit %q: %w", s, err)
	}
	return l, nil
}

// MarshalText implements [encoding.TextMarshaler] with the text of [Limit.String]. The zero
// Limit is the empty text. MarshalText returns an error for a limit that UnmarshalText
// could not read.
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

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseLimit]. The empty text is
// the zero Limit.
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

// limitForms stands in every error of ParseLimit about the form of a text.
const limitForms = `"40/s", "10000/20s", "40/s paced", "100/m fixed", "100/day", "5000/month Asia/Shanghai", "2/s burst 40", "20 in flight", "unlimited" and "told"`

// limit reads the whole text: a word alone, or a number, a separator, a period, and the words that the forms of
// ParseLimit have behind a period.
func (p *limitParser) limit() (Limit, error) {
	switch word, _ := p.word(); word {
	case "unlimited":
		return Unlimited(), p.end()
	case "told":
		return Told(), p.end()
	}

	// The first word is no name of a limit, so read it again as a number.
	p.pos = 0
	n, err := p.count()
	if err != nil {
		return Limit{}, err
	}

	switch word, at := p.separator(); word {
	// A period follows, which is read below.
	case "/", "per":

	case "in":
		return p.inFlight(n)
	default:
		return Limit{}, p.unexpected(at, `"/", "per" or "in flight"`)
	}

	unit, per, err := p.period()
	if err != nil {
		return Limit{}, err
	}

	// Only a burst is followed by a number. Every other form ends with the word behind the period, or with the period.
	word, at := p.word()
	if word == "burst" && unit == 0 {
		return p.bucket(n, per)
	}
	if err := p.end(); err != nil {
		return Limit{}, err
	}

	// Behind a period of the calendar the word is a zone, or "" for UTC.
	if unit != 0 {
		loc, err := parseZone(word)
		if err != nil {
			return Limit{}, fmt.Errorf("%q at offset %d is not a known time zone: write it like Asia/Shanghai or +08:00, "+
				"and import time/tzdata if this system has no zones", word, at)
		}

		return CalendarWindow(n, unit, loc), nil
	}

	switch word {
	case "":
		return SlidingWindow(n, per), nil
	case "paced":
		return LeakyBucket(n, per), nil
	case "fixed":
		return FixedWindow(n, per), nil
	}

	return Limit{}, p.unexpected(at, `"paced", "fixed", "burst" or the end`)
}

// bucket reads the burst and the end of the text, after the word "burst".
func (p *limitParser) bucket(n int, per time.Duration) (Limit, error) {
	burst, err := p.count()
	if err == nil {
		err = p.end()
	}
	return TokenBucket(n, per, burst), err
}

// inFlight reads the word "flight" and the end of the text, after the word "in".
func (p *limitParser) inFlight(n int) (Limit, error) {
	if word, at := p.word(); word != "flight" {
		return Limit{}, p.unexpected(at, `"flight"`)
	}
	return Concurrency(n), p.end()
}

// periodText prints a length in fewer letters than Duration.String: "m" and not "1m0s".
func periodText(d time.Duration) string {
	switch d {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	}

	// Leave out the parts that are 0: "1h0m0s" becomes "1h".
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}

// zoneText names a zone. A zone whose offset never changes is printed as that offset,
// because the name of a [time.FixedZone] is the caller's invention and may be the name of a
// real zone. An offset of 0, such as that of UTC, is "".
func zoneText(loc *time.Location) string {
	// A zone whose offset begins or ends at some time is a real zone, which has a name.
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

// lengthNames maps the names of units of time to the names that time.ParseDuration
// knows. It has no days: see limitParser.length.
var lengthNames = map[string]string{
	"s": "s", "sec": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "minute": "m", "minutes": "m",
	"h": "h", "hour": "h", "hours": "h",
}

// A limitParser reads one text from left to right.
type limitParser struct {
	text  string
	pos   int    // the offset in text of the next byte to read
	forms string // the forms that are understood, for errors
}

// end returns an error if the text goes on.
func (p *limitParser) end() error {
	if _, at := p.word(); at < len(p.text) {
		return p.unexpected(at, "the end of a limit")
	}
	return nil
}

// count reads a whole number of starts or tokens, after any spaces.
func (p *limitParser) count() (int, error) {
	p.skipSpace()
	at, rest := p.pos, p.text[p.pos:]
	number := strings.TrimSuffix(rest, strings.TrimLeft(rest, "0123456789"))
	p.pos += len(number)

	// Read the word that stands here, because unexpected quotes the text up to pos.
	if number == "" {
		p.word()
		return 0, p.unexpected(at, "a whole number of starts")
	}

	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("%s at offset %d is too large: allow at most %d starts", number, at, int64(min(maxStarts, math.MaxInt)))
	}

	return n, nil
}

// separator reads a slash, which needs no space behind it, or a word. at is its
// offset in the text.
func (p *limitParser) separator() (word string, at int) {
	p.skipSpace()
	if strings.HasPrefix(p.text[p.pos:], "/") {
		p.pos++
		return "/", p.pos - 1
	}
	return p.word()
}

// period reads a period of the calendar, with a length of 0, or a length, with the
// unit 0.
func (p *limitParser) period() (Unit, time.Duration, error) {
	// "d" alone is refused: nobody knows whether it means a day of the calendar or 24 hours.
	word, at := p.word()
	switch word {
	case "day":
		return Day, 0, nil
	case "week":
		return p.week(), 0, nil
	case "month":
		return Month, 0, nil
	case "quarter":
		return Quarter, 0, nil
	case "year":
		return Year, 0, nil
	case "d":
		return 0, 0, p.unexpected(at, `clear (is it "day", by the calendar, or any "24h"?)`)
	}

	per, ok := p.length(word)
	if !ok {
		return 0, 0, p.unexpected(at, "a period")
	}

	return 0, per, nil
}

// week reads the day on which a week begins, if a day follows the word "week". If
// none does, it reads nothing, and the week begins on Monday.
func (p *limitParser) week() Unit {
	before := p.pos
	word, _ := p.word()
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.EqualFold(word, day.String()) {
			return WeekFrom(day)
		}
	}

	// The word is not a day, so it is left to be read as a zone.
	p.pos = before
	return Week
}

// length reads a length of time that begins with word: "s", "20s", "1m30s", "20sec",
// "2d", and "20 seconds" by taking the next word too. It returns false if the text is no
// length.
func (p *limitParser) length(word string) (time.Duration, bool) {
	// Split the word into the number in front and the rest. Behind a number alone, the next word is the unit.
	unit := strings.TrimLeft(word, "0123456789.")
	number := strings.TrimSuffix(word, unit)
	if number != "" && unit == "" {
		unit, _ = p.word()
	}

	short, known := lengthNames[unit]
	switch {
	case known && number == "":
		number = "1"

	// The number and the unit are complete.
	case known:

	// A day is read as an hour, and counts 24 times.
	case unit == "d":
		hours, err := time.ParseDuration(number + "h")
		return 24 * hours, err == nil && hours <= math.MaxInt64/24

	// time.ParseDuration may know the unit, or the rest of a text such as "1m30s".
	default:
		short = unit
	}

	d, err := time.ParseDuration(number + short)
	return d, err == nil
}

// word reads up to the next space, after any spaces. at is the word's offset in the
// text. At the end of the text the word is "".
func (p *limitParser) word() (word string, at int) {
	p.skipSpace()
	at = p.pos
	p.pos = len(p.text)
	if n := strings.IndexFunc(p.text[at:], unicode.IsSpace); n >= 0 {
		p.pos = at + n
	}
	return p.text[at:p.pos], at
}

// skipSpace moves to the next byte that is no space.
func (p *limitParser) skipSpace() {
	rest := strings.TrimLeftFunc(p.text[p.pos:], unicode.IsSpace)
	p.pos = len(p.text) - len(rest)
}

// unexpected returns the error that the text between at and pos is not the wanted form.
func (p *limitParser) unexpected(at int, want string) error {
	found := "the end"
	if at < len(p.text) {
		found = strconv.Quote(p.text[at:p.pos])
	}
	return fmt.Errorf("%s at offset %d is not %s; understood are %s", found, at, want, p.forms)
}

// parseZone reads a zone as zoneText prints it.
func parseZone(name string) (*time.Location, error) {
	switch {
	case name == "":
		return time.UTC, nil
	case name[0] != '+' && name[0] != '-':
		return time.LoadLocation(name)
	}

	for _, layout := range []string{"-07:00", "-07:00:00"} {
		if t, err := time.Parse(layout, name); err == nil {
			_, offset := t.Zone()
			return time.FixedZone(name, offset), nil
		}
	}

	return nil, errors.New("not an offset")
}
