package policyfile

import (
	"strings"
	"unicode"
)

// printable returns what an excerpt shows of a character: a control character would
// steer the terminal.
func printable(c rune) rune {
	if c != '\t' && !unicode.IsPrint(c) && c != '　' {
		return '�'
	}
	return c
}

// blank returns a space as wide as a character. Tabs stay, so that the caret stands below
// its character wherever tabs end.
func blank(c rune) string {
	switch {
	case c == '\t':
		return "\t"
	case unicode.In(c, unicode.Mn, unicode.Me):
		return ""
	case wide(c):
		return "　"
	}
	return " "
}

// wide reports whether a character takes two columns of a terminal: East Asian characters and
// pictures.
func wide(c rune) bool {
	return c >= 0x1100 && c <= 0x115f || c >= 0x2e80 && c <= 0xa4cf || c >= 0xac00 && c <= 0xd7a3 ||
		c >= 0xf900 && c <= 0xfaff || c >= 0xfe30 && c <= 0xfe6f || c >= 0xff00 && c <= 0xff60 || c >= 0xffe0 && c <= 0xffe6 ||
		c >= 0x1f300 && c <= 0x1f64f || c >= 0x1f680 && c <= 0x1f6ff || c >= 0x1f900 && c <= 0x1f9ff || c >= 0x20000 && c <= 0x3fffd
}

const (
	mostBefore = 50  // characters of a line that an excerpt shows before the column
	mostWindow = 100 // and in all
)

// A sourceLine is one line of a file. It finds the characters of a long line without
// counting them anew for each mistake.
type sourceLine struct {
	text  string
	marks []int // where every markEvery-th character begins, or nil before they are counted
}

const markEvery = 256

// splitLines returns the lines of a text, which end as YAML lines do.
func splitLines(text string) (lines []sourceLine) {
	for {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, sourceLine{text: text})
		}
		lines = append(lines, sourceLine{text: text[:i]})

		// CR LF ends one line, not two.
		if strings.HasPrefix(text[i:], "\r\n") {
			i++
		}
		text = text[i+1:]
	}
}

// at returns the byte at which a column begins, or the line's end.
func (l *sourceLine) at(column int) int {
	// Note the bytes of some columns once, so that later searches need not count from the beginning of the line.
	if l.marks == nil {
		n := 0
		for i := range l.text {
			if n%markEvery == 0 {
				l.marks = append(l.marks, i)
			}
			n++
		}

		l.marks = append(l.marks, len(l.text))
	}

	// Count from the last mark before the column.
	column = max(column-1, 0)
	mark := min(column/markEvery, len(l.marks)-1)
	from := l.marks[mark]

	left := column - mark*markEvery
	for i := range l.text[from:] {
		if left == 0 {
			return from + i
		}
		left--
	}

	return len(l.text)
}

// window returns the part of the line around a column, how many characters stand before
// it, and whether some stand behind it.
func (l *sourceLine) window(column int) (part string, skipped int, cut bool) {
	// Only a line that is longer than the window is cut.
	if l.at(mostWindow+1) < len(l.text) {
		skipped = max(column-1-mostBefore, 0)
	}

	part = l.text[l.at(skipped+1):]
	n := 0
	for i := range part {
		if n == mostWindow {
			return part[:i], skipped, true
		}
		n++
	}
	return part, skipped, false
}
