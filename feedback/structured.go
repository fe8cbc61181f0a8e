package feedback

import (
	"encoding/base64"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
)

// This is a parser of Structured Fields (RFC 9651), strict as the RFC demands:
// a field with one mistake is ignored as a whole. The types of values are
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

// parseList parses a List, which may be empty. ok is false after a mistake.
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

// parseDictionary parses a Dictionary, which may be empty. Of a key that comes twice the last member
// counts, as the RFC demands. ok is false after a mistake.
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

// skip reads a text if it comes next, and reports whether it did.
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
// of all but the first. It returns false if there is no further member.
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
	return !p.failed // behind a last comma the caller finds no member, which is a mistake
}

// member parses an item or an inner list, with its parameters.
func (p *fieldParser) member() item {
	if !p.skip("(") {
		return p.item()
	}

	inner := []item{} // not nil: an empty inner list is a value
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		ends := p.skip(")")
		if p.failed || ends {
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

// number parses an Integer of at most 15 digits as an int64, or a Decimal with at most 12 digits
// before the point and 3 behind it as a float64.
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
		isEscape := p.skip(`\`)
		if isEscape && p.peek() != '"' && p.peek() != '\\' {
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

// display parses the rest of a Display String: printable ASCII, in which "%c3" is a byte of UTF-8.
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

// hex reads one hexadecimal digit, and fails for a digit in upper case.
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

// RateLimit reads the fields RateLimit and RateLimit-Policy of the IETF's draft
// (draft-ietf-httpapi-ratelimit-headers), in all forms of its drafts: a list of named policies
// (since -08), a dictionary (-07), and RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset (up
// to -06). A malformed field is ignored as a whole, as the draft demands. The zero value reads
// these fields.
//
// If a policy of a list has no t, the end of its window is unknown. Then the remaining quota holds
// for a second, or for the window if that is less, and a refusal closes the budget for the window.
//
// A 401 is ignored, because it speaks of an unknown caller, and so is an answer out of a cache. The
// Retry-After of a 429 counts in any case.
type RateLimit struct {
	// Name of the upstream's policy. Defaults to "": the policy with the smallest quota among those
	// that count requests. The older drafts, which have no names, are read only if Name is "".
	Name string

	// Prefix of the fields' names, such as "Beta-". Defaults to "".
	Prefix string

	// Status are the statuses of answers that may be refusals. Defaults to 403, 429 and 503.
	Status []int
}

// Left is a [Reader] of the remaining quota alone: it treats a refusal like any answer.
func (r RateLimit) Left(resp *http.Response) throttle.Answer {
	if !speaks(resp) {
		return throttle.Answer{}
	}

	q, ok, decided := r.structured(resp, unsaid, 0)
	switch {
	case !decided:
		return r.separate().Left(resp)
	case !ok:
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithLeft(q)
}

// Answer is a [Reader] of the remaining quota, as [RateLimit.Left], and of refusals. An answer with
// one of Status and a remaining quota of 0 closes the budget until the quota's reset. Retry-After,
// if readable, counts before the reset, and the Retry-After of a 429 closes the budget even if
// quota remains. If the quota is 0 and no end is stated, the budget closes for a second. Any other
// answer is no refusal, even if it has used up the quota.
func (r RateLimit) Answer(resp *http.Response) throttle.Answer {
	return both(refused(r.penalty(resp)), r.Left(resp))
}

// penalty returns how long an answer closes the budget, or 0 for an answer that is no refusal.
func (r RateLimit) penalty(resp *http.Response) time.Duration {
	if !mayRefuse(resp, r.Status) {
		return 0
	}
	if d, ok := asked(resp); ok {
		return d
	}
	if !speaks(resp) {
		return 0
	}

	q, ok, decided := r.structured(resp, throttle.MaxPenalty, usualRetryAfter)
	switch {
	case !decided:
		return r.separate().penalty(resp)
	case !ok || q.Left > 0:
		return 0
	}

	// Under other statuses than 429 Retry-After counts before the reset, too.
	if d, ok := retryAfter(resp); ok {
		return d
	}
	return q.Reset
}

// structured reads the quota in the field RateLimit, which is a list or a dictionary. decided is false if
// the separate fields may have the quota: RateLimit is missing or malformed, and no Name is asked for. A
// quota without a reset holds for its window, at most for most. Without a window it holds for undated, and
// is invalid if undated is 0.
func (r RateLimit) structured(resp *http.Response, most, undated time.Duration) (q throttle.Quota, ok, decided bool) {
	field := r.field(resp, "RateLimit")

	// The separate fields have no names, so they are read only without a Name.
	if field == "" {
		return throttle.Quota{}, false, r.Name != ""
	}

	if list, parsed := parseList(field); parsed && len(list) > 0 {
		q, ok = r.least(list, r.policies(resp), most, undated)
		return q, ok, true
	}

	// A dictionary has no names either.
	if r.Name != "" {
		return throttle.Quota{}, false, true
	}

	if dict, parsed := parseDictionary(field); parsed && len(dict) > 0 {
		q, ok = quotaOf(dict["remaining"].value, dict["reset"].value, undated)
		return q, ok, true
	}

	return throttle.Quota{}, false, false
}

// separate reads the fields that had one number each, in the drafts up to -06.
func (r RateLimit) separate() Headers {
	return Headers{
		Remaining: r.Prefix + "RateLimit-Remaining",
		Reset:     r.Prefix + "RateLimit-Reset",
		Status:    r.Status,
	}
}

// field joins the lines of a field.
func (r RateLimit) field(resp *http.Response, name string) string {
	return strings.Join(valuesOf(resp.Header, r.Prefix+name), ",")
}

// least returns the smallest quota among the members of the list with the Name or, without a Name, among
// the members that count requests. found is false if there is none, or if a member is malformed. most and
// undated are as for structured.
func (r RateLimit) least(list []item, policies map[string]policy, most, undated time.Duration) (least throttle.Quota, found bool) {
	for _, member := range list {
		name, named := member.value.(string)
		left, reset := member.params["r"], member.params["t"]

		// One malformed member makes the whole field malformed.
		if !named || !countOrNone(left) || !countOrNone(reset) || !bytesOrNone(member.params["pk"]) {
			return throttle.Quota{}, false
		}

		p := policies[name]
		meant := name == r.Name
		if r.Name == "" {
			meant = p.countsRequests()
		}
		if !meant {
			continue
		}

		// Without a reset the quota holds for the window of its policy, at most for most.
		dated := reset != nil
		if !dated {
			reset = p.window
		}

		q, ok := quotaOf(left, reset, undated)
		if !dated {
			q.Reset = min(q.Reset, most)
		}
		if ok && (!found || tighter(q, least)) {
			least, found = q, true
		}
	}

	return least, found
}

// A policy has the parameters of a member of RateLimit-Policy.
type policy struct {
	window any // int64, in seconds, or nil
	unit   any // string, or nil
}

// countsRequests reports whether the quota is a number of requests, which it is without a unit.
func (p policy) countsRequests() bool { return p.unit == nil || p.unit == "requests" }

// policies returns the policies of RateLimit-Policy by name, or nil if the field is malformed.
func (r RateLimit) policies(resp *http.Response) map[string]policy {
	list, _ := parseList(r.field(resp, "RateLimit-Policy"))
	policies := make(map[string]policy, len(list))
	for _, member := range list {
		name, named := member.value.(string)
		window, unit := member.params["w"], member.params["qu"]
		_, isText := unit.(string)
		if !named || !countOrNone(window) || unit != nil && !isText {
			return nil
		}
		policies[name] = policy{window, unit}
	}
	return policies
}

// quotaOf returns the quota of two Integers: what is left, and for how many seconds. ok is false if left
// is no Integer or is negative. If reset is no Integer, or not positive, the quota holds for undated; ok
// is false then if undated is 0.
func quotaOf(left, reset any, undated time.Duration) (q throttle.Quota, ok bool) {
	n, counted := left.(int64)
	seconds, dated := reset.(int64)
	d := undated
	if dated && seconds > 0 {
		d = length(float64(seconds), time.Second)
	}
	if !counted || n < 0 || d == 0 {
		return throttle.Quota{}, false
	}
	return throttle.Quota{Left: int(min(n, math.MaxInt32)), Reset: d}, true
}

// countOrNone reports whether a parameter is an Integer that is not negative, if
// it is there.
func countOrNone(param any) bool {
	n, ok := param.(int64)
	return param == nil || ok && n >= 0
}

// bytesOrNone reports whether a parameter is a Byte Sequence, if it is there.
func bytesOrNone(param any) bool {
	_, ok := param.([]byte)
	return param == nil || ok
}
