package storetest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A moment is a time since the beginning of a case, or since now.
type moment struct {
	time.Duration
	relative bool
}

// since returns the time since the beginning of the case.
func (m moment) since(now time.Duration) time.Duration {
	if m.relative {
		return now + m.Duration
	}
	return m.Duration
}

var term = regexp.MustCompile(`^([+-]?)(?:(\d+)\*)?([0-9.]+[a-zµ0-9.]*)`)

// parseMoment reads a time as a sum, 2s+2us or 3*20s-1us; +1s and now are since now.
func parseMoment(text string) (m moment, err error) {
	m.relative = strings.HasPrefix(text, "+") || text == "now"
	rest := text
	if text == "now" {
		rest = ""
	}
	if text == "" {
		return m, errors.New("a time is missing")
	}

	for rest != "" && err == nil {
		parts := term.FindStringSubmatch(rest)
		if parts == nil {
			return m, fmt.Errorf("%q is no time", text)
		}

		d, wrong := duration(parts[3])
		if wrong != nil {
			err = fmt.Errorf("%q is no time", text)
		}
		if n, err := strconv.ParseInt(parts[2], 10, 64); err == nil {
			d *= time.Duration(n)
		}
		if parts[1] == "-" {
			d = -d
		}

		m.Duration += d
		rest = rest[len(parts[0]):]
	}

	return m, err
}

// duration is time.ParseDuration that knows days.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
