package throttle

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

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
	pos   int    // the offset in text of what is read next
	forms string // what is understood, for errors
}

// end reads nothing more.
func (p *limitParser) end() error {
	if _, more := p.word(); more < len(p.text) {
		return p.unexpected(more, "the end of a limit")
	}
	return nil
}

// count reads how many starts are allowed.
func (p *limitParser) count() (int, error) {
	p.skipSpace()
	at := p.pos
	p.pos = len(p.text) - len(strings.TrimLeft(p.text[at:], "0123456789"))
	number := p.text[at:p.pos]
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

// separator reads a slash, which needs no space behind it, or a word.
func (p *limitParser) separator() (word string, at int) {
	p.skipSpace()
	if strings.HasPrefix(p.text[p.pos:], "/") {
		p.pos++
		return "/", p.pos - 1
	}
	return p.word()
}

// period reads a period of the calendar or a length.
func (p *limitParser) period() (Unit, time.Duration, error) {
	word, at := p.word()
	switch word {
	case "day":
		return Day, 0, nil
	case "week":
		return Week, 0, nil
	case "month":
		return Month, 0, nil
	case "d":
		return 0, 0, p.unexpected(at, `clear (is it "day", by the calendar, or any "24h"?)`)
	}
	per, ok := p.length(word)
	if !ok {
		return 0, 0, p.unexpected(at, "a period")
	}
	return 0, per, nil
}

// length reads "s", "20s", "1m30s", "20sec", "2d", and "20 seconds" by taking
// the next word too.
func (p *limitParser) length(word string) (time.Duration, bool) {
	unit := strings.TrimLeft(word, "0123456789.")
	number := strings.TrimSuffix(word, unit)
	if number != "" && unit == "" {
		unit, _ = p.word()
	}
	short, known := lengthNames[unit]
	switch {
	case known && number == "":
		number = "1"
	case known:
	case unit == "d":
		hours, err := time.ParseDuration(number + "h")
		return 24 * hours, err == nil && hours <= math.MaxInt64/24
	default:
		short = unit
	}
	d, err := time.ParseDuration(number + short)
	return d, err == nil
}

// word reads up to the next space.
func (p *limitParser) word() (word string, at int) {
	p.skipSpace()
	at = p.pos
	p.pos = len(p.text)
	if n := strings.IndexFunc(p.text[at:], unicode.IsSpace); n >= 0 {
		p.pos = at + n
	}
	return p.text[at:p.pos], at
}

func (p *limitParser) skipSpace() {
	rest := strings.TrimLeftFunc(p.text[p.pos:], unicode.IsSpace)
	p.pos = len(p.text) - len(rest)
}

// unexpected says that what stands from at to here is not what was wanted.
func (p *limitParser) unexpected(at int, want string) error {
	found := "the end"
	if at < len(p.text) {
		found = strconv.Quote(p.text[at:p.pos])
	}
	return fmt.Errorf("%s at offset %d is not %s; understood are %s", found, at, want, p.forms)
}

// parseZone reads what zoneText prints.
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
