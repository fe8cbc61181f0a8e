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
	Column int    // from 1, in characters, or 0 for the whole line
	Text   string // the mistake, and its remedy
	Source string // the line itself; of a long line the part around the column

	skipped int  // how many characters of the line stand before Source
	cut     bool // some stand behind it
}

// Error implements error: "file:line:column: text", as compilers print it. A line or a column of 0 is left
// out.
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

// Excerpt returns the line of the file and, in a second line, a caret below the column of the
// mistake. It has no second line without a column, and is "" without a line or for a blank line. Of a
// long line it has the part around the caret, with "…" where the line was cut.
func (e *Error) Excerpt() string {
	if e.Line == 0 || strings.TrimSpace(e.Source) == "" {
		return ""
	}

	head := fmt.Sprintf("%5d | ", e.Line)
	var line, below strings.Builder // below has blanks up to the caret

	if e.skipped > 0 {
		line.WriteString("…")
		below.WriteByte(' ')
	}

	column := e.skipped
	for _, c := range e.Source {
		// Count characters, not bytes, as editors do.
		column++
		line.WriteRune(printable(c))

		// A space of the same width keeps the caret below its character.
		if column < e.Column {
			below.WriteString(blank(c))
		}
	}

	if e.cut {
		line.WriteString("…")
	}

	text := head + line.String() + "\n"
	if e.Column == 0 {
		return text
	}

	// The bars of both lines stand in one column.
	return text + strings.Repeat(" ", utf8.RuneCountInString(head)-len("| ")) + "| " + below.String() + "^\n"
}

// Errors are all mistakes of a file, in its order.
type Errors []*Error

// mostShown is how many mistakes are printed at most: after mending the first mistakes, people check
// the file again.
const mostShown = 20

// Error implements error. Each mistake has a line of its own, with its excerpt. Beyond 20
// mistakes only their number is printed.
func (all Errors) Error() string {
	var text strings.Builder
	for i, e := range all {
		if i > 0 {
			text.WriteByte('\n')
		}

		if i == mostShown {
			fmt.Fprintf(&text, "and %d more", len(all)-i)
			break
		}

		text.WriteString(e.Error())
		if x := e.Excerpt(); x != "" {
			text.WriteString("\n" + strings.TrimSuffix(x, "\n"))
		}
	}

	return text.String()
}

// Unwrap returns the mistakes one by one, for [errors.As].
func (all Errors) Unwrap() []error {
	list := make([]error, len(all))
	for i, e := range all {
		list[i] = e
	}
	return list
}

// sorted sorts the mistakes in place, in the order of the file, and returns them, or nil if there are
// none.
func (all Errors) sorted() error {
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// Mistakes returns the mistakes that an error of this package holds, in the order of
// the file, or nil for an error without a place in a file.
func Mistakes(err error) Errors {
	var all Errors
	errors.As(err, &all)
	return all
}
