package feedback

import (
	"bytes"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// answer is the part of an answer's JSON body that classifiers have read so far. The rows of a
// table look for codes in the same body many times, so the members of the JSON object are kept in
// their order, beside the body (see [peek.Kept]). A member is read when a search comes to it.
type answer struct {
	mu   sync.Mutex
	text window // of the present look
	scan jsonscan.Scanner

	kind    byte     // the first byte of the text behind a byte order mark, or 0 before it has come
	members []member // at most mostMembers
	place   int      // read so far: up to the end of the last member, or of its name while unread is set
	unread  bool     // the value of the last member, an object or an array, was not read yet
	tried   int      // bytes of the body in which no further member was found

	// The first memory of members, of their names, and of the scanner.
	memberRoom [8]member
	nameRoom   [96]byte
	scanRoom   [32]byte
	named      int // bytes of nameRoom

	runes runeReader
}

// mostMembers bounds the members that are kept. Each search reads further members for itself.
const mostMembers = 64

// A member is a member of the object.
type member struct {
	name   []byte
	from   int    // place of the value
	to     int    // place behind the value, or 0 for an object or an array
	ended  int    // place behind what ends the value: a number is cut off, unless a byte follows
	text   string // of the value, if it was asked for
	legal  bool   // the value is as JSON has it
	parsed bool   // text and legal are set
}

// A window is the text of an answer's body as far as a classifier looks at the text.
type window struct {
	peek.Text
	max int
}

// From implements [jsonscan.Source].
func (w *window) From(off int) []byte { return w.Text.From(off, w.max) }

// between returns the text between two places, or nil if the text ends before to.
func (w *window) between(from, to int) (text []byte) {
	for len(text) < to-from {
		if w.From(from+len(text)) == nil {
			return nil
		}
		text = w.From(from)
	}
	return text[:to-from]
}

// look begins a look at the first max bytes of the body.
func (a *answer) look(body peek.Text, max int64) {
	a.text = window{body, int(max)}
	if a.members == nil {
		a.members = a.memberRoom[:0]
		a.scan.SetRoom(a.scanRoom[:])
	}
}

// search walks through the object and takes the values at the end of paths.
func (a *answer) search(s *search, paths []path, fits fits) {
	if a.kind == 0 {
		a.begin()
	}

	// Only the members of an object are kept for later searches.
	if a.kind != '{' {
		a.scan.Reset(&a.text, 0)
		s.whole(paths, fits)
		return
	}

	// Walk through the members that earlier searches have read, then read on.
	var few [fewPaths]path
	for i := 0; i < len(a.members) || a.next(); i++ {
		m := &a.members[i]
		on := below(few[:0], paths, m.name)
		if len(on) > 0 && !a.value(s, m, on, fits) {
			return
		}
	}

	// Behind the members that are kept, each search reads for itself.
	if len(a.members) == mostMembers {
		a.searchRest(s, paths, fits)
	}
}

// begin reads up to the bracket of the object.
func (a *answer) begin() {
	a.scan.Reset(&a.text, 0)
	a.scan.BOM()
	a.kind = a.scan.Peek()
	if a.kind == '{' {
		a.scan.Open()
		a.place = a.scan.Place()
	}
}

// next reads the next member, and returns false if there is none to be kept.
func (a *answer) next() bool {
	if len(a.members) == mostMembers || a.tried >= a.text.max {
		return false
	}
	if a.readMember() {
		return true
	}

	// With the same bytes a further attempt would fail, too.
	a.tried = a.text.max
	return false
}

// readMember reads the next member and reports whether there was one.
func (a *answer) readMember() bool {
	a.scan.Reset(&a.text, a.place)

	// The search that met this object or array may not have read it to its end.
	if a.unread {
		if !a.scan.Skip() {
			return false
		}
		a.place, a.unread = a.scan.Place(), false
	}

	name, more, _ := a.scan.Member(len(a.members) == 0)
	if !more {
		return false
	}

	m := member{name: a.keepName(name)}
	first := a.scan.Peek()
	m.from = a.scan.Place()

	// Skip an object or an array only when a later member is wanted.
	a.unread = first == '{' || first == '['
	if !a.unread {
		if !a.scan.Skip() {
			return false
		}

		m.to = a.scan.Place()
		m.ended = m.to

		// The end of a number shows only in the byte behind it.
		if first != '"' {
			m.ended++
		}
	}

	a.place = a.scan.Place()
	a.members = append(a.members, m)
	return true
}

// keepName returns a copy of a name.
func (a *answer) keepName(name []byte) []byte {
	if a.named+len(name) > len(a.nameRoom) {
		return bytes.Clone(name)
	}
	kept := a.nameRoom[a.named : a.named+len(name)]
	a.named += copy(kept, name)
	return kept
}

// value walks through the value of a member, into which paths lead, and returns false at the end of
// the search.
func (a *answer) value(s *search, m *member, paths []path, fits fits) bool {
	// An object or an array is read anew by each search that leads into it.
	if m.to == 0 {
		a.scan.Reset(&a.text, m.from)
		return s.value(paths, fits)
	}

	// A search with a smaller bound must not see bytes that a search with a larger bound has read.
	if m.ended > a.text.max {
		return false
	}

	if !m.parsed {
		raw := a.text.between(m.from, m.to)
		if raw == nil {
			return false
		}

		m.parsed = true
		m.text, m.legal = jsonscan.TextOf(raw)
	}

	return m.legal && s.scalar(paths, m.text, fits)
}

// searchRest walks through the members after the first mostMembers.
func (a *answer) searchRest(s *search, paths []path, fits fits) {
	a.scan.Reset(&a.text, a.place)
	if a.unread && !a.scan.Skip() {
		return
	}
	s.members(paths, false, fits)
}

// A runeReader reads the runes of a text from its beginning on.
type runeReader struct {
	text  window
	piece []byte // was read, and not given out
	off   int    // place of piece
}

// ReadRune implements [io.RuneReader].
func (r *runeReader) ReadRune() (c rune, size int, err error) {
	// A character may be cut at the end of a piece.
	for !utf8.FullRune(r.piece) && r.text.From(r.off+len(r.piece)) != nil {
		r.piece = r.text.From(r.off)
	}
	if len(r.piece) == 0 {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRune(r.piece)
	r.piece, r.off = r.piece[size:], r.off+size
	return c, size, nil
}
