package retry_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/retry"
)

// recognised is a policy that takes any answer with the code for a refusal.
var recognised = throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000), Answer: banned.Answer}

const refusal = `{"errcode":88,"sub_code":"90018"}`

var (
	unreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	broken      = &net.OpError{Op: "read", Net: "tcp", Err: errReset}
	untrusted   = &tls.CertificateVerificationError{Err: errors.New("expired")}
)

// TestCheckRetry counts the requests that an upstream sees if its answer never
// changes: of the default client, of ours, and of one's own client with nothing
// but CheckRetry and Backoff from here.
func TestCheckRetry(t *testing.T) {
	const get, head, options, trace, put, del, post, patch = http.MethodGet, http.MethodHead, http.MethodOptions,
		http.MethodTrace, http.MethodPut, http.MethodDelete, http.MethodPost, http.MethodPatch
	for _, c := range []struct {
		name             string
		method, key      string
		answer           base
		usual, ours, own int
	}{
		{"200", get, "", answer(200, ""), 1, 1, 1},
		{"404", get, "", answer(404, ""), 1, 1, 1},
		{"501", get, "", answer(501, ""), 1, 1, 1},

		{"500", get, "", answer(500, ""), 5, 5, 5},
		{"500", head, "", answer(500, ""), 5, 5, 5},
		{"500", options, "", answer(500, ""), 5, 5, 5},
		{"500", trace, "", answer(500, ""), 5, 5, 5},
		{"500", put, "", answer(500, ""), 5, 5, 5},
		{"500", del, "", answer(500, ""), 5, 5, 5},
		{"500", post, "", answer(500, ""), 5, 1, 1},
		{"500", patch, "", answer(500, ""), 5, 1, 1},
		{"500", post, "Idempotency-Key", answer(500, ""), 5, 5, 5},
		{"500", patch, "X-Idempotency-Key", answer(500, ""), 5, 5, 5},
		{"503 without a time", post, "", answer(503, ""), 5, 1, 1},
		{"503 with a time", post, "", answer(503, "", "Retry-After", "1"), 5, 1, 1},
		{"503 with a time", get, "", answer(503, "", "Retry-After", "1"), 5, 5, 5},

		{"429", get, "", answer(429, ""), 5, 5, 5},
		{"429", post, "", answer(429, ""), 5, 5, 5},
		{"429", patch, "", answer(429, ""), 5, 5, 5},
		{"403", get, "", answer(403, ""), 1, 1, 1},
		{"403, recognised", get, "", answer(403, refusal), 1, 5, 5},
		{"403, recognised", post, "", answer(403, refusal), 1, 5, 5},
		{"200, recognised", patch, "", answer(200, refusal), 1, 5, 5},
		{"520, recognised", get, "", answer(520, refusal), 5, 5, 5},
		{"520, recognised", post, "", answer(520, refusal), 5, 1, 1},

		{"no answer", get, "", failing(broken), 5, 5, 5},
		{"no answer", put, "", failing(broken), 5, 5, 5},
		{"no answer", post, "", failing(broken), 5, 1, 1},
		{"no answer", post, "Idempotency-Key", failing(broken), 5, 5, 1},
		{"no connection", get, "", failing(unreachable), 5, 5, 5},
		{"no connection", post, "", failing(unreachable), 5, 5, 1},
		{"a certificate", get, "", failing(untrusted), 1, 1, 1},
		{"called off", get, "", failing(context.Canceled), 5, 1, 1},
		{"end of file", post, "", failing(io.EOF), 5, 1, 1},
	} {
		t.Run(c.method+" "+c.key+" "+c.name, func(t *testing.T) {
			count := func(client func(http.RoundTripper) *retryablehttp.Client) (n int) {
				synctest.Test(t, func(t *testing.T) {
					up := newUpstream(c.answer)
					r := request(t, c.method, home, nil)
					if c.key != "" {
						r.Header.Set(c.key, "7")
					}
					resp, err := client(newTransport(t, up, recognised)).Do(r)
					if err == nil {
						require.NoError(t, resp.Body.Close())
					}
					n = len(up.seen())
				})
				return n
			}
			own := func(tr http.RoundTripper) *retryablehttp.Client {
				c := usual(tr)
				c.CheckRetry, c.Backoff = retry.CheckRetry, retry.Backoff
				return c
			}
			require.Equal(t, []int{c.usual, c.ours, c.own}, []int{count(usual), count(retry.NewClient), count(own)})
		})
	}
}

// TestCertainlyNoRefusal: what a policy has denied is not repeated, whatever it
// looks like, unless another policy takes it for a refusal.
func TestCertainlyNoRefusal(t *testing.T) {
	denying := throttle.Policy{
		Name: "money", Match: "/", Limit: throttle.PerSecond(1000),
		Answer: func(*http.Response) throttle.Answer {
			return throttle.Answer{Verdict: throttle.VerdictNotRefused}
		},
	}
	knows := recognised // all refusals of its budget
	knows.Answer = feedback.First(banned.Answer, feedback.LeaveOpen)
	for _, c := range []struct {
		policies []throttle.Policy
		want     int
	}{
		{[]throttle.Policy{denying}, 1},
		{[]throttle.Policy{denying, knows}, 1},
		{[]throttle.Policy{denying, open}, 5},
		{[]throttle.Policy{denying, recognised}, 5},
		{[]throttle.Policy{recognised}, 5},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "no money", "Retry-After", "1"))
				require.Equal(t, 429, status(t, retry.NewClient(newTransport(t, up, c.policies...)), request(t, method, home, nil)))
				require.Len(t, up.seen(), c.want)
			})
		}
	}
}

// TestPitfall_RedirectedPOST: what redirected it may have acted on it, so nothing that
// happens to the GET that follows may repeat the POST. The default client posts
// five times.
func TestPitfall_RedirectedPOST(t *testing.T) {
	for _, then := range []base{answer(429, ""), answer(500, ""), failing(broken), failing(unreachable), answer(403, refusal)} {
		site := func(n *int) base {
			return func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/done" {
					return then(r)
				}
				*n++
				return answer(303, "", "Location", "/done")(r)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			var posts int
			resp, err := retry.NewClient(newTransport(t, site(&posts), recognised)).Do(request(t, http.MethodPost, home, []byte("order")))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, 1, posts)
		})
		synctest.Test(t, func(t *testing.T) {
			var gets int
			resp, err := retry.NewClient(newTransport(t, site(&gets), recognised)).Do(get(t))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, 5, gets, "a GET is repeated from its beginning")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var posts int
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/done" {
				return answer(500, "")(r)
			}
			posts++
			return answer(303, "", "Location", "/done")(r)
		}))
		_, err := usual(tr).Do(request(t, http.MethodPost, home, []byte("order")))
		require.ErrorContains(t, err, "giving up after 5 attempt(s)")
		require.Equal(t, 5, posts)
	})
}

// TestRedirectsThatStay: neither too many nor one that CheckRedirect forbids.
func TestRedirectsThatStay(t *testing.T) {
	circle := newUpstream(answer(302, "", "Location", "/"))
	_, err := retry.NewClient(newTransport(t, circle)).Do(get(t))
	require.ErrorContains(t, err, "stopped after 10 redirects")
	require.Len(t, circle.seen(), 10)

	up, forbidden := newUpstream(answer(302, "", "Location", "/")), errors.New("not from here")
	client := retry.NewClient(newTransport(t, up))
	client.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return forbidden }
	resp, err := client.Do(get(t))
	require.ErrorIs(t, err, forbidden)
	require.Nil(t, resp, "never both")
	require.Len(t, up.seen(), 1)
}

// TestResponseHandler: an answer that it does not like is repeated if the
// request is idempotent.
func TestResponseHandler(t *testing.T) {
	for _, c := range []struct {
		method string
		want   int
	}{{http.MethodGet, 5}, {http.MethodPost, 1}} {
		synctest.Test(t, func(t *testing.T) {
			garbled := errors.New("garbled")
			answer, body := long(200)
			up := newUpstream(answer)
			r := request(t, c.method, home, strings.NewReader("x"))
			r.SetResponseHandler(func(*http.Response) error { return garbled })
			resp, err := retry.NewClient(newTransport(t, up)).Do(r)
			require.Equal(t, garbled, err)
			require.Nil(t, resp)
			require.Len(t, up.seen(), c.want)
			require.EqualValues(t, c.want, body.closed.Load(), "at each attempt")
		})
	}
}

// TestNoRequestInTheAnswer: a base that forgets it gets nothing repeated.
func TestNoRequestInTheAnswer(t *testing.T) {
	up := newUpstream(base(func(r *http.Request) (*http.Response, error) {
		resp, err := answer(500, "")(r)
		resp.Request = nil
		return resp, err
	}))
	require.Equal(t, 500, status(t, retry.NewClient(newTransport(t, up)), get(t)))
	require.Len(t, up.seen(), 1)
}
