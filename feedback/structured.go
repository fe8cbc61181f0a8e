package feedback

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// This is a parser of Structured Fields (RFC 9651), strict as the RFC demands:
// one mistake anywhere, and there is no field. The types of values are
//
//	Integer int64        String  string    Byte Sequence  []byte
//	Decimal float64      Token   token     Display String display
//	Boolean bool         Date    time.Time Inner List     []item

type (
	token   string
	display string
)

// An item is a value, or a list of items, with parameters.
type item struct {
	value  any
	params map[string]any
}

// parseList parses a List.
func parseList(field string) (list []item, ok bool) {
	p := fieldParser{rest: strings.TrimLeft(field, " ")}
	for first := true; p.more(first); first = false {
		list = append(list, p.member())
	}
	if p.failed {
		return nil, false
	}
	return list, true
}

// parseDictionary parses a Dictionary.
func parseDictionary(field string) (dict map[string]item, ok bool) {
	p := fieldParser{rest: strings.TrimLeft(field, " ")}
	dict = make(map[string]item)
	for first := true; p.more(first); first = false {
		// A key without a value means true.
		key := p.key()
		if p.skip("=") {
			dict[key] = p.member()
		} else {
			dict[key] = item{true, p.params()}
		}
	}

	if p.failed {
		return nil, false
	}

	return dict, true
}

// A fieldParser parses a field. rest is empty after a mistake.
type fieldParser struct {
	rest   string
	failed bool
}

// fail notes a mistake, and ends the parsing: without a rest every method returns at once.
func (p *fieldParser) fail() {
	p.rest, p.failed = "", true
}

// peek returns the next byte, or 0, which no field has, at the end.
func (p *fieldParser) peek() byte {
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

// skip reads a text if it comes next.
func (p *fieldParser) skip(text string) bool {
	rest, ok := strings.CutPrefix(p.rest, text)
	p.rest = rest
	return ok
}

// expect is skip for a text that must come.
func (p *fieldParser) expect(text string) {
	if !p.skip(text) {
		p.fail()
	}
}

// span reads the bytes that fit.
func (p *fieldParser) span(fits func(byte) bool) string {
	n := 0
	for n < len(p.rest) && fits(p.rest[n]) {
		n++
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}

// more goes to the next member of a list or dictionary, over the comma in front
// of all but the first.
func (p *fieldParser) more(first bool) bool {
	if first {
		return p.rest != ""
	}
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return false
	}
	p.expect(",")
	p.rest = strings.TrimLeft(p.rest, " \t")
	return !p.failed // at the end there is no member to parse: a mistake
}

// member parses an item or an inner list, with its parameters.
func (p *fieldParser) member() item {
	if !p.skip("(") {
		return p.item()
	}

	inner := []item{}
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		if p.failed || p.skip(")") {
			return item{inner, p.params()}
		}

		inner = append(inner, p.item())

		// Spaces separate the items of an inner list.
		if c := p.peek(); c != ' ' && c != ')' {
			p.fail()
		}
	}
}

// item parses a bare item with its parameters.
func (p *fieldParser) item() item {
	value := p.value()
	return item{value, p.params()}
}

// params parses the parameters of an item. It returns nil if there are none. A key without a value means true.
func (p *fieldParser) params() map[string]any {
	var params map[string]any
	for p.skip(";") {
		p.rest = strings.TrimLeft(p.rest, " ")
		key, value := p.key(), any(true)
		if p.skip("=") {
			value = p.value()
		}
		if params == nil {
			params = make(map[string]any)
		}

		params[key] = value
	}

	return params
}

// key parses the key of a member or of a parameter.
func (p *fieldParser) key() string {
	if c := p.peek(); !lower(c) && c != '*' {
		p.fail()
	}
	return p.span(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
}

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

	// A Date is a number of seconds since 1970 (RFC 9651).
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

// string parses a String: printable ASCII in quotes, in which a backslash escapes a quote or a backslash.
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

// bytes parses the rest of a Byte Sequence. As the RFC advises, it accepts a
// sequence without its padding, and a sequence whose last bits are not 0.
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

func digit(c byte) bool { return '0' <= c && c <= '9' }

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func letter(c byte) bool { return lower(c | 0x20) }

// tokenByte reports whether a byte stands in a Token, past its first.
func tokenByte(c byte) bool {
	return letter(c) || digit(c) || c > ' ' && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
