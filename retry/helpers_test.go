package retry_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

const home = "http://api.example.com/"

// open is a policy that never holds anybody unless an answer closes it.
var open = throttle.Policy{Name: "open", Match: "api.example.com/", Limit: throttle.PerSecond(1000)}

var errReset = errors.New("connection reset")

// A base is a RoundTripper made of a function.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answer returns a base that answers every request alike.
func answer(status int, body string, header ...string) base {
	return func(r *http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: h, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

// failing returns a base that answers nothing.
func failing(err error) base {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// An upstream answers each request as the next of its bases does, and all
// others as the last. It notes when requests came, from when it was made, and
// what they brought.
type upstream struct {
	mu     sync.Mutex
	begin  time.Time
	bases  []base
	times  []time.Duration
	bodies []string
	closed int // calls of CloseIdleConnections
}

func newUpstream(bases ...base) *upstream { return &upstream{begin: time.Now(), bases: bases} }

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	u.mu.Lock()
	then := u.bases[min(len(u.times), len(u.bases)-1)]
	u.times = append(u.times, time.Since(u.begin))
	u.bodies = append(u.bodies, r.Method+" "+string(body))
	u.mu.Unlock()
	return then(r)
}

func (u *upstream) CloseIdleConnections() {
	u.mu.Lock()
	u.closed++
	u.mu.Unlock()
}

// seen returns when the requests came.
func (u *upstream) seen() []time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.times)
}

// brought returns methods and bodies.
func (u *upstream) brought() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.bodies)
}

// newTransport returns a transport on a memstore of its own. Without policies it passes the requests of these tests.
func newTransport(t *testing.T, b http.RoundTripper, policies ...throttle.Policy) *throttle.Transport {
	t.Helper()
	if len(policies) == 0 {
		policies = []throttle.Policy{{Name: "elsewhere", Match: "elsewhere.example.com/", Limit: throttle.Unlimited()}}
	}

	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: policies, Base: b})
	require.NoError(t, err)
	return tr
}

// prompt returns a client that adds no random time to any wait.
func prompt(tr http.RoundTripper) *retryablehttp.Client {
	c := retry.NewClient(tr)
	c.RetryWaitMin, c.RetryWaitMax = 0, 0
	return c
}

// usual returns the default client of go-retryablehttp above a transport.
func usual(tr http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = tr
	c.Logger = nil
	return c
}

// asked counts how often a client asks its transport, until the end of the test.
func asked(c *retryablehttp.Client) *int {
	n, below := new(int), c.HTTPClient.Transport
	c.HTTPClient.Transport = base(func(r *http.Request) (*http.Response, error) {
		*n++
		return below.RoundTrip(r)
	})
	return n
}

func request(t *testing.T, method, url string, body any) *retryablehttp.Request {
	t.Helper()
	r, err := retryablehttp.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	return r
}

func get(t *testing.T) *retryablehttp.Request {
	t.Helper()
	return request(t, http.MethodGet, home, nil)
}

// status sends a request and returns the status of what comes back.
func status(t *testing.T, c *retryablehttp.Client, r *retryablehttp.Request) int {
	t.Helper()
	resp, err := c.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
