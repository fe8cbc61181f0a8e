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
)

// A Test is one request and what its author expects of the policies.
type Test struct {
	Name    string
	Method  string
	URL     *url.URL
	Header  http.Header
	Body    string
	Expects []Expectation // exactly the policies that the request must match

	// Answer is the upstream's answer. Without it only the request is tested.
	Answer *Answer

	// Closes has all policies that the answer must close, by name, each with the duration. A policy for
	// which the answer is certainly no refusal has [throttle.VerdictNotRefused]. A policy that stays open
	// because the refusal is about a different row may have a refusal of 0, or may be missing.
	Closes map[string]throttle.Answer

	Line int // of the file

	column int
}

// An Expectation is one policy that a request must match.
type Expectation struct {
	Policy string
	Cost   *int    // the expected cost, or nil for any
	Key    *string // the expected key of the budget, or nil for any
}

// A placedTest is a test and where its parts stand.
type placedTest struct {
	Test
	at       *yaml.Node
	policies *yaml.Node
	closes   *yaml.Node
}

var test = record[placedTest]{name: "a test", fields: []field[placedTest]{
	member("name", "what the test is about", text, func(t *placedTest, v string) { t.Name = v }),
	must(member("request", `"METHOD URL"`, request, func(t *placedTest, v *http.Request) { t.Method, t.URL = v.Method, v.URL })),
	member("headers", "headers of the request", headerSet, func(t *placedTest, v http.Header) { t.Header = v }),
	member("body", "the body of the request", text, func(t *placedTest, v string) { t.Body = v }),
	must(expectations),
	member("answer", "an answer of the upstream", answer.shape(), func(t *placedTest, v Answer) { t.Answer = &v }),
	member("closes", `all policies that the answer must close, each with the duration; "not-refused" or "another-row" as in codes`, table(codeLength), func(t *placedTest, v map[string]throttle.Answer) { t.Closes = v }),
}, check: func(r *reader, n *yaml.Node, members []keyed, t *placedTest) bool {
	t.at, t.Line, t.column = n, n.Line, n.Column
	answered := false
	for _, m := range members {
		answered = answered || m.name == "answer"
		switch {
		case m.name == "closes":
			t.closes = m.value
		case m.name == "headers" && t.Header.Get("Host") != "":
			r.fail(m.value, "the host of a request is no header: write it into the request")
			return false
		}
	}

	if t.closes != nil && !answered {
		r.fail(t.closes, "closes needs an answer: nothing is closed by a request")
		return false
	}
	return true
}}

// expectations are all policies that the request must match: a list of names, or a mapping from
// names to the expected cost and key.
var expectations = field[placedTest]{
	fieldHead: fieldHead{
		name: "policies", form: "a text, or a list; or a mapping from names to expectations",
		doc: "all policies that the request must match: a list of names, or for each name the cost and the key of its budget",
	},
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

		// A name that stands twice in a list is a mistake. A mapping has its own check.
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

// Request returns a new request as the test describes it.
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
