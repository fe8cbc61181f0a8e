// Package jsonscan takes JSON apart as it comes. It allocates nothing for what is skipped,
// however long that is, and stops where a value ends: the decoder of the standard library
// does neither.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"io"
)

// A Scanner reads one JSON text. What is malformed or cut off ends it; what was read
// before that was right.
type Scanner struct {
	r     io.Reader
	in    []byte // was read from r; at its end one 0
	next  int    // byte of in
	ended bool   // r has no more
	buf   []byte // the last string or literal that was read
}

// New returns a scanner that reads so many bytes of r at a time.
func New(r io.Reader, size int) *Scanner { return &Scanner{r: r, in: make([]byte, 0, size)} }

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

// fill reads what has come, and waits only if that is nothing.
func (s *Scanner) fill() {
	in := s.in[:cap(s.in)]
	n, _ := io.ReadAtLeast(s.r, in, 1)
	if n == 0 {
		s.ended = true
		in[0], n = 0, 1
	}
	s.in, s.next = in[:n], 0
}

// Peek skips spaces and returns the next byte, which stays there; 0 at the end.
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

// Object reads an object, whose bracket is next. It calls member behind each name, to read
// the value; the name is good until then. It returns false if the object is malformed, or
// member returned false.
func (s *Scanner) Object(member func(name []byte) bool) bool {
	s.byte()
	for first := true; ; first = false {
		more, ok := s.more('}', first)
		if !more {
			return ok
		}
		if s.Peek() != '"' || !s.string() || s.Peek() != ':' {
			return false
		}
		s.byte()
		if !member(s.buf) {
			return false
		}
	}
}

// Array reads an array, whose bracket is next. It calls element in front of each, to read
// it, and returns false as [Scanner.Object] does.
func (s *Scanner) Array(element func(i int64) bool) bool {
	s.byte()
	for i := int64(0); ; i++ {
		more, ok := s.more(']', i == 0)
		if !more {
			return ok
		}
		if !element(i) {
			return false
		}
	}
}

// more goes to the next member or element, over the comma in front of all but the first; ok
// is false if the text ends before the closing bracket does.
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

// Scalar reads a string, a number, true or false as a text; null is "".
func (s *Scanner) Scalar() (text string, ok bool) {
	if s.Peek() == '"' {
		ok = s.string()
		return string(s.buf), ok
	}
	s.buf = s.buf[:0]
	for {
		c := s.byte()
		if c == 0 { // a number that is cut off is another number
			return "", false
		}
		if structural(c) {
			s.back()
			break
		}
		s.buf = append(s.buf, c)
	}
	if text = string(s.buf); text == "null" {
		text = ""
	}
	return text, json.Valid(s.buf)
}

// string reads a string into buf, without quotes and escapes.
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
	var text string
	if json.Unmarshal(s.buf, &text) != nil {
		return false
	}
	s.buf = append(s.buf[:0], text...)
	return true
}

// Skip reads over a value of any depth without a look at its grammar, which does not matter
// any more: the value is not there for anybody.
func (s *Scanner) Skip() (ok bool) {
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
			ok = depth >= 0
		case ',', ':':
			s.byte()
			ok = depth > 0
		default:
			ok = s.skipLiteral()
		}
		if !ok || depth == 0 {
			return ok
		}
	}
}

// skipString looks for quotes only: a picture in a string has megabytes.
func (s *Scanner) skipString() (ok bool) {
	s.byte()
	for odd := false; ; { // odd: an odd number of backslashes stands right before
		if s.next == len(s.in) {
			s.fill()
		}
		if s.ended {
			return false
		}
		part := s.in[s.next:]
		quote := bytes.IndexByte(part, '"')
		if quote >= 0 {
			part = part[:quote]
		}
		s.next += len(part)
		escapes := 0
		for escapes < len(part) && part[len(part)-1-escapes] == '\\' {
			escapes++
		}
		odd = escapes%2 == 1 != (odd && escapes == len(part))
		if quote < 0 {
			continue
		}
		s.next++
		if !odd {
			return true
		}
		odd = false
	}
}

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
