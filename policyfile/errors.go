package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Error is one mistake in a file.
type Error struct {
	File   string // as it was given to Parse
	Line   int    // from 1
	Column int    // from 1, in characters; 0: the whole line
	Text   string // what is wrong, and what would help
	Source string // the line itself
}

// Error implements error: "file:line:column: text", as compilers print it.
func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at += fmt.Sprintf(":%d", e.Line)
	}
	if e.Column > 0 {
		at += fmt.Sprintf(":%d", e.Column)
	}
	return at + ": " + e.Text
}

// Excerpt returns the line of the file with a caret below the place; "" if the mistake
// has no place.
func (e *Error) Excerpt() string {
	if e.Line == 0 || strings.TrimSpace(e.Source) == "" {
		return ""
	}
	head := fmt.Sprintf("%5d | ", e.Line)
	text := head + e.Source + "\n"
	if e.Column == 0 {
		return text
	}
	// Tabs stay, so that the caret stands below its character wherever tabs end.
	before := []rune(e.Source)
	before = before[:min(e.Column-1, len(before))]
	for i, c := range before {
		switch {
		case c == '\t':
		case wide(c):
			before[i] = '　'
		default:
			before[i] = ' '
		}
	}
	return text + strings.Repeat(" ", utf8.RuneCountInString(head)-2) + "| " + string(before) + "^\n"
}

// wide reports whether a character takes two columns of a terminal: those of East Asia.
func wide(c rune) bool {
	return c >= 0x1100 && c <= 0x115f || c >= 0x2e80 && c <= 0xa4cf || c >= 0xac00 && c <= 0xd7a3 ||
		c >= 0xf900 && c <= 0xfaff || c >= 0xfe30 && c <= 0xfe6f || c >= 0xff00 && c <= 0xff60 || c >= 0xffe0 && c <= 0xffe6
}

// Errors are all mistakes of a file, in its order.
type Errors []*Error

// Error implements error: each mistake on a line of its own, with its excerpt.
func (all Errors) Error() string {
	var text strings.Builder
	for i, e := range all {
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(e.Error())
		if x := e.Excerpt(); x != "" {
			text.WriteString("\n" + strings.TrimSuffix(x, "\n"))
		}
	}
	return text.String()
}

// Unwrap returns them one by one, for [errors.As].
func (all Errors) Unwrap() []error {
	list := make([]error, len(all))
	for i, e := range all {
		list[i] = e
	}
	return list
}

// sorted returns the mistakes in the order of the file, nil if there are none.
func (all Errors) sorted() error {
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	// What an alias repeats is one mistake.
	return slices.CompactFunc(all, func(a, b *Error) bool { return *a == *b })
}

// Mistakes returns the mistakes that an error of this package holds, in the order of
// the file.
func Mistakes(err error) Errors {
	var all Errors
	errors.As(err, &all)
	return all
}
