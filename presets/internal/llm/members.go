package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	mostLooked = 32 << 20 // of a request's body: all of a long conversation with pictures
	longest    = 1 << 10  // of a value that is yielded
)

// A scanner takes the members of one JSON object from a stream. Nothing that is
// skipped is kept, however long it is, and most of it is not looked at byte by byte.
// The decoder of the standard library keeps each value, of which one may be megabytes.
type scanner struct{ r *bufio.Reader }

// members yields the members of the object with values that are short and neither
// objects nor arrays; of what is malformed or cut off those in front of that.
func members(body io.Reader, yield func(name, value []byte) bool) {
	s := scanner{bufio.NewReaderSize(io.LimitReader(body, mostLooked), 32<<10)}
	if s.next() != '{' {
		return
	}
	for c := s.next(); c == '"' || c == ','; c = s.next() {
		if c == ',' {
			c = s.next()
		}
		if c != '"' {
			return
		}
		name, ok := s.text()
		if !ok || s.next() != ':' {
			return
		}
		value, ok := s.value()
		if !ok || value != nil && !yield(bytes.Trim(name, `"`), value) {
			return
		}
	}
}

// next returns the next byte that is no space; 0 at the end.
func (s *scanner) next() byte {
	for {
		switch c, err := s.r.ReadByte(); {
		case err != nil:
			return 0
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			return c
		}
	}
}

// text reads the rest of a string. It returns it with its quotes, or nil if it is
// long.
func (s *scanner) text() (text []byte, ok bool) {
	text = []byte{'"'}
	for escaped := false; ; {
		part, err := s.r.ReadSlice('"')
		if len(text)+len(part) <= longest && text != nil {
			text = append(text, part...)
		} else {
			text = nil
		}
		escapes := bytes.TrimSuffix(part, []byte{'"'})
		n := len(escapes) - len(bytes.TrimRight(escapes, `\`))
		escaped = n%2 == 1 != (escaped && n == len(escapes))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, false
		case !escaped:
			return text, true
		default:
			escaped = false
		}
	}
}

// value reads a value. It returns nil if that is long, an object or an array.
func (s *scanner) value() (value []byte, ok bool) {
	switch c := s.next(); c {
	case 0:
		return nil, false
	case '"':
		return s.text()
	case '{', '[':
		return nil, s.skip()
	default:
		return s.literal(c)
	}
}

// skip reads the rest of an object or an array, without a look at its grammar.
func (s *scanner) skip() (ok bool) {
	for depth := 1; depth > 0; {
		switch s.next() {
		case 0:
			return false
		case '"':
			if _, ok := s.text(); !ok {
				return false
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return true
}

// literal reads the rest of a number, true, false or null.
func (s *scanner) literal(first byte) (value []byte, ok bool) {
	value = []byte{first}
	for {
		c, err := s.r.ReadByte()
		if err != nil { // a number that is cut off is another number
			return nil, false
		}
		switch c {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return value, s.r.UnreadByte() == nil
		}
		if value = append(value, c); len(value) > longest {
			return nil, false
		}
	}
}
