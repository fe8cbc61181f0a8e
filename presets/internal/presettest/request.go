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

// Request makes a request of "METHOD URL"; the method may be left out.
func Request(t *testing.T, line string, body io.Reader) *http.Request {
	t.Helper()
	method, url, ok := strings.Cut(line, " ")
	if !ok {
		method, url = http.MethodGet, line
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
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

// Budget returns which budget of a policy a request meets; "" if none. It is the
// same for two requests that share it.
func Budget(t *testing.T, policies []throttle.Policy, policy string, r *http.Request) string {
	t.Helper()
	for _, c := range explain(t, policies, r) {
		if c.Budget.Policy == policy {
			return c.Budget.String()
		}
	}
	return ""
}

func explain(t *testing.T, policies []throttle.Policy, r *http.Request) []throttle.Charge {
	t.Helper()
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: policies})
	require.NoError(t, err)
	return transport.Explain(r)
}
