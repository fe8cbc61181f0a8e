// Package jsonscan scans JSON while it arrives. It allocates nothing for skipped values of any
// length, and stops at the end of a value: the decoder of the standard library does neither.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"io"
)

// A Source is where a text comes from.
type Source interface {
	// From returns at least one byte of the text from the offset off on, or nil at the end of the
	// text. The bytes stay valid until the next call of From.
	From(off int) []byte
}

// Bytes is a text that is there as a whole.
type Bytes []byte

// From implements [Source].
func (b Bytes) From(off int) []byte { return b[min(off, len(b)):] }

// A piecewise is a text that is read piece by piece.
type piecewise struct {
	r  io.Reader
	in []byte
}

// From implements [Source]. off is always the end of the last piece.
func (p *piecewise) From(int) []byte {
	n, _ := io.ReadAtLeast(p.r, p.in, 1)
	return p.in[:n]
}

// A Scanner reads one JSON text. Malformed or truncated JSON ends it; the values before that are
// valid.
type Scanner struct {
	source Source
	in     []byte // the bytes that source returned last; at the end of the text a single 0
	at     int    // the offset of in in the text
	next   int    // the index in in of the next byte
	ended  bool   // the text is at its end
	buf    []byte // the last string or literal that was read
}

// New returns a scanner that reads r in pieces of size bytes.
func New(r io.Reader, size int) *Scanner {
	s := new(Scanner)
	s.Reset(&piecewise{r, make([]byte, size)}, 0)
	return s
}

// Of returns a scanner of a text that is there as a whole.
func Of(text []byte) *Scanner {
	s := new(Scanner)
	s.Reset(Bytes(text), 0)
	return s
}

// Reset has the scanner read a text from the offset off on.
func (s *Scanner) Reset(source Source, off int) {
	*s = Scanner{source: source, at: off, buf: s.buf}
}

// SetRoom gives the scanner memory for names, strings and numbers, in place of memory of its own.
func (s *Scanner) SetRoom(room []byte) { s.buf = room[:0] }

// Place returns the offset of the next byte in the text.
func (s *Scanner) Place() int { return s.at + s.next }

// byte reads one byte. The end is a 0, which JSON does not have, and stays.
func (s *Scanner) byte() byte {
	if s.next == len(s.in) {
		s.fill()
	}
	s.next++
	return s.in[s.next-1]
}

// back puts the last byte back.
func (s *Scanner) back() { s.next-- }

// end is the bytes that a scanner reads behind a text.
var end = []byte{0}

// fill gets the next bytes of the text from the source, or end. It is called when all bytes of in were read.
func (s *Scanner) fill() {
	// After the end the source is not asked again: it might wait.
	if !s.ended {
		s.at += len(s.in)
		s.in = s.source.From(s.at)
	}
	if len(s.in) == 0 || s.ended {
		s.in, s.ended = end, true
	}
	s.next = 0
}

// Peek skips spaces and returns the next byte without consuming it, or 0 at the end.
func (s *Scanner) Peek() byte {
	for {
		if c := s.byte(); !space(c) {
			s.back()
			return c
		}
	}
}

// BOM skips a byte order mark.
func (s *Scanner) BOM() {
	const mark = "\ufeff"
	if s.Peek() != mark[0] {
		return
	}
	for range len(mark) {
		s.byte()
	}
}

// Object reads an object, whose bracket is next. It calls member behind each name: member reads
// the value, and name is valid until it does. Object returns false if the object is malformed, or
// member returned false.
func (s *Scanner) Object(member func(name []byte) bool) bool {
	s.Open()
	for first := true; ; first = false {
		name, more, ok := s.Member(first)
		if !more {
			return ok
		}
		if !member(name) {
			return false
		}
	}
}

// Open reads a bracket, which is next.
func (s *Scanner) Open() { s.byte() }

// Member reads the name of the next member of an object. The member's value is next then, and name is
// valid until the value is read. first says that the bracket was read last, and no member. If there is
// no member any more, more is false, and ok says whether the object ends as it should.
func (s *Scanner) Member(first bool) (name []byte, more, ok bool) {
	more, ok = s.more('}', first)
	if !more {
		return nil, false, ok
	}
	if s.Peek() != '"' || !s.string() || s.Peek() != ':' {
		return nil, false, false
	}
	s.byte()
	return s.buf, true, true
}

// Element goes to the next element of an array, over the comma in front of every element but the
// first. The element is next then. first says that the bracket was read last, and no element. If there
// is no element any more, more is false, and ok says whether the array ends as it should.
func (s *Scanner) Element(first bool) (more, ok bool) { return s.more(']', first) }

// more goes to the next member or element, over the comma in front of all but the first. At the closing
// bracket, which it reads, more is false and ok is true. If neither the bracket nor the comma is next,
// both are false.
func (s *Scanner) more(closing byte, first bool) (more, ok bool) {
	switch c := s.Peek(); {
	case c == closing:
		s.byte()
		return false, true
	case first:
		return true, true
	}
	comma := s.byte() == ','
	return comma, comma
}

// Scalar reads a string, a number, true or false as a text; null is "". ok is false if the value is
// malformed or truncated, or no scalar is next.
func (s *Scanner) Scalar() (text string, ok bool) {
	if s.Peek() == '"' {
		ok = s.string()
		return string(s.buf), ok
	}

	s.buf = s.buf[:0]
	for {
		c := s.byte()
		if c == 0 { // a truncated number has a wrong value
			return "", false
		}

		if structural(c) {
			s.back()
			break
		}

		s.buf = append(s.buf, c)
	}

	return literal(s.buf)
}

// literal returns the text of a number, true or false, and "" for null. ok is false if raw is no JSON.
func literal(raw []byte) (text string, ok bool) {
	if string(raw) == "null" {
		return "", true
	}
	return string(raw), json.Valid(raw)
}

// TextOf returns the text of a string, a number, true or false, as Scalar does: raw is the whole value.
func TextOf(raw []byte) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return literal(raw)
	}
	s := Scanner{source: Bytes(raw)}
	ok = s.string()
	return string(s.buf), ok
}

// string reads a string, whose quote is next, into buf, without quotes and escapes. It returns false if the
// string is malformed or does not end.
func (s *Scanner) string() (ok bool) {
	s.buf = append(s.buf[:0], s.byte())
	plain := true
	for {
		c := s.byte()
		if c < ' ' {
			return false
		}

		s.buf = append(s.buf, c)
		if c == '"' {
			break
		}

		if c == '\\' {
			plain = false
			s.buf = append(s.buf, s.byte())
		}
	}

	if plain {
		s.buf = s.buf[1 : len(s.buf)-1]
		return true
	}

	// Only the decoder of the standard library knows all escapes.
	var text string
	if json.Unmarshal(s.buf, &text) != nil {
		return false
	}

	s.buf = append(s.buf[:0], text...)
	return true
}

// Skip reads over a value of any depth. It checks no more of the grammar than it needs to find
// the end, because nobody reads the value. It returns false if the text ends before the value does,
// or if there is no value.
func (s *Scanner) Skip() (ok bool) {
	// depth is how many brackets are open. The value ends where none is.
	for depth := 0; ; {
		switch s.Peek() {
		case 0:
			return false
		case '"':
			ok = s.skipString()
		case '{', '[':
			s.byte()
			depth++
			continue
		case '}', ']':
			s.byte()
			depth--
			ok = depth >= 0 // the bracket was opened in the value
		case ',', ':':
			s.byte()
			ok = depth > 0 // it separates values, so it stands in brackets
		default:
			ok = s.skipLiteral()
		}

		if !ok || depth == 0 {
			return ok
		}
	}
}

// skipString reads over a string, whose quote is next. It searches for the closing quote and looks at nothing
// else, because a picture in a string has megabytes. It returns false if the string does not end.
func (s *Scanner) skipString() (ok bool) {
	s.byte()

	// odd says that an odd number of backslashes stands right before the next byte, which is escaped then.
	for odd := false; ; {
		if s.next == len(s.in) {
			s.fill()
		}
		if s.ended {
			return false
		}

		// part is the text up to the next quote, or all that has arrived.
		part := s.in[s.next:]
		quote := bytes.IndexByte(part, '"')
		if quote >= 0 {
			part = part[:quote]
		}

		s.next += len(part)
		backslashes := 0 // at the end of part
		for backslashes < len(part) && part[len(part)-1-backslashes] == '\\' {
			backslashes++
		}

		// A part of nothing but backslashes continues the row of the part before.
		oddBefore := odd && backslashes == len(part)
		odd = (backslashes%2 == 1) != oddBefore
		if quote < 0 {
			continue
		}

		// An escaped quote is a byte of the string.
		s.next++
		if !odd {
			return true
		}

		odd = false
	}
}

// skipLiteral reads over a number, true, false or null, up to the byte that ends it. It returns false if the text
// ends first.
func (s *Scanner) skipLiteral() (ok bool) {
	for {
		c := s.byte()
		if c == 0 {
			return false
		}
		if structural(c) {
			s.back()
			return true
		}
	}
}

// structural reports whether a byte ends a number, true, false or null.
func structural(c byte) bool {
	switch c {
	case '{', '}', '[', ']', ',', ':', '"':
		return true
	}
	return space(c)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
