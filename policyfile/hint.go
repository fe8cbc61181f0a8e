package policyfile

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// didYouMean returns a hint if a name is near to the written text.
func didYouMean(written string, names []string) string {
	written = strings.ToLower(written)
	length := utf8.RuneCountInString(written)

	best, least := "", 0
	for _, name := range names {
		// A third of the letters may differ, but never all of them.
		n := utf8.RuneCountInString(name)
		most := min(max(1, (n+1)/3), n-1)

		// The length alone rules most names out, so their distance need not be computed.
		if length-n > most || n-length > most {
			continue
		}
		if d := levenshtein.ComputeDistance(written, strings.ToLower(name)); d <= most && (best == "" || d < least) {
			best, least = name, d
		}
	}

	if best == "" {
		return ""
	}

	return fmt.Sprintf(" (did you mean %q?)", best)
}

// hint is didYouMean for names of the file's own, which may be many: mistakes that are not
// printed have no hint.
func (r *reader) hint(written string, names []string) string {
	if len(r.errs) > mostShown {
		return ""
	}
	return didYouMean(written, names)
}

// oddSpace returns a hint if a space that is not a plain one stands around a text.
func oddSpace(text string) string {
	odd := func(c rune) bool { return unicode.IsSpace(c) || unicode.Is(unicode.Cf, c) }
	if strings.TrimFunc(text, odd) != text {
		return " (a space that is not a plain one stands before or behind it)"
	}
	return ""
}

// joined is a name and a value without the space between them, or with a colon that is
// full-width.
var joined = regexp.MustCompile(`^([A-Za-z_][\w-]*)(?::|：\s*)([^\s/:]\S{0,40})`)

// missingSpace returns a hint if a text is a field whose colon has no space behind it.
func missingSpace(text string) string {
	if m := joined.FindStringSubmatch(text); m != nil {
		return " (write a colon and a space: \"" + m[1] + ": " + m[2] + "\")"
	}
	return ""
}

// plainSigns are the full-width forms of ASCII, and quotes of print, that an input method
// or a word processor writes.
var plainSigns = func(c rune) rune {
	switch {
	case c >= '！' && c <= '～':
		return c - '！' + '!'
	case c == '　':
		return ' '
	case c == '“' || c == '”' || c == '‘' || c == '’':
		return -1
	}
	return c
}

// plainSpelling returns a hint if a text has full-width signs.
func plainSpelling(text string) string {
	if plain := strings.Map(plainSigns, clip(text)); plain != clip(text) {
		return fmt.Sprintf(" (it has full-width signs or quotes of print: write %q)", plain)
	}
	return ""
}
