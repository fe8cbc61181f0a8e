package presettest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// Request makes a request of "METHOD URL", where the method may be left out, and of
// its body, if it has one.
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

// Costs returns what a request costs each of the policies that it meets.
func Costs(t *testing.T, policies []throttle.Policy, r *http.Request) map[string]int {
	t.Helper()
	costs := make(map[string]int)
	for _, c := range explain(t, policies, r) {
		costs[c.Budget.Policy] = c.Cost
	}
	return costs
}

// Rows returns the names of the policies that a request meets, in their order.
func Rows(t *testing.T, policies []throttle.Policy, r *http.Request) []string {
	t.Helper()
	var names []string
	for _, c := range explain(t, policies, r) {
		names = append(names, c.Budget.Policy)
	}
	return names
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

func explain(t *testing.T, policies []throttle.Policy, r *http.Request) []throttle.Charge {
	t.Helper()
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies})
	require.NoError(t, err)
	return transport.Explain(r)
}
