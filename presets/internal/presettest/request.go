package presettest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Request makes a request of a line "METHOD URL", where the method GET may be left out, and of a body, if
// one is given.
func Request(t *testing.T, line string, body ...string) *http.Request {
	t.Helper()
	method, url, ok := strings.Cut(line, " ")
	if !ok {
		method, url = http.MethodGet, line
	}
	var content io.Reader
	if len(body) > 0 {
		content = strings.NewReader(body[0])
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, content)
	require.NoError(t, err)
	return r
}

// Rows lists the policies that a request meets, in their order.
func Rows(t *testing.T, policies []throttle.Policy, r *http.Request) string {
	t.Helper()
	return list(explain(t, policies, r), func(c store.Charge) string { return c.Budget.Policy })
}

// Costs lists the policies that a request meets with their costs: "a 1, b 5".
func Costs(t *testing.T, policies []throttle.Policy, r *http.Request) string {
	t.Helper()
	return list(explain(t, policies, r), func(c store.Charge) string { return fmt.Sprint(c.Budget.Policy, " ", c.Cost) })
}

// Cost returns the cost of a request under one policy, or 0 if the request does not meet it.
func Cost(t *testing.T, policies []throttle.Policy, policy string, r *http.Request) int {
	t.Helper()
	for _, c := range explain(t, policies, r) {
		if c.Budget.Policy == policy {
			return c.Cost
		}
	}
	return 0
}

// Budget returns which budget of a policy a request meets: the same for two requests
// that share it. It fails if the request does not meet the policy.
func Budget(t *testing.T, policies []throttle.Policy, policy string, r *http.Request) string {
	t.Helper()
	for _, c := range explain(t, policies, r) {
		if c.Budget.Policy == policy {
			return c.Budget.String()
		}
	}
	require.Fail(t, "no budget", "%s %s does not meet %s", r.Method, r.URL, policy)
	return ""
}

// Shared reports whether two requests share their budget of a policy.
func Shared(t *testing.T, policies []throttle.Policy, policy string, a, b *http.Request) bool {
	t.Helper()
	return Budget(t, policies, policy, a) == Budget(t, policies, policy, b)
}

func explain(t *testing.T, policies []throttle.Policy, r *http.Request) []store.Charge {
	t.Helper()
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: policies})
	require.NoError(t, err)
	return transport.Explain(r)
}

// list joins the non-empty texts that say returns.
func list[T any](all []T, say func(T) string) string {
	var texts []string
	for _, v := range all {
		if text := say(v); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// Splits lists the policies that a request meets, each with those of the fields of the request's header
// that split it: "a App Tenant, b Tenant". With a value in such a field the request meets a different
// budget. Policies that no field splits are left out. The fields must not change which policies the
// request meets.
func Splits(t *testing.T, policies []throttle.Policy, line string, fields ...string) string {
	t.Helper()
	without := explain(t, policies, Request(t, line))
	splits := make([]string, len(without)) // "" for a policy that no field splits
	for _, field := range fields {
		r := Request(t, line)
		r.Header.Set(field, "another")

		for i, c := range explain(t, policies, r) {
			if c.Budget.Key == without[i].Budget.Key {
				continue
			}
			if splits[i] == "" {
				splits[i] = c.Budget.Policy
			}
			splits[i] += " " + field
		}
	}

	return list(splits, func(text string) string { return text })
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
