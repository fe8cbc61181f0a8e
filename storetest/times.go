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

// moment reads a time.
func (s *scope) moment(text string) moment {
	m, err := parseMoment(text)
	if err != nil {
		s.wrong("%v", err)
	}
	return m
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
		if n, err := strconv.Atoi(parts[2]); err == nil {
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

// sequence expands lists: 1s,2s..5s stands for five times, 1..5 for five numbers.
func (s *scope) sequence(items []string) (all []string) {
	for _, item := range items {
		from, to, ok := strings.Cut(item, "..")
		if !ok {
			all = append(all, item)
			continue
		}
		first, second, stepped := strings.Cut(from, ",")
		whole := func(text string) (int64, string) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil {
				return n, ""
			}
			return int64(s.moment(text).Duration), "ns"
		}
		a, _ := whole(first)
		end, unit := whole(to)
		step := int64(1)
		if stepped {
			b, _ := whole(second)
			step = b - a
		}
		if step <= 0 {
			s.wrong("%q does not rise", item)
			return all
		}
		for ; a <= end; a += step {
			all = append(all, strconv.FormatInt(a, 10)+unit)
		}
	}
	return all
}
