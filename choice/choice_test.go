package choice_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/memstore"
)

// A base answers requests.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// transport returns a transport with room for one request to host a and one to host b.
func transport(t *testing.T) *throttle.Transport {
	t.Helper()
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), MaxWait: throttle.NoWait, Base: offline, Policies: []throttle.Policy{
		{Name: "a", Match: "a/", Limit: throttle.PerHour(1)}, {Name: "b", Match: "b/", Limit: throttle.PerHour(1)},
	}})
	require.NoError(t, err)
	return tr
}

func TestNew_Mistakes(t *testing.T) {
	_, err := choice.New(nil, choice.Variant{}, choice.Variant{Name: "x", Weight: -1}, choice.Variant{Name: "x"})
	require.Equal(t, strings.TrimSpace(`
throttle: Transport: is required: its policies are the limits of the variants
throttle: Variants: #1 has no Name
throttle: Variants: the Weight of "x" is negative: use 0 or more
throttle: Variants: two of them are named "x"`), err.Error())
	_, err = choice.New(transport(t))
	require.ErrorContains(t, err, "there are 0 of them: use 1 to 16")
}

// to returns the variant of a host.
func to(host string) choice.Variant {
	return choice.Variant{Name: "to " + host, Change: func(r *http.Request) error { r.URL.Host = host; return nil }}
}

// TestChoice sends the first variant that has room, as it was made for the request, and changes the request of
// the caller in nothing.
func TestChoice(t *testing.T) {
	tr := transport(t)
	c, err := choice.New(tr, to("a"), to("b"))
	require.NoError(t, err)
	require.Same(t, tr, c.Unwrap())

	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://c/", nil)
	for _, host := range []string{"a", "b"} {
		resp, err := c.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, host, resp.Request.URL.Host)
		require.Equal(t, "to "+host, choice.Of(resp.Request.Context()))
	}
	_, err = c.RoundTrip(req)
	require.ErrorIs(t, err, throttle.ErrLimited)
	require.Equal(t, "c", req.URL.Host)
	require.Empty(t, choice.Of(req.Context()))
}

// TestChange_Fails: an error says which variants cannot be made, and why. A panic is told without its value, which may be
// a secret, unless it aborts an HTTP handler.
func TestChange_Fails(t *testing.T) {
	fails := func(change func(*http.Request) error) (err error) {
		c, err := choice.New(transport(t), choice.Variant{Name: "x", Change: change})
		require.NoError(t, err)
		_, err = c.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil))
		return err
	}
	require.EqualError(t, fails(func(*http.Request) error { return errors.New("no such model") }), `throttle: variant "x": no such model`)
	require.EqualError(t, fails(func(r *http.Request) error { r.URL = nil; return nil }), `throttle: variant "x": the request has no URL`)

	err := fails(func(*http.Request) error { panic("secret") })
	require.ErrorContains(t, err, `throttle: variant "x": throttle: policy "x": Change: panicked with a string at choice_test.go:`)
	require.NotContains(t, err.Error(), "secret")
	require.ErrorAs(t, err, new(*throttle.ConfigError))

	require.PanicsWithValue(t, http.ErrAbortHandler, func() { _ = fails(func(*http.Request) error { panic(http.ErrAbortHandler) }) })
}

// A reading is a reader that Go cannot compare.
type reading func([]byte) (int, error)

func (f reading) Read(p []byte) (int, error) { return f(p) }

// TestChoice_OfABodyThatGoCannotCompare: such a body arrives, with the variant that is sent.
func TestChoice_OfABodyThatGoCannotCompare(t *testing.T) {
	got := ""
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "a", Match: "/", Limit: throttle.PerHour(9)}},
		Base: base(func(r *http.Request) (*http.Response, error) {
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			got = string(text)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, r.Body.Close()
		})})
	require.NoError(t, err)
	own := choice.Variant{Name: "own", Weight: 1, Change: func(r *http.Request) error {
		r.Body = io.NopCloser(reading(strings.NewReader("other").Read))
		return nil
	}}
	for want, first := range map[string]choice.Variant{"hello": to("a"), "other": own} {
		c, err := choice.New(tr, first, to("b"))
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://c/", io.NopCloser(reading(strings.NewReader("hello").Read)))
		require.NoError(t, err)
		_, err = c.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestZeroChoice: a Choice that New has not made refuses requests, and does not panic.
func TestZeroChoice(t *testing.T) {
	var zero choice.Choice
	body := &closeNoted{Reader: strings.NewReader("x")}
	req, err := http.NewRequest(http.MethodPost, "https://a.example/", body)
	require.NoError(t, err)
	_, err = zero.RoundTrip(req)
	_, ok := errors.AsType[*throttle.ConfigError](err)
	require.True(t, ok, err)
	require.True(t, body.closed)
	zero.CloseIdleConnections()
}

type closeNoted struct {
	io.Reader
	closed bool
}

func (c *closeNoted) Close() error { c.closed = true; return nil }
