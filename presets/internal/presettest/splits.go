package presettest

import (
	"testing"

	"github.com/fleetthrottle/throttle"
)

// Splits returns for each policy that a request meets which fields of the
// request's header split it: with another value the request meets another budget.
// Policies that none of them splits are left out.
func Splits(t *testing.T, policies []throttle.Policy, line string, fields ...string) map[string][]string {
	t.Helper()
	splits := make(map[string][]string)
	plain := explain(t, policies, Request(t, line))
	for _, field := range fields {
		r := Request(t, line)
		r.Header.Set(field, "another")
		for i, c := range explain(t, policies, r) {
			name := c.Budget.Policy
			if c.Budget.Key != plain[i].Budget.Key {
				splits[name] = append(splits[name], field)
			}
		}
	}
	return splits
}

// Limits returns what each policy allows, as in the table of the package.
func Limits(policies []throttle.Policy) map[string]string {
	limits := make(map[string]string)
	for _, p := range policies {
		limits[p.Name] = p.Limit.String()
	}
	return limits
}
