package feedback

import (
	"bufio"
	"encoding/json"
)

// A scanner takes JSON apart as it comes. It allocates nothing for what is
// skipped, and stops where the value ends: the decoder of the standard library
// does neither.
type scanner struct {
	r   *bufio.Reader
	buf []byte // the last string or literal that was read
}

// byte reads one byte; it is 0, which JSON does not have, at the end.
func (s *scanner) byte() byte {
	c, err := s.r.ReadByte()
	if err != nil {
		return 0
	}
	return c
}

// peek skips spaces and returns the next byte, which stays there.
func (s *scanner) peek() byte {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0
		}
		if !space(c) {
			s.back()
			return c
		}
	}
}

// back puts the last byte back. It cannot fail behind a ReadByte.
func (s *scanner) back() { _ = s.r.UnreadByte() }

// bom skips a byte order mark.
func (s *scanner) bom() {
	const mark = "\ufeff"
	if s.peek() == mark[0] {
		_, _ = s.r.Discard(len(mark))
	}
}

// more goes to the next member or element, over the comma in front of all but
// the first; ok is false if the text ends before the closing bracket does.
func (s *scanner) more(closing byte, first bool) (more, ok bool) {
	switch c := s.peek(); {
	case c == closing:
		s.byte()
		return false, true
	case first:
		return true, true
	}
	comma := s.byte() == ','
	return comma, comma
}

// name reads the name of a member and the colon. It is good until the next read.
func (s *scanner) name() (name []byte, ok bool) {
	if s.peek() != '"' || !s.string() {
		return nil, false
	}
	return s.buf, s.peek() == ':' && s.byte() == ':'
}

// scalar reads a string, a number, true or false as a text; null is "".
func (s *scanner) scalar() (text string, ok bool) {
	if s.peek() == '"' {
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
func (s *scanner) string() (ok bool) {
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

// skip reads over a value of any depth without a look at its grammar, which does
// not matter any more: it is not there for anybody.
func (s *scanner) skip() (ok bool) {
	for depth := 0; ; {
		switch s.peek() {
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

func (s *scanner) skipString() (ok bool) {
	s.byte()
	for {
		switch s.byte() {
		case 0:
			return false
		case '"':
			return true
		case '\\':
			s.byte()
		}
	}
}

func (s *scanner) skipLiteral() (ok bool) {
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
