package feedback

import (
	"encoding/json"
	"io"
)

// A scanner takes JSON apart as it comes. It allocates nothing for what is
// skipped, and stops where the value ends: the decoder of the standard library
// does neither.
type scanner struct {
	r    io.Reader
	in   []byte // was read from r
	next int    // byte of in
	buf  []byte // the last string or literal that was read
}

// scanBytes is how much is read at a time: more than most refusals have.
const scanBytes = 2 << 10

// byte reads one byte. The end is a 0, which JSON does not have, and stays.
func (s *scanner) byte() byte {
	if s.next == len(s.in) {
		s.fill()
	}
	s.next++
	return s.in[s.next-1]
}

// back puts the last byte back.
func (s *scanner) back() { s.next-- }

// fill reads what has come, and waits only if that is nothing.
func (s *scanner) fill() {
	if s.in == nil {
		s.in = make([]byte, scanBytes)
	}
	n, _ := io.ReadAtLeast(s.r, s.in[:scanBytes], 1)
	if n == 0 {
		s.in[0], n = 0, 1
	}
	s.in, s.next = s.in[:n], 0
}

// peek skips spaces and returns the next byte, which stays there.
func (s *scanner) peek() byte {
	for {
		if c := s.byte(); !space(c) {
			s.back()
			return c
		}
	}
}

// bom skips a byte order mark.
func (s *scanner) bom() {
	const mark = "\ufeff"
	if s.peek() != mark[0] {
		return
	}
	for range len(mark) {
		s.byte()
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
