package feedback

import "strings"

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

// A fieldParser reads what is left of a field. After a mistake nothing is left.
type fieldParser struct {
	rest   string
	failed bool
}

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
		if c := p.peek(); c != ' ' && c != ')' {
			p.fail()
		}
	}
}

func (p *fieldParser) item() item {
	value := p.value()
	return item{value, p.params()}
}

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

func (p *fieldParser) key() string {
	if c := p.peek(); !lower(c) && c != '*' {
		p.fail()
	}
	return p.span(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
}
