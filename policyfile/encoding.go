package policyfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// checkEncoding sees to it that a text is UTF-8 without characters that no editor shows
// as they are: YAML takes some of them for the end of a line.
func (r *reader) checkEncoding(text []byte) bool {
	if name := otherEncoding(text); name != "" {
		r.lines = nil // there are none in UTF-8
		r.failAt(1, 1, "the file is written in %s: save it as UTF-8", name)
		return false
	}
	for i := range r.lines {
		if column, what := oddCharacter(r.lines[i].text); what != "" {
			r.failAt(i+1, column, "%s", what)
			return false
		}
	}
	return true
}

// otherEncoding returns the name of a text's encoding if it has two or four bytes for each
// character.
func otherEncoding(text []byte) string {
	const most = 64 // bytes are enough to tell
	head := text[:min(len(text), most)]
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return "UTF-16"
	case len(head) > 3 && 2*bytes.Count(head, []byte{0}) >= len(head)-1:
		return "UTF-16 or UTF-32"
	}
	return ""
}

// oddCharacter returns the first character of a line that must not stand in a file; "" if
// there is none.
func oddCharacter(line string) (column int, what string) {
	for i, c := range line {
		column++
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(line[i:], string(utf8.RuneError)):
			return column, fmt.Sprintf("the byte 0x%02X is not UTF-8: save the file as UTF-8", line[i])
		case c < ' ' && c != '\t', c >= 0x7f && c <= 0x9f:
			return column, fmt.Sprintf("the control character U+%04X stands here: take it out", c)
		case c == '\u2028', c == '\u2029':
			return column, fmt.Sprintf("the line separator U+%04X stands here: begin a new line instead", c)
		case c == '\ufeff', c == 0xfffe, c == 0xffff, c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069:
			return column, fmt.Sprintf("the invisible character U+%04X stands here: take it out", c)
		}
	}
	return 0, ""
}
