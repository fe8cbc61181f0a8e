package feedback

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// value parses a bare item.
func (p *fieldParser) value() any {
	switch c := p.peek(); {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.string()
	case c == '*' || letter(c):
		return token(p.span(tokenByte))
	case p.skip(":"):
		return p.bytes()
	case p.skip("?1"):
		return true
	case p.skip("?0"):
		return false
	case p.skip("@"):
		seconds, ok := p.number().(int64)
		if !ok {
			p.fail()
		}
		return time.Unix(seconds, 0).UTC()
	case p.skip("%\""):
		return p.display()
	}
	p.fail()
	return nil
}

// number parses an Integer of at most 15 digits, or a Decimal of at most 12 and,
// behind the point, 3.
func (p *fieldParser) number() any {
	sign := ""
	if p.skip("-") {
		sign = "-"
	}
	whole := p.span(digit)
	if !p.skip(".") {
		n, err := strconv.ParseInt(sign+whole, 10, 64)
		if err != nil || len(whole) > 15 {
			p.fail()
		}
		return n
	}
	fraction := p.span(digit)
	f, err := strconv.ParseFloat(sign+whole+"."+fraction, 64)
	if err != nil || whole == "" || len(whole) > 12 || fraction == "" || len(fraction) > 3 {
		p.fail()
	}
	return f
}

func (p *fieldParser) string() any {
	var text strings.Builder
	p.expect(`"`)
	for !p.skip(`"`) {
		if p.skip(`\`) && p.peek() != '"' && p.peek() != '\\' {
			p.fail()
		}
		c := p.peek()
		if c < ' ' || c > '~' {
			p.fail()
			return ""
		}
		text.WriteByte(c)
		p.rest = p.rest[1:]
	}
	return text.String()
}

// bytes parses the rest of a Byte Sequence. As the RFC advises, it takes one
// without its padding, and one whose last bits are not 0.
func (p *fieldParser) bytes() any {
	text := p.span(func(c byte) bool { return c != ':' && c > ' ' })
	p.expect(":")
	encoding := base64.RawStdEncoding
	if strings.Contains(text, "=") {
		encoding = base64.StdEncoding
	}
	data, err := encoding.DecodeString(text)
	if err != nil {
		p.fail()
	}
	return data
}

// display parses the rest of a Display String: UTF-8 in escapes.
func (p *fieldParser) display() any {
	var text []byte
	for !p.skip(`"`) {
		c := p.peek()
		if c < ' ' || c > '~' {
			p.fail()
			return display("")
		}
		p.rest = p.rest[1:]
		if c == '%' {
			high, low := p.hex(), p.hex()
			c = high<<4 | low
		}
		text = append(text, c)
	}
	if !utf8.Valid(text) {
		p.fail()
	}
	return display(text)
}

// hex reads one digit, which is not in upper case.
func (p *fieldParser) hex() byte {
	i := strings.IndexByte("0123456789abcdef", p.peek())
	if i < 0 {
		p.fail()
		return 0
	}
	p.rest = p.rest[1:]
	return byte(i)
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func lower(c byte) bool  { return 'a' <= c && c <= 'z' }
func letter(c byte) bool { return lower(c | 0x20) }

// tokenByte reports whether a byte stands in a Token, past its first.
func tokenByte(c byte) bool {
	return letter(c) || digit(c) || c > ' ' && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
