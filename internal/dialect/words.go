package dialect

import (
	"regexp"
	"strings"
	"time"
)

// units are the names of units of time in sentences, in lower case, without the
// plural's s.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "msec": time.Millisecond, "milli": time.Millisecond, "millisecond": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
}

// chineseUnits are the Chinese units, which are written without a space.
var chineseUnits = []struct {
	name string
	unit time.Duration
}{
	{"毫秒", time.Millisecond}, {"秒", time.Second}, {"分", time.Minute},
	{"个小时", time.Hour}, {"小时", time.Hour}, {"天", 24 * time.Hour},
}

// leadingLength reads the length that a text begins with, at most [Most]: "39.237s",
// "2m30s", "5 seconds", "1 hour and 5 minutes", "an hour". It returns what follows.
// A length of 0 is none.
func leadingLength(text string) (d time.Duration, rest string, ok bool) {
	part, rest, ok := leadingPart(text)
	for ok {
		d = min(d+part, Most)

		// "and" or a comma belongs to the sentence if no second part follows.
		next := strings.TrimLeft(rest, " ,")
		next = strings.TrimLeft(strings.TrimPrefix(next, "and "), " ")
		part, next, ok = leadingPart(next)
		if ok {
			rest = next
		}
	}
	return d, rest, d > 0
}

// maxNumber is the largest number in front of a unit that is no nonsense.
const maxNumber = 1e9

// leadingPart reads a number with its unit, also with "more" between the two. ok is false above maxNumber, too.
func leadingPart(text string) (d time.Duration, rest string, ok bool) {
	n, rest, ok := leadingNumber(text)
	if !ok {
		return 0, text, false
	}
	rest = strings.TrimPrefix(strings.TrimLeft(rest, " "), "more ")
	unit, rest, ok := leadingUnit(rest)
	return Length(n, unit), rest, ok && n <= maxNumber
}

// leadingNumber reads "39.237", or 1 from "a", "an" or "one".
func leadingNumber(text string) (n float64, rest string, ok bool) {
	rest = strings.TrimLeft(text, "0123456789.")
	if n, ok := Number(text[:len(text)-len(rest)]); ok {
		return n, rest, true
	}

	for _, one := range []string{"a ", "an ", "one "} {
		if rest, ok := strings.CutPrefix(text, one); ok {
			return 1, rest, true
		}
	}
	return 0, text, false
}

// leadingUnit reads a Chinese unit, or an English one, which is a whole word: the "s" of "2m30s." and not the "s" of
// "samples".
func leadingUnit(text string) (unit time.Duration, rest string, ok bool) {
	for _, c := range chineseUnits {
		if rest, ok := strings.CutPrefix(text, c.name); ok {
			return c.unit, rest, true
		}
	}

	rest = strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	word := strings.ToLower(text[:len(text)-len(rest)])
	unit, ok = units[word]
	if !ok {
		unit, ok = units[strings.TrimSuffix(word, "s")]
	}

	// A plural may be written as in "second(s)".
	return unit, strings.TrimPrefix(rest, "(s)"), ok
}

var (
	// asks finds words that ask to come again, with the words behind them up to a digit: there a length or a moment may stand.
	asks = regexp.MustCompile(`(?i)(?:retry|try|again|wait|available|resets?|resum(?:es?|ed)|expires?|back|lifted|unlock(?:s|ed)?|等待|重试)[^0-9.!?。！？\n]{0,48}`)

	// bare finds those texts of asks behind which a number without a unit counts seconds.
	bare = regexp.MustCompile(`(?i)^(?:retry|try|wait)(?:[\s-]again)?(?:[\s-](?:in|after|for))?[\s:=]*$`)

	// later finds a length in front of the Chinese word for "after".
	later = regexp.MustCompile(`(\d+(?:\.\d+)? ?(?:毫秒|秒|分|个?小时|天))[钟之以]*后`)

	// joins finds any "in" or "after", with the word in front of it.
	joins = regexp.MustCompile(`(?i)(?:^|(\w*)\W+)(?:in|after)\s+(?:about |approximately |at least |another )?`)

	// counted finds what stands in front of an "in" that tells of a limit, and not of a wait: "100 requests in 1 minute".
	counted = regexp.MustCompile(`(?i)^(?:\d+|request|call|time|token|message|attempt|quer|point)(?:y|s|ies)?$`)
)

// Sentence is the dialect of sentences for people: "Please retry in 39.237s.", "try
// again in 2m30s", "Retry after 2020-01-21T12:57:51Z", "in 1 hour", "请在30秒后重试". A
// length or a moment behind words that ask to come again counts before any other
// length. A text that is no sentence is read as by [Common].
func Sentence(text string, sent time.Time) (time.Duration, bool) {
	for _, at := range asks.FindAllStringIndex(text, -1) {
		phrase, rest := text[at[0]:at[1]], text[at[1]:]
		if rest == "" || !digits(rest[:1]) {
			continue
		}
		if d, ok := leading(rest, sent, bare.MatchString(phrase)); ok {
			return d, true
		}
	}

	// In Chinese the word for "after" stands behind the length.
	if at := later.FindStringSubmatch(text); at != nil {
		d, _, ok := leadingLength(at[1])
		return d, ok
	}

	// Without words that ask to come again, any "in" or "after" is worth a look, unless it tells of a limit.
	for _, at := range joins.FindAllStringSubmatchIndex(text, -1) {
		if at[2] >= 0 && counted.MatchString(text[at[2]:at[3]]) {
			continue
		}
		if d, _, ok := leadingLength(text[at[1]:]); ok {
			return d, true
		}
	}

	return Common(text, sent)
}

// maxWords is how many words a moment may have.
const maxWords = 6

// leading reads the length or the moment that a text begins with. withBare says that a
// number without a unit counts seconds, if nothing follows it.
func leading(text string, sent time.Time, withBare bool) (d time.Duration, ok bool) {
	if d, _, ok := leadingLength(text); ok {
		return d, true
	}

	// A moment may have spaces: try the most words first, so that the zone is not cut off.
	text, _, _ = strings.Cut(text, `"`)
	words := strings.SplitN(text, " ", maxWords+1)
	for n := min(len(words), maxWords); n > 0 && !ok; n-- {
		phrase := strings.TrimRight(strings.Join(words[:n], " "), `.,;:!?)]}"'。`)
		_, isNumber := Number(phrase)
		isBare := withBare && n == len(words)
		if !isNumber || isBare {
			d, ok = Common(phrase, sent)
		}
	}

	return d, ok
}
