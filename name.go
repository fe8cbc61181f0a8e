package throttle

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// longestName is how many characters a policy's name may have.
const longestName = 200

// checkName checks a policy's name: stores, JSON, metrics and terminals must be able to show it
// as it is.
func checkName(name string) error {
	if name == "" {
		return errors.New("is missing: it names the policy in the store, in errors and in events")
	}
	if !utf8.ValidString(name) {
		return errors.New("is not UTF-8")
	}
	if n := utf8.RuneCountInString(name); n > longestName {
		return fmt.Errorf("has %d characters: use %d at the most", n, longestName)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("holds %U, which cannot be printed", c)
		}
	}
	return nil
}

// nameInErrors is what errors call a policy whose name is wrong; i is its place in the slice.
func nameInErrors(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("#%d", i+1)
	}
	n := 0
	for at := range name {
		if n++; n > longestName {
			return name[:at] + "…"
		}
	}
	return name
}
