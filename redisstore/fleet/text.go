package fleet

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a text of somebody else fit to be printed: characters that control a
// terminal, or the direction of text, are escaped, and it has at most so many characters.
func Clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for i, c := range text {
		n++
		if n > most {
			b.WriteString("…")
			break
		}

		switch {
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x80:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}

	return b.String()
}

// The most characters of texts that are read from Redis.
const (
	longestName = 200
	longestText = 500
)
