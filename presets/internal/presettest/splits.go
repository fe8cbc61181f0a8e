package presettest

import (
	"net/http"
	"testing"

	"github.com/fleetthrottle/throttle"
)

// Splits lists the policies that a request meets, each with the fields of the request's header that
// split it: "a App Tenant, b Tenant". With a different value in such a field the request meets a
// different budget. Policies that no field splits are left out.
func Splits(t *testing.T, policies []throttle.Policy, line string, fields ...string) string {
	t.Helper()
	plain := explain(t, policies, Request(t, line))
	split := make([]string, len(plain))
	for _, field := range fields {
		r := Request(t, line)
		r.Header.Set(field, "another")

		for i, c := range explain(t, policies, r) {
			if c.Budget.Key == plain[i].Budget.Key {
				continue
			}
			if split[i] == "" {
				split[i] = c.Budget.Policy
			}

			split[i] += " " + field
		}
	}

	return list(split, func(text string) string { return text })
}

// Headers is the Caller of options with two ids, which are fields of the request's
// header.
func Headers(a, b string) func(*http.Request) (string, string) {
	one, two := throttle.Header(a), throttle.Header(b)
	return func(r *http.Request) (string, string) { return one(r), two(r) }
}

// Limits lists what each policy allows, as in the table of the package.
func Limits(policies []throttle.Policy) string {
	return list(policies, func(p throttle.Policy) string { return p.Name + " " + p.Limit.String() })
}
