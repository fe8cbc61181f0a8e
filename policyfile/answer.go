package policyfile

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// An Answer is an answer of the upstream, as somebody has recorded it.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

var answer = record[Answer]{name: "an answer", fields: []field[Answer]{
	member("status", "200 if there is none", status, func(a *Answer, v int) { a.Status = v }),
	member("headers", "of the answer", headerTable, func(a *Answer, v map[string]string) {
		a.Header = make(http.Header)
		for name, value := range v {
			a.Header.Set(name, value)
		}
	}),
	member("body", "of the answer", text, func(a *Answer, v string) { a.Body = v }),
}}

// Response returns the answer to the test's request. A test without an answer has none: nil.
func (t *Test) Response() *http.Response {
	if t.Answer == nil {
		return nil
	}
	resp := &http.Response{
		StatusCode: cmp.Or(t.Answer.Status, http.StatusOK), Header: t.Answer.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(t.Answer.Body)), ContentLength: int64(len(t.Answer.Body)), Request: t.Request(),
	}
	if resp.Header == nil {
		resp.Header = make(http.Header)
	}
	return resp
}

// answerDifferences returns where the answer of a test closes other policies than the test
// says, or closes them for another time.
func (f *File) answerDifferences(t *Test) (all []string) {
	closes, err := f.closedBy(t.Response())
	if err != nil {
		return []string{err.Error()}
	}

	for _, name := range slices.Sorted(maps.Keys(t.Closes)) {
		want, got := t.Closes[name], closes[name]
		delete(closes, name)
		if want != got {
			all = append(all, fmt.Sprintf("the answer closes policy %q for %v, and not for %v", name, lengthName(got), lengthName(want)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(closes)) {
		all = append(all, fmt.Sprintf("the answer closes policy %q as well, for %v", name, lengthName(closes[name])))
	}
	return all
}

// lengthName names a length as a file does.
func lengthName(d time.Duration) string {
	switch d {
	case 0:
		return "no time"
	case anotherRow:
		return "another-row"
	}
	if d < 0 {
		return "not-refused"
	}
	return d.String()
}

// closedBy returns for how long an answer closes which policies. The answer is shown to each
// policy that its request matches, also if the request is free under it, as a transport does.
func (f *File) closedBy(resp *http.Response) (map[string]time.Duration, error) {
	matching := slices.Clone(f.Policies)
	for i := range matching {
		matching[i].Cost = nil
	}
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: matching})
	if err != nil {
		return nil, err
	}

	matched := make(map[string]bool)
	for _, c := range transport.Explain(resp.Request) {
		matched[c.Budget.Policy] = true
	}
	closes := make(map[string]time.Duration)
	for i := range f.Policies {
		p := &f.Policies[i]
		if !matched[p.Name] {
			continue
		}
		if d := penaltyOf(p, resp); d != 0 {
			closes[p.Name] = min(d, throttle.MaxPenalty)
		}
	}
	return closes, nil
}

// penaltyOf returns what a policy makes of a single answer. A policy without a penalty believes
// a 503 only after several in a row.
func penaltyOf(p *throttle.Policy, resp *http.Response) time.Duration {
	switch {
	case p.Penalty != nil:
		return p.Penalty(resp)
	case resp.StatusCode == http.StatusTooManyRequests:
		return throttle.RetryAfter(resp)
	}
	return 0
}
