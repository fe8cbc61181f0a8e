package feedback

import (
	"net/http"
	"regexp"
	"time"
)

// Codes is a table of the codes with which an upstream refuses in a JSON body,
// whatever the status.
type Codes struct {
	// Fields say where the code is. The first that is there decides; null and
	// "" are not there. A dot leads into an object or, with a number, an
	// array; "*" is each of its elements, of which one is enough:
	// "errcode", "error.code", "errors.0.code", "errors.*.extensions.code".
	Fields []string

	// Pattern finds the code in the field's text: what its first group
	// matches, or the whole pattern if it has no group. Defaults to nil: all
	// of the text is the code.
	Pattern *regexp.Regexp

	// Lasts says for how long each code closes the budget. Numbers, strings,
	// true and false are compared as texts, so that 88 and "88" are the same
	// code, and without regard to case. A "*" at the beginning or the end of
	// a code stands for anything; of those the longest counts, unless a code
	// without one fits. [No] makes a code certainly no refusal.
	Lasts map[string]time.Duration

	// End is asked about an answer that has a code of the table. If it says
	// how long, that counts in place of the usual length. Defaults to nil.
	End Penalty

	// Max is how many bytes are looked at. Defaults to 64 KB, which is the
	// most.
	Max int64
}

// Penalty is the [throttle.Policy.Penalty] of the table.
func (c Codes) Penalty(resp *http.Response) time.Duration {
	return 0
}

// Text is a refusal that is known by a text in the body, JSON or not: the page
// of a firewall. Give it a [When], and make the pattern begin with "^" if it can:
// then no more is looked at than it takes to see that it does not match.
type Text struct {
	// Pattern must match.
	Pattern *regexp.Regexp

	// Lasts is for how long the budget is closed then.
	Lasts time.Duration

	// End is asked about an answer that matches. If it says how long, that
	// counts in place of Lasts. Defaults to nil.
	End Penalty

	// Max is how many bytes are looked at, at most 64 KB. Defaults to 4 KB.
	Max int64
}

// Penalty is the [throttle.Policy.Penalty] of the text.
func (t Text) Penalty(resp *http.Response) time.Duration {
	return 0
}

// Printed is a penalty whose length stands in the body.
type Printed struct {
	// Fields say where, as in [Codes]. Defaults to nil: anywhere in the body,
	// JSON or not.
	Fields []string

	// Pattern finds the length or the moment in the text: what its first
	// group matches, or the whole pattern if it has no group. Defaults to
	// nil: all of the text.
	Pattern *regexp.Regexp

	// As says how it is written. Defaults to nil: as in a header, in seconds,
	// as a moment, or as a Go duration; see [Headers].
	As Dialect

	// Max is how many bytes are looked at. Defaults to 64 KB, which is the
	// most.
	Max int64
}

// Penalty is the [throttle.Policy.Penalty] of what is printed; 0 if nothing is,
// or nothing that can be read.
func (p Printed) Penalty(resp *http.Response) time.Duration {
	return 0
}
