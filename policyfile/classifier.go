package policyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// The parts of a policy that read answers are those of package feedback, by name. A list asks its
// parts in turn, and stops at the first part that recognises the answer.

// rowPenalty is the penalty of a policy. A 429 that no part recognises closes the budget for as long
// as its Retry-After asks, unless a part chooses its answers itself: see chooses.
var rowPenalty = shape[feedback.Reader]{form: somePenalties.form, schema: somePenalties.schema, read: func(r *reader, n *yaml.Node) (feedback.Reader, bool) {
	if alone := follow(n); alone.Kind == yaml.ScalarNode && alone.Value == "another-row" {
		r.fail(n, "another-row stands in a list, before what is about this row: write none for a row that no answer closes")
		return nil, false
	}

	all, ok := somePenalties.read(r, n)
	if !chooses(n) {
		all = append(all, feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(0)))
	}

	// A function with a name of its own, such as feedback.LeaveOpen for none, stays as it is: Format finds its name.
	p := first(all)
	if _, named := penaltyNames[pointer(p)]; ok && !named {
		p = refusalsOf(feedback.First(p, feedback.LeaveOpen))
	}
	return p, ok
}}

// refusalsOf returns a reader that passes on r's refusals without the remaining quota, which only
// quota reads.
func refusalsOf(r feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		a := r(resp)
		return throttle.Answer{Verdict: a.Verdict, Close: a.Close}
	}
}

// penalties is one penalty, or a list of penalties that are asked in turn.
var penalties = as(somePenalties, first)

// first returns a penalty that asks all penalties in turn.
func first(all []feedback.Reader) feedback.Reader {
	if len(all) == 1 {
		return all[0]
	}
	return feedback.First(all...)
}

var somePenalties = some(onePenalty)

// chooses reports whether a penalty says itself which answers it is about: by a when, by a status, or as
// none. Of a list one such penalty is enough.
func chooses(n *yaml.Node) bool {
	n = follow(n)
	if n.Kind == yaml.SequenceNode {
		return slices.ContainsFunc(n.Content, chooses)
	}

	members, _, _ := newReader("", nil).members(n, "") // its mistakes are noted when it is read
	return n.Value == "none" || slices.ContainsFunc(members, func(m keyed) bool {
		switch m.name {
		case "none", "when", "status":
			return true
		case "longest", "headers", "ratelimit": // longest contains penalties, and the two others may have a status
			return chooses(m.value)
		}
		return false
	})
}

// onePenalty is the shape of a single penalty, which may contain penalties.
var (
	onePenalty  = refer("penalty", &makePenalty)
	makePenalty func() shape[feedback.Reader] // set by init, because it refers to itself
)

func init() {
	makePenalty = func() shape[feedback.Reader] { return choice("a penalty", penaltyKinds()...) }
}

// penaltyKinds returns the kinds of penalties that a file can name, with their documentation.
func penaltyKinds() []option[feedback.Reader] {
	alone := func(p feedback.Reader) func() feedback.Reader { return func() feedback.Reader { return p } }
	return []option[feedback.Reader]{
		kind("none", "no answer closes the budget", nothing, func(struct{}) feedback.Reader { return feedback.LeaveOpen }).
			or(alone(feedback.LeaveOpen)),
		kind("another-row", "the refusal is about another row: the budget is not closed, and the list ends", nothing, func(struct{}) feedback.Reader { return feedback.For(0) }).
			or(alone(feedback.For(0))),
		kind("retry-after", "alone: a 429, and a 503 with Retry-After; with a duration, in a when: for as long as Retry-After says, or else for that duration; "+
			"with none: only for as long as Retry-After says", lengthOrNone, feedback.RetryAfter).always().
			or(alone(throttle.RetryAfter)),
		kind("for", "for that duration; in a when", length, feedback.For).always(),
		kind("codes", "a table of codes in a JSON body", codes.shape(), func(c feedback.Codes) feedback.Reader { return c.Answer }),
		kind("text", "a text in the body", texts.shape(), func(t feedback.Text) feedback.Reader { return t.Answer }),
		kind("printed", "a length or a moment that stands in the body or in a header; of several in a header the longest counts", printed.shape(),
			func(p feedback.Printed) feedback.Reader { return p.Answer }),
		kind("headers", "fields in any dialect of X-RateLimit", headersShape, func(h feedback.Headers) feedback.Reader { return h.Answer }),
		kind("ratelimit", "the fields RateLimit and RateLimit-Policy of the IETF's draft", rateLimitShape, func(l feedback.RateLimit) feedback.Reader { return l.Answer }).
			or(alone(feedback.RateLimit{}.Answer)),
		kind("until-midnight", "until the day ends in a zone, by default UTC; in a when", zone, feedback.UntilMidnight).or(alone(feedback.UntilMidnight(nil))).always(),
		kind("until-first", "until the month ends in a zone, by default UTC; in a when", zone, feedback.UntilFirst).or(alone(feedback.UntilFirst(nil))).always(),
		kind("longest", "the longest of all counts", some(onePenalty), func(all []feedback.Reader) feedback.Reader { return feedback.All(all...) }),
		kind("when", "some answers only: all conditions must hold", guarded("penalty", penalties), guardedReader),
	}
}

// quotas is the quota of a policy. Of several in a list the smallest remaining quota counts.
var quotas = as(some(oneQuota), func(all []feedback.Reader) feedback.Reader {
	if len(all) == 1 {
		return all[0]
	}
	return feedback.All(all...)
})

var (
	oneQuota  = refer("quota", &makeQuota)
	makeQuota func() shape[feedback.Reader] // set by init, because it refers to itself
)

func init() {
	makeQuota = func() shape[feedback.Reader] { return choice("a quota", quotaKinds()...) }
}

// quotaKinds returns the kinds of a quota, one of which contains a quota.
func quotaKinds() []option[feedback.Reader] {
	return []option[feedback.Reader]{
		kind("headers", "fields in any dialect of X-RateLimit", headersShape, func(h feedback.Headers) feedback.Reader { return h.Left }),
		kind("ratelimit", "the fields RateLimit and RateLimit-Policy of the IETF's draft", rateLimitShape, func(l feedback.RateLimit) feedback.Reader { return l.Left }).
			or(func() feedback.Reader { return feedback.RateLimit{}.Left }),
		kind("amount", "a number in a JSON body", amountShape, func(a feedback.Amount) feedback.Reader { return a.Left }),
		kind("when", "some answers only: all conditions must hold", guarded("quota", oneQuota), guardedReader),
	}
}

// A settling is the way in which a policy learns the cost of a request.
type settling struct {
	cost  feedback.Reader
	meter feedback.Meter
}

// settle is where an answer states the cost of the request.
var settle = choice("a settle", settleKinds...)

var settleKinds = []option[settling]{
	kind("amount", "a number in a JSON body, or in the last event of a stream that has it", spent.shape(), func(a feedback.Amount) settling {
		return settling{a.Cost, a.Meter}
	}),
}

// acted is how a refusal says that the upstream has done a part of the work all the same.
var acted = oneOf(
	word[func(*http.Response) bool]{"graphql", feedback.Partly},
	word[func(*http.Response) bool]{"success", feedback.Succeeded},
)

// nothing is an empty value.
var nothing = record[struct{}]{name: "an empty mapping {}"}.shape()

// A guard is a part that looks at some answers only.
type guard[T any] struct {
	when  feedback.When
	query []string // parameters that the request must have
	then  T
}

// asked reports whether the request of an answer has all parameters of query. An empty parameter counts as missing.
func (g guard[T]) asked(resp *http.Response) bool {
	return !slices.ContainsFunc(g.query, func(name string) bool {
		return resp.Request == nil || throttle.Query(name)(resp.Request) == ""
	})
}

// guardedReader returns the reader of a guard. For the answers that the guard leaves out it returns the zero Answer.
func guardedReader(g guard[feedback.Reader]) feedback.Reader {
	read := g.when.Then(g.then)
	if g.query == nil {
		return read
	}

	// feedback.When has no field for the query.
	return func(resp *http.Response) throttle.Answer {
		if !g.asked(resp) {
			return throttle.Answer{}
		}
		return read(resp)
	}
}

// conditions returns the record of a when: its conditions, and under name the part that they guard.
func conditions[T any](name string, part shape[T]) record[guard[T]] {
	return record[guard[T]]{name: "a when", fields: []field[guard[T]]{
		member("status", "statuses of the answer, of which one must hold", some(status), func(g *guard[T], v []int) { g.when.Status = v }),
		member("method", "methods of the request, of which one must hold", some(method), func(g *guard[T], v []string) { g.when.Method = v }),
		member("host", "hosts of the request without the port, of which one must hold", some(hostName), func(g *guard[T], v []string) { g.when.Host = v }),
		member("path", `paths of the request, of which one must hold, such as "/v1/*"`, some(urlPath), func(g *guard[T], v []string) { g.when.Path = v }),
		member("query", "parameters that the request has, all of them", some(label), func(g *guard[T], v []string) { g.query = v }),
		member("media", "values of Content-Type without parameters, of which one must hold", some(media), func(g *guard[T], v []string) { g.when.Media = v }),
		member("header", `headers of the answer, which must all hold; an empty value stands for any value`, filled(headerTable), func(g *guard[T], v map[string]string) { g.when.Header = v }),
		must(member(name, "the meaning of these answers", part, func(g *guard[T], v T) { g.then = v })),
	}, check: func(r *reader, n *yaml.Node, members []keyed, _ *guard[T]) bool {
		// The part alone would see every answer.
		if len(members) == 1 && members[0].name == name {
			r.fail(n, "a when needs a condition: status, method, host, path, query, media or header")
			return false
		}
		return true
	}}
}

// guarded returns the shape of a when, with a part under a name. If the when has a condition on the
// answer, options for every answer may stand in the part.
func guarded[T any](name string, part shape[T]) shape[guard[T]] {
	when := conditions(name, part)
	return shape[guard[T]]{form: when.name, schema: when.schema, read: func(r *reader, n *yaml.Node) (guard[T], bool) {
		if sifts(n) {
			return sifted(when.shape()).read(r, n)
		}
		return when.read(r, n)
	}}
}

// sifts reports whether a when has a condition on the answer. Conditions on the request alone do not
// keep successful answers out, so they do not count.
func sifts(n *yaml.Node) bool {
	members, _, _ := newReader("", nil).members(n, "") // its mistakes are noted when it is read
	return slices.ContainsFunc(members, func(m keyed) bool { return m.name == "status" || m.name == "media" || m.name == "header" })
}

// sifted returns the shape of a part that sees only some answers, so that options for every answer may
// stand in it.
func sifted[T any](of shape[T]) shape[T] {
	return shape[T]{form: of.form, schema: of.schema, read: func(r *reader, n *yaml.Node) (T, bool) {
		r.sifted++
		defer func() { r.sifted-- }()
		return of.read(r, n)
	}}
}

// The records that several parts have.
var (
	headersShape   = defined("headers", headers.shape())
	rateLimitShape = defined("ratelimit", rateLimit.shape())
	dialectShape   = defined("as", either(oneOf(word[dialectSpec]{"sentence", dialectSpec{sentence: true}}), dialect.shape()))
	amountShape    = defined("amount", amount.shape())
)

var codes = record[feedback.Codes]{name: "codes", fields: []field[feedback.Codes]{
	must(member("fields", "where the code stands; the first field that exists decides", some(label), func(c *feedback.Codes, v []string) { c.Fields = v })),
	member("pattern", "finds the code in the text of the field", pattern, func(c *feedback.Codes, v *regexp.Regexp) { c.Pattern = v }),
	must(member("lasts", `for how long each code closes the budget; "not-refused": the code is certainly no refusal; "another-row": the refusal is about another row`, filled(table(codeLength, checkCode)),
		setCodes)),
	member("end", "a penalty that says for how long, in place of lasts", sifted(penalties), func(c *feedback.Codes, v feedback.Reader) { c.End = v }),
}}

// setCodes sets c's Lasts and NotRefused from the meanings of codes.
func setCodes(c *feedback.Codes, meanings map[string]throttle.Answer) {
	c.Lasts = make(map[string]time.Duration)
	for code, a := range meanings {
		if a.Verdict == throttle.VerdictNotRefused {
			c.NotRefused = append(c.NotRefused, code)
		} else {
			c.Lasts[code] = a.Close
		}
	}
}

// checkCode refuses a code that no answer can have, such as an empty code.
func checkCode(name string) error {
	_, err := parseLabel(name)
	return err
}

// lengthOrNone is a length, or none.
var lengthOrNone = scalar(`a duration such as "1s", or none`, schema{"anyOf": []any{lengthText, schema{"const": "none"}}},
	func(s string) (time.Duration, error) {
		if s == "none" {
			return 0, nil
		}
		return parseLength(s)
	})

// codeLength is the meaning of a code: a refusal of a duration, not-refused, or another-row.
var codeLength = scalar(`a duration such as "1s", not-refused, or another-row`,
	schema{"anyOf": []any{lengthText, schema{"enum": []any{"not-refused", "another-row"}}}},
	func(s string) (throttle.Answer, error) {
		switch s {
		case "not-refused":
			return throttle.Answer{Verdict: throttle.VerdictNotRefused}, nil
		case "another-row":
			return throttle.Refused(0), nil
		}
		d, err := parseLength(s)
		return throttle.Refused(d), err
	})

var texts = record[feedback.Text]{name: "text", fields: []field[feedback.Text]{
	must(member("pattern", "the body is a refusal if it matches", pattern, func(t *feedback.Text, v *regexp.Regexp) { t.Pattern = v })),
	must(member("lasts", `for how long the budget closes; "not-refused" or "another-row" as in codes`, codeLength, func(t *feedback.Text, v throttle.Answer) {
		t.Lasts, t.NotRefused = v.Close, v.Verdict == throttle.VerdictNotRefused
	})),
	member("end", "a penalty that says for how long, in place of lasts", sifted(penalties), func(t *feedback.Text, v feedback.Reader) { t.End = v }),
}, check: func(_ *reader, _ *yaml.Node, _ []keyed, t *feedback.Text) bool {
	if t.Lasts == 0 { // not-refused and another-row close nothing here, whatever end reads
		t.End = nil
	}
	return true
}}

var printed = record[feedback.Printed]{name: "printed", fields: []field[feedback.Printed]{
	member("header", "the header that is read in place of the body", header, func(p *feedback.Printed, v string) { p.Header = v }),
	member("fields", "where in a JSON body or header; without it anywhere", some(label), func(p *feedback.Printed, v []string) { p.Fields = v }),
	member("pattern", "finds the length or the moment in the text", pattern, func(p *feedback.Printed, v *regexp.Regexp) { p.Pattern = v }),
	member("as", "how it is written; sentence for a text such as \"Please retry in 39.237s.\"", dialectShape, func(p *feedback.Printed, v dialectSpec) { p.As = v.dialect() }),
}}

var headers = record[feedback.Headers]{name: "headers", fields: []field[feedback.Headers]{
	member("remaining", "the field with what is left", header, func(h *feedback.Headers, v string) { h.Remaining = v }),
	member("used", "the field with what is used", header, func(h *feedback.Headers, v string) { h.Used = v }),
	member("limit", "the field with the limit", header, func(h *feedback.Headers, v string) { h.Limit = v }),
	member("position", "the place of the count in a list without windows, such as 2 for the second number of 600,30000", number(1), func(h *feedback.Headers, v int) { h.Position = v }),
	member("size", "the limit, if no field of the answer has it", number(1), func(h *feedback.Headers, v int) { h.Size = v }),
	member("reset", "the field with the moment of the reset, or the time until it", header, func(h *feedback.Headers, v string) { h.Reset = v }),
	member("as", "how reset is written, if it is written in an unusual way", dialectShape, func(h *feedback.Headers, v dialectSpec) { h.As = v.dialect() }),
	member("per", "the length of the window", length, func(h *feedback.Headers, v time.Duration) { h.Per = v }),
	member("clock", "windows begin when the time since 1970 is a multiple of per, as on the minute or the hour of UTC", yes, func(h *feedback.Headers, v bool) { h.Clock = v }),
	member("status", "statuses of answers that may be refusals; without it 403, 429 and 503", some(status), func(h *feedback.Headers, v []int) { h.Status = v }),
}, check: func(r *reader, n *yaml.Node, members []keyed, _ *feedback.Headers) bool {
	if slices.ContainsFunc(members, func(m keyed) bool { return m.name == "remaining" || m.name == "used" || m.name == "reset" }) {
		return true
	}
	r.fail(n, "headers need remaining, used or reset")
	return false
}}

var rateLimit = record[feedback.RateLimit]{name: "ratelimit", fields: []field[feedback.RateLimit]{
	member("name", "the name of a policy of the upstream; without it the policy with the least left counts", label, func(l *feedback.RateLimit, v string) { l.Name = v }),
	member("prefix", "a prefix of the names of the fields", header, func(l *feedback.RateLimit, v string) { l.Prefix = v }),
	member("status", "statuses of answers that may be refusals; without it 403, 429 and 503", some(status), func(l *feedback.RateLimit, v []int) { l.Status = v }),
}}

var amount = record[feedback.Amount]{name: "amount", fields: []field[feedback.Amount]{
	must(member("fields", "where the number stands; the first field that exists decides", some(label), func(a *feedback.Amount, v []string) { a.Fields = v })),
	member("per", "for a quota: how long the remaining quota holds", length, func(a *feedback.Amount, v time.Duration) { a.Per = v }),
}}

// spent is an amount that settles: it has no window.
var spent = record[feedback.Amount]{name: "amount", fields: amount.fields[:1]}

// A dialectSpec is how a length or a moment is written.
type dialectSpec struct {
	sentence bool // for people
	after    time.Duration
	layout   string
	zone     *time.Location
}

// dialect returns the dialect that the spec describes: of sentences, of numbers, or else of moments.
func (d dialectSpec) dialect() feedback.Dialect {
	switch {
	case d.sentence:
		return feedback.Sentence
	case d.after > 0:
		return feedback.After(d.after)
	}
	return feedback.At(d.layout, d.zone)
}

var dialect = record[dialectSpec]{name: "as", fields: []field[dialectSpec]{
	member("after", "a number of this unit, such as 1ms", length, func(d *dialectSpec, v time.Duration) { d.after = v }),
	member("at", `a moment in this layout of Go's time.Parse, such as "2006-01-02 15:04:05"`, layout, func(d *dialectSpec, v string) { d.layout = v }),
	member("zone", "the zone of the moment; without it UTC", zone, func(d *dialectSpec, v *time.Location) { d.zone = v }),
}, check: func(r *reader, n *yaml.Node, members []keyed, _ *dialectSpec) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(members, func(m keyed) bool { return m.name == name })
	}
	switch {
	case has("after") == has("at"):
		r.fail(n, "as needs either after or at")
	case has("after") && has("zone"):
		r.fail(n, "a zone is for at: a length has none")
	default:
		return true
	}
	return false
}}

// layout is how a moment is written, in the way of Go.
var layout = scalar(`a layout such as "2006-01-02 15:04:05"`, anyText, func(s string) (string, error) {
	// The two moments differ in every part of a date and a time, so only a layout without parts prints both alike.
	one := time.Date(2001, 9, 8, 7, 6, 5, 4, time.UTC)
	other := time.Date(2032, 10, 13, 14, 15, 16, 17, time.UTC)
	if one.Format(s) == other.Format(s) {
		return "", fmt.Errorf("%q has no part of a moment in it: write how Go would print 2 January 2006, 15:04:05, such as \"2006-01-02 15:04:05\"", clip(s))
	}
	return s, nil
})
