// Package numerals writes counts as people read them.
package numerals

import "strconv"

// Count returns a number with the word for one thing, or for several.
func Count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + several
}

// Thousands returns a number that is not negative, with commas.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
