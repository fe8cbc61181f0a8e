package policyfile

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/store"
)

// A row is a policy and where it stands.
type row struct {
	throttle.Policy
	at        *yaml.Node
	fields    map[string]*yaml.Node // by name, including merge keys
	named     bool                  // no request matches it: callers name it
	wildcards []wildcard            // that its key and its cost name
	routes    []routePattern        // for the {route} of its key or its share
	penalty   feedback.Reader       // which answers close the budget, or nil for the default
	acted     func(*http.Response) bool
	quota     feedback.Reader
	settle    feedback.Reader
	runbook   string // optional
}

// policyRow is one row of the file.
var policyRow = defined("policy", shape[row]{form: policy.name, schema: policy.schema, read: func(r *reader, n *yaml.Node) (p row, ok bool) {
	r.wildcards, r.routes = nil, new(routes)
	p, ok = policy.read(r, n)
	r.routes = nil
	if ok || p.Match != "" { // otherwise a mistyped field may be the match
		p.wildcards = r.wildcards
	}
	return p, ok
}})

// policy has the fields of [throttle.Policy].
var policy = record[row]{name: "a policy", fields: []field[row]{
	must(member("name", "unique; part of the store's keys, and in errors, events and metrics", label, func(p *row, v string) { p.Name = v })),
	mustSay(member("match", `"[METHOD ][HOST]/[PATH]"; "/" is every request to every host; none: no request matches the row, and callers of the waiting API name it`,
		matching, (*row).setMatch),
		`say which requests, such as "api.example.com/", "/" for every request, or none if callers of the waiting API name the policy`),
	member("key", `one budget for each value: "{header.X-App}", "{query.access_token}", "{host}", "{path}", "{method}", "{shop}" for a wildcard of match, `+
		`"{route}" for the first of the routes that the request matches, "{body.model}" for a text or a number in a JSON body; several are joined, and `+
		`"{header.X-App|query.app}" takes the first value that is not empty; a single placeholder needs no quotes`, key, func(p *row, v keyFunc) { p.Key = v }).
		usually("one budget"),
	member("routes", `patterns in the language of match, 200 at most, for the "{route}" of key or share: one budget for each pattern, so that paths with ids share it, `+
		`and one for all requests that match none; the first that matches counts`, routeList, func(p *row, v []routePattern) { p.routes = v }).usually(`no "{route}"`),
	member("keyed", "a row with match: none has a budget for each key that its callers name", yes, func(p *row, v bool) { p.Keyed = v }).usually("no"),
	member("share", `callers with different values take turns while the budget is full: tenants, such as "{header.X-Tenant}", written as a key is`, key,
		func(p *row, v keyFunc) { p.Share = v }).usually("first come, first served"),
	member("weight", `the part of a share beside the others, from 1 to 1000: a number, or "{header.X-Weight}" for the number in a header of the request, `+
		`1 if it has none`, weight, func(p *row, v costFunc) { p.Weight = v }).usually("1"),
	must(member("limit", `what each budget holds, such as "40/s", "10000/20s", "40/s paced", "100/m fixed", "5000/month Asia/Shanghai", "2/s burst 40", "20 in flight", `+
		`unlimited, or told for what the answers say`, limit, func(p *row, v throttle.Limit) { p.Limit = v })),
	member("cost", `how much of the limit a request takes: a number such as 5 or 1_000, or "{header.X-Cost}" for the number in a header of the request, 1 if it has none`, cost,
		func(p *row, v costFunc) { p.Cost = v }).usually("1"),
	member("penalty", "which answers close the budget, and for how long; the first of a list that recognises a refusal counts", rowPenalty,
		func(p *row, v feedback.Reader) { p.penalty = v }).usually("a 429, and the tenth 503 in a row with Retry-After"),
	member("acted", "graphql: an answer with data and a refusal has done a part of the work; success: an answer below 400 that asks for a pause is good, "+
		"and the request is not repeated",
		acted, func(p *row, v func(*http.Response) bool) { p.acted = v }).usually("a refused request has done nothing"),
	member("quota", "where an answer says what is left; the smallest of a list counts", quotas, func(p *row, v feedback.Reader) { p.quota = v }).usually("not read"),
	member("settle", "where an answer, or the last event of a stream, says what the request has cost", settle, func(p *row, v settling) { p.settle, p.Meter = v.cost, v.meter }).
		usually("cost is final"),
	member("adaptive", "learn from refusals how much of the limit the upstream truly allows", yes, func(p *row, v bool) { p.Adaptive = v }).usually("no"),
	member("jitter", "the time that may pass between a grant and the arrival at the upstream, from 1ms on; none for no time at all", jitter,
		func(p *row, v time.Duration) { p.Jitter = v }).usually("35ms"),
	member("headroom", `the share of the limit that requests of a priority must leave free, such as "{low: 0.25}"`, filled(headroom.shape()),
		func(p *row, v map[throttle.Priority]float64) { p.Headroom = v }).usually("none"),
	member("shadow", "count and report, never hold or refuse", yes, func(p *row, v bool) { p.Shadow = v }).usually("no"),
	member("scope", "fleet: all programs share the budgets; node: each program has the limit for itself",
		oneOf(word[throttle.Scope]{"fleet", throttle.ScopeFleet}, word[throttle.Scope]{"node", throttle.ScopeNode}), func(p *row, v throttle.Scope) { p.Scope = v }).usually("fleet"),
	member("runbook", "the address of the page that says what to do while the budget is closed, with http or https and without a user, "+
		"300 bytes at most; throttle status and the dashboard show it",
		runbook, func(p *row, v string) { p.runbook = v }).usually("none"),
}, check: func(r *reader, n *yaml.Node, members []keyed, p *row) bool {
	p.at, p.fields = n, make(map[string]*yaml.Node)
	for _, m := range members {
		p.fields[m.name] = m.value
	}
	p.Answer = p.reader()
	return r.setRoutes(p)
}}

// reader returns one reader for the row's penalty, acted, quota and settle, and for the limit that
// answers tell, or nil if the row has none of these.
func (p *row) reader() feedback.Reader {
	// acted changes only refusals, so it needs a reader of refusals.
	refused := p.penalty
	if p.acted != nil {
		if refused == nil {
			refused = usualRefusals()
		}
		refused = feedback.Acted(refused, p.acted)
	}

	var parts []feedback.Reader
	for _, part := range []feedback.Reader{refused, p.quota, p.settle, p.told(refused)} {
		if part != nil {
			parts = append(parts, part)
		}
	}

	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}

	return feedback.All(parts...)
}

// told returns the reader of the limit that answers tell, for a row under the limit told. Without a
// reader of refusals it reads refusals, too. For any other limit, and for a row that no answer comes to,
// it returns nil.
func (p *row) told(refused feedback.Reader) feedback.Reader {
	switch {
	case p.Limit.Kind() != store.KindTold || p.named:
		return nil
	case refused != nil:
		return feedback.Told{}.Left
	}
	return feedback.Told{}.Answer
}

// outageAnswers is how many answers in a row must be a 503 before the default of [throttle.Policy.Answer] takes the
// upstream for down.
const outageAnswers = 10

// usualRefusals returns a reader of the refusals that the default of [throttle.Policy.Answer]
// knows.
func usualRefusals() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(throttle.RetryAfter),
		feedback.InARow(outageAnswers, throttle.RetryAfter),
	)
}

// matchNone is the match of a policy that is used by name only.
const matchNone = "none"

// setMatch sets the pattern, or marks the row as named for the pattern none.
func (p *row) setMatch(pattern string) {
	p.named = pattern == matchNone
	if !p.named {
		p.Match = pattern
	}
}

// A costFunc is a [throttle.Policy.Cost].
type costFunc = func(*http.Request) int

// matching is a pattern, which throttle reads. A character that nobody sees comes from a page
// that was copied, and matches no request.
var matching = scalar(`a pattern such as "api.example.com/v1/"`, anyText, func(s string) (string, error) {
	if s == "" {
		return s, errors.New(`an empty match says nothing: write "/" for every request, or none if callers of the waiting API name the policy`)
	}
	return s, checkPrintable(s)
})

// checkPrintable refuses a text with a character that nobody sees. A tab may stand.
func checkPrintable(s string) error {
	for i, c := range s {
		if !unicode.IsPrint(c) && c != '\t' {
			return fmt.Errorf("the character %U at offset %d cannot be printed: take it out", c, i)
		}
	}
	return nil
}

// mostRunbook is how many bytes an address has at most, because programs report it every few seconds.
const mostRunbook = 300

// runbook is the address of a page for people.
var runbook = scalar(`an address such as "https://wiki.example.com/limits"`, anyText, func(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return s, fmt.Errorf("%q is no address of a page: it begins with http:// or https:// and a host", clip(s))
	case u.User != nil:
		return s, errors.New("a user in the address would be shown to everybody who looks: leave the user out")
	case len(s) > mostRunbook:
		return s, fmt.Errorf("the address has %d bytes; %d are the most", len(s), mostRunbook)
	}
	return s, nil
})

// cost is a number, or a template whose value is one.
var cost = defined("cost", as(templates(`a cost such as 5 or "{header.X-Cost}"`, schema{"type": []any{"integer", "string"}}, parseCost), template.cost))

// parseCost reads a cost: a number, which becomes a template without placeholders, or a single
// placeholder whose value can be a number.
func parseCost(s string) (template, error) {
	if n, err := parseNumber(s); err == nil {
		return template{number: n}, nil
	}
	if !strings.ContainsAny(s, "{}") {
		return template{}, fmt.Errorf("%q is not a cost: it is a whole number from 0 on (0 makes a request free), or \"{header.NAME}\"", clip(s))
	}

	t, err := parseTemplate(s)
	switch {
	case err != nil:
		return t, err
	case !t.bare || s == "{host}" || s == "{path}" || s == "{route}" || s == "{method}":
		return t, fmt.Errorf("%q is never a number: a cost is a whole number, or one value of the request such as \"{header.X-Cost}\"", clip(s))
	}

	return t, nil
}

// cost returns the cost function of a template. The cost is 1 if the placeholder's value is no number
// from 0 on.
func (t template) cost() costFunc {
	if len(t.parts) == 0 {
		return func(*http.Request) int { return t.number }
	}
	value := t.parts[0].value
	return func(req *http.Request) int {
		// Callers choose the value, so an unreadable or negative number must not be free.
		if n, err := strconv.Atoi(value(req)); err == nil && n >= 0 {
			return n
		}
		return 1
	}
}

// mostWeight is the largest weight of a share.
const mostWeight = 1000

// weight is a number, or a template whose value is one. A number of a request that is out of range
// becomes the nearest weight.
var weight = defined("weight", as(templates(`a weight such as 2 or "{header.X-Weight}"`, schema{"type": []any{"integer", "string"}}, parseWeight), func(t template) costFunc {
	wanted := t.cost()
	return func(req *http.Request) int { return max(1, min(wanted(req), mostWeight)) }
}))

// parseWeight reads a weight, which is written as a cost is, but is never 0.
func parseWeight(s string) (template, error) {
	if n, err := parseNumber(s); err == nil && (n < 1 || n > mostWeight) {
		return template{}, fmt.Errorf("a weight of %d is out of range: use 1 to %d", n, mostWeight)
	}
	t, err := parseCost(s)
	if err != nil {
		err = fmt.Errorf("%q is not a weight: it is a whole number from 1 to %d, or one value of the request such as \"{header.X-Weight}\"", clip(s), mostWeight)
	}
	return t, err
}

// jitter is a duration, or none.
var jitter = scalar(`a duration such as "50ms", or none`, schema{"anyOf": []any{lengthText, schema{"const": "none"}}}, func(s string) (time.Duration, error) {
	if s == "none" {
		return -1, nil
	}
	d, err := parseLength(s)
	switch {
	case err != nil:
		err = fmt.Errorf("%w; for no time at all write none", err)
	case d < time.Millisecond:
		err = fmt.Errorf("%q is too short: the least jitter is 1ms; for no time at all write none", clip(s))
	}
	return d, err
})

// headroom is a share for each priority.
var headroom = record[map[throttle.Priority]float64]{name: "headroom", fields: []field[map[throttle.Priority]float64]{
	member("low", "the share that requests of low priority leave free", share, setShare(throttle.PriorityLow)),
	member("normal", "the share that requests of normal priority leave free", share, setShare(throttle.PriorityNormal)),
	member("high", "the share that requests of high priority leave free", share, setShare(throttle.PriorityHigh)),
}}

// setShare returns a function that stores the share of a priority.
func setShare(p throttle.Priority) func(*map[throttle.Priority]float64, float64) {
	return func(m *map[throttle.Priority]float64, v float64) {
		if *m == nil {
			*m = make(map[throttle.Priority]float64)
		}
		(*m)[p] = v
	}
}
