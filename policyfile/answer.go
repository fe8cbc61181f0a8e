package policyfile

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// An Answer is a recorded answer of the upstream.
type Answer struct {
	Status int // 0 stands for 200
	Header http.Header
	Body   string
}

var answer = record[Answer]{name: "an answer", fields: []field[Answer]{
	member("status", "the status; without it 200", status, func(a *Answer, v int) { a.Status = v }),
	member("headers", "headers of the answer", headerSet, func(a *Answer, v http.Header) { a.Header = v }),
	member("body", "the body of the answer", text, func(a *Answer, v string) { a.Body = v }),
}}

// Response returns the answer to the test's request, or nil for a test without an answer.
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

// answerDifferences returns a text for each policy under which the test's answer has a different meaning
// than Closes says. For a policy that Closes does not name, the answer must have no meaning, or be a
// refusal about a different row. If the policies make no transport, the only text is that error.
func (f *File) answerDifferences(t *Test) (differences []string) {
	meanings, err := f.meaningsOf(t.Response())
	if err != nil {
		return []string{err.Error()}
	}

	for _, name := range slices.Sorted(maps.Keys(t.Closes)) {
		want, got := t.Closes[name], meanings[name]

		// Only policies that the test does not expect remain in meanings after the loop.
		delete(meanings, name)
		if want != got {
			differences = append(differences, fmt.Sprintf("the answer closes policy %q for %v, and not for %v", name, lengthName(got), lengthName(want)))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		if meanings[name] != throttle.Refused(0) {
			differences = append(differences, fmt.Sprintf("the answer closes policy %q as well, for %v", name, lengthName(meanings[name])))
		}
	}

	return differences
}

// lengthName returns an answer as a file writes it: a duration, not-refused or another-row. An answer
// without a meaning is "no time".
func lengthName(a throttle.Answer) string {
	switch {
	case a.Close > 0:
		return a.Close.String()
	case a.Verdict == throttle.VerdictNotRefused:
		return "not-refused"
	case a.Verdict == throttle.VerdictRefused:
		return "another-row"
	}
	return "no time"
}

// meaningsOf returns by policy what a response means: a refusal that closes the policy, a refusal about
// a different row, or certainly no refusal. A policy for which it means none of these is missing. As in
// a transport, each policy that the request matches reads the response, even if the request is free
// under the policy. Errors come from [throttle.New].
func (f *File) meaningsOf(resp *http.Response) (map[string]throttle.Answer, error) {
	// Explain leaves out rows under which the request is free, so drop the costs.
	withoutCosts := slices.Clone(f.Policies)
	for i := range withoutCosts {
		withoutCosts[i].Cost = nil
	}

	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: withoutCosts})
	if err != nil {
		return nil, err
	}

	matched := make(map[string]bool)
	for _, c := range transport.Explain(resp.Request) {
		matched[c.Budget.Policy] = true
	}

	keyed, err := f.keyedFor(resp.Request)
	if err != nil {
		return nil, err
	}

	meanings := make(map[string]throttle.Answer)
	closedByDefault := make(map[string]bool) // rows that only the default has closed, except shadow rows
	firstKeyed := ""                         // the first row with a key that the answer closes
	for i := range f.Policies {
		p := &f.Policies[i]
		if !matched[p.Name] {
			continue
		}

		a, byDefault := answerUnder(p, resp)

		// Shadow rows hold nothing, so they take no part in the choice of the default below.
		if a.Verdict != throttle.VerdictNone || a.Close > 0 {
			meanings[p.Name], closedByDefault[p.Name] = a, byDefault && !p.Shadow
		}
		if a.Close > 0 && keyed[p.Name] && !p.Shadow && firstKeyed == "" {
			firstKeyed = p.Name
		}
	}

	// The default takes a 429 to be about the first row with a key, so drop all other rows that only the default
	// closed.
	if firstKeyed != "" && resp.StatusCode == http.StatusTooManyRequests {
		maps.DeleteFunc(meanings, func(name string, _ throttle.Answer) bool { return closedByDefault[name] && name != firstKeyed })
	}

	return meanings, nil
}

// keyedFor reports by policy whether a request has a key of its own under the policy. It reports false
// for a policy under which the request is free or has an empty key. Errors come from [throttle.New].
func (f *File) keyedFor(req *http.Request) (map[string]bool, error) {
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: f.Policies})
	if err != nil {
		return nil, err
	}
	keyed := make(map[string]bool)
	for _, c := range transport.Explain(req) {
		keyed[c.Budget.Policy] = c.Budget.Key != store.BudgetOf(c.Budget.Policy, "").Key
	}
	return keyed, nil
}

// answerUnder returns the verdict and the Close that a policy reads from a single answer, and whether
// they come from the default. Close is at most [throttle.MaxPenalty], as in a transport. A 503 that the
// policy itself does not read has no meaning here: the default believes a 503 only after several in a row.
func answerUnder(p *throttle.Policy, resp *http.Response) (a throttle.Answer, byDefault bool) {
	if p.Answer != nil {
		a = p.Answer(resp)
	}
	isUnread := a.Verdict == throttle.VerdictNone && a.Close <= 0
	if isUnread && resp.StatusCode == http.StatusTooManyRequests {
		a, byDefault = throttle.RetryAfter(resp), true
	}
	if a.Verdict == throttle.VerdictPartly {
		a.Verdict = throttle.VerdictRefused // the tests of a file do not tell the two apart
	}
	return throttle.Answer{Verdict: a.Verdict, Close: min(a.Close, throttle.MaxPenalty)}, byDefault
}
