package policyfile

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A Test is one request and what its author expects of the policies.
type Test struct {
	Name    string
	Method  string
	URL     *url.URL
	Header  http.Header
	Body    string
	Expects []Expectation // of these policies and no others

	Line int // of the file

	column int
}

// An Expectation is one policy that a request must match.
type Expectation struct {
	Policy string
	Cost   *int    // what it must cost; nil: whatever it costs
	Key    *string // the key of its budget; nil: any
}

// A placedTest is a test and where its parts stand.
type placedTest struct {
	Test
	at       *yaml.Node
	policies *yaml.Node
}

var test = record[placedTest]{name: "a test", fields: []field[placedTest]{
	member("name", "what the test is about", text, func(t *placedTest, v string) { t.Name = v }),
	must(member("request", `"METHOD URL"`, request, func(t *placedTest, v *http.Request) { t.Method, t.URL = v.Method, v.URL })),
	member("headers", "of the request", headerTable, func(t *placedTest, v map[string]string) {
		t.Header = make(http.Header)
		for name, value := range v {
			t.Header.Set(name, value)
		}
	}),
	member("body", "of the request", text, func(t *placedTest, v string) { t.Body = v }),
	must(expectations),
}, check: func(_ *reader, n *yaml.Node, _ []keyed, t *placedTest) bool {
	t.at, t.Line, t.column = n, n.Line, n.Column
	return true
}}

// expectations are the policies that the request must match, all of them: a list of names,
// or a mapping from names to what is expected of each.
var expectations = field[placedTest]{
	name: "policies", doc: "all policies that the request must match: a list of names, or for each name the cost and the key of its budget",
	schema: func() schema {
		return schema{"anyOf": []any{list(label).schema(), table(expectation.shape()).schema()}}
	},
	read: func(r *reader, n *yaml.Node, t *placedTest) bool {
		byName := either(
			as(list(label), func(names []string) map[string]Expectation {
				all := make(map[string]Expectation)
				for _, name := range names {
					all[name] = Expectation{}
				}
				return all
			}),
			table(expectation.shape()))
		n = follow(n)
		all, ok := byName.read(r, n)
		seen := make(map[string]bool)
		for _, name := range n.Content {
			if n.Kind == yaml.SequenceNode && seen[follow(name).Value] {
				r.fail(name, "%q stands here twice", clip(follow(name).Value))
				ok = false
			}
			seen[follow(name).Value] = true
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			e := all[name]
			e.Policy = name
			t.Expects = append(t.Expects, e)
		}
		t.policies = n
		return ok
	},
}

var expectation = record[Expectation]{name: "an expectation", fields: []field[Expectation]{
	member("cost", "what the request must cost", number(0), func(e *Expectation, v int) { e.Cost = &v }),
	member("key", "the key of its budget", text, func(e *Expectation, v string) { e.Key = &v }),
}}

// request is a method and a URL.
var request = scalar(`a request such as "GET https://api.example.com/v1/orders"`, anyText, func(s string) (*http.Request, error) {
	method, address, _ := strings.Cut(s, " ")
	if err := checkMethod(method); err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, strings.TrimSpace(address), nil)
	if err != nil || req.URL.Host == "" || (req.URL.Scheme != "http" && req.URL.Scheme != "https") {
		return nil, fmt.Errorf("%q is not a request such as \"GET https://api.example.com/v1/orders\"", clip(s))
	}
	return req, nil
})

// checkTests says which tests name a policy that is not there. If a policy has no name, or
// a preset has a mistake, it may be the one that is meant.
func (r *reader) checkTests(d *document) {
	var names []string
	there := make(map[string]bool)
	for _, t := range d.tables {
		if t.rows == nil {
			return
		}
	}
	for _, p := range d.policies() {
		if p.Name == "" {
			return
		}
		names = append(names, p.Name)
		there[p.Name] = true
	}
	for _, t := range d.tests {
		for _, e := range t.Expects {
			if there[e.Policy] {
				continue
			}
			r.fail(t.policies, "there is no policy %q%s", clip(e.Policy), r.hint(e.Policy, names))
		}
	}
}

// Request returns the request of a test.
func (t *Test) Request() *http.Request {
	req := &http.Request{Method: t.Method, URL: t.URL, Host: t.URL.Host, Header: t.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	if t.Body != "" {
		body := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(t.Body)), nil }
		req.Body, _ = body()
		req.GetBody, req.ContentLength = body, int64(len(t.Body))
	}
	return req
}

// Check runs the tests of the file. Its error is [Errors], a mistake for each thing that
// is not as expected.
func (f *File) Check() error {
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: f.Policies})
	if err != nil {
		return err
	}
	r := newReader(f.name, f.text)
	for _, t := range f.Tests {
		for _, text := range f.differences(transport, &t) {
			if t.Name != "" {
				text = fmt.Sprintf("test %q: %s", t.Name, text)
			}
			r.failAt(t.Line, t.column, "%s", text)
		}
	}
	return r.errs.sorted()
}

// differences returns what is not as a test expects.
func (f *File) differences(transport *throttle.Transport, t *Test) (all []string) {
	charges := transport.Explain(t.Request())
	costs := make(map[string]throttle.Charge)
	for _, c := range charges {
		costs[c.Budget.Policy] = c
	}
	for _, e := range t.Expects {
		c, ok := costs[e.Policy]
		delete(costs, e.Policy)
		switch {
		case !ok && e.Cost != nil && *e.Cost == 0:
		case !ok:
			all = append(all, fmt.Sprintf("the request does not match policy %q, or is free under it", e.Policy))
		case e.Cost != nil && c.Cost != *e.Cost:
			all = append(all, fmt.Sprintf("the request costs %d under policy %q, and not %d", c.Cost, e.Policy, *e.Cost))
		}
		if ok && e.Key != nil && c.Budget.Key != throttle.BudgetOf(e.Policy, *e.Key).Key {
			all = append(all, fmt.Sprintf("the key of the budget of policy %q is not %q", e.Policy, clip(*e.Key)))
		}
	}
	others := slices.Sorted(maps.Keys(costs))
	for i, name := range others {
		if i == mostShown { // else each of many tests would have a mistake for each of many rows
			return append(all, fmt.Sprintf("the request matches %d more policies", len(others)-i))
		}
		all = append(all, fmt.Sprintf("the request matches policy %q as well", name))
	}
	return all
}
