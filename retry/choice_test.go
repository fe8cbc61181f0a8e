package retry_test

import (
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/retry"
)

// TestARepeatTakesAnotherVariant repeats what a banned variant refused at another one, at once.
func TestARepeatTakesAnotherVariant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var came []string
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			came = append(came, r.URL.Host)
			if r.URL.Host == "a.example.com" {
				return answer(http.StatusTooManyRequests, "", "Retry-After", "60")(r)
			}
			return answer(http.StatusOK, "")(r)
		}), choicePolicies...)
		client := retry.NewClient(choiceOf(t, tr))
		began := time.Now()
		resp, err := client.StandardClient().Get("https://a.example.com/")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"a.example.com", "b.example.com"}, came)
		require.Less(t, time.Since(began), time.Second)
	})
}

// choicePolicies are those of the variants a and b.
var choicePolicies = []throttle.Policy{
	{Name: "a", Match: "a.example.com/", Limit: throttle.PerSecond(5)},
	{Name: "b", Match: "b.example.com/", Limit: throttle.PerSecond(5)},
}

// choiceOf returns the choice between a and b.
func choiceOf(t *testing.T, tr *throttle.Transport) *choice.Choice {
	t.Helper()
	choice, err := choice.New(tr,
		choice.Variant{Name: "a"},
		choice.Variant{Name: "b", Change: func(r *http.Request) error { r.URL.Host = "b.example.com"; return nil }})
	require.NoError(t, err)
	return choice
}

// TestPitfall_AChoiceBelow: a client above a Choice repeats what it repeats above a Transport. A client whose Transport
// was replaced by the Choice does not.
func TestPitfall_AChoiceBelow(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	post := func(t *testing.T, headers ...string) *retryablehttp.Request {
		r := request(t, http.MethodPost, "https://a.example.com/", []byte("order"))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	for _, c := range []struct {
		name    string
		up      *upstream
		request func(*testing.T) *retryablehttp.Request
		err     error
		bodies  []string
	}{
		{
			name: "a connection is refused", up: newUpstream(failing(refused), answer(200, "")),
			request: func(t *testing.T) *retryablehttp.Request { return post(t) },
			bodies:  []string{"POST order", "POST order"},
		},
		{
			name: "a connection is cut", up: newUpstream(failing(io.EOF), answer(200, "")),
			request: func(t *testing.T) *retryablehttp.Request { return post(t, "Idempotency-Key", "1") },
			bodies:  []string{"POST order", "POST order"},
		},
		{
			name: "a request fails for good", up: newUpstream(failing(io.EOF)),
			request: func(t *testing.T) *retryablehttp.Request { return post(t) },
			err:     io.EOF, bodies: []string{"POST order"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, c.up, choicePolicies...)
				resp, err := retry.NewClient(choiceOf(t, tr)).Do(c.request(t))
				require.ErrorIs(t, err, c.err)
				if err == nil {
					require.Equal(t, http.StatusOK, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				}
				require.Equal(t, c.bodies, c.up.brought())
				require.Zero(t, c.up.closed, "the others keep their connections")
			})
		})
	}
}
