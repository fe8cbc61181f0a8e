package presettest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// CutStreams has a policy read a stream that is cut at each of its bytes, and each time in two pieces.
// The stream must tell the cost that is wanted from some byte on, and nothing before that.
func CutStreams(t *testing.T, policies []throttle.Policy, policy string, r *http.Request, stream string, want int) {
	t.Helper()
	cost := func(pieces ...string) int {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r}
		for i := range policies {
			if policies[i].Name != policy {
				continue
			}

			m := policies[i].Meter(resp)
			for _, piece := range pieces {
				n, err := m.Write([]byte(piece))
				require.NoError(t, err)
				require.Equal(t, len(piece), n)
			}

			return m.Cost()
		}

		t.Fatalf("no policy %q", policy)
		return 0
	}

	told := false
	for at := range len(stream) + 1 {
		require.Equal(t, want, cost(stream[:at], stream[at:]), "in two pieces, at %d", at)
		switch n := cost(stream[:at]); {
		case n == want:
			told = true
		case told || n >= 0:
			require.Failf(t, "another cost", "cut at %d: %d", at, n)
		}
	}

	require.True(t, told)
	require.Equal(t, want, cost(strings.SplitAfter(stream, "")...), "byte by byte")
}
