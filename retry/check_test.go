package retry_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
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

// TestConnectionRefused: nothing was sent, so a POST is sent again.
func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	var started int
	tr, err := throttle.New(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)}},
		Base:     new(http.Transport),
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventStarted {
				started++
			}
		},
	})
	require.NoError(t, err)
	_, err = prompt(tr).Do(request(t, http.MethodPost, "http://"+l.Addr().String(), []byte("payload")))
	require.Error(t, err)
	require.Equal(t, 5, started)
}

// TestConnectionCut: the request has arrived, and nobody knows what came of it.
func TestConnectionCut(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Add(1)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	client := prompt(newTransport(t, base))

	_, err := client.Do(request(t, http.MethodPost, server.URL, []byte("payload")))
	require.Error(t, err)
	require.EqualValues(t, 1, arrived.Swap(0))

	r := request(t, http.MethodPost, server.URL, []byte("payload"))
	r.Header.Set("Idempotency-Key", "7")
	_, err = client.Do(r)
	require.Error(t, err)
	require.EqualValues(t, 5, arrived.Load())
}

// TestAServer that refuses twice, reached through the standard client.
func TestAServer(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) <= 2 {
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	tr := newTransport(t, base, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)})
	resp, err := retry.NewClient(tr).StandardClient().Do(request(t, http.MethodGet, server.URL, nil).Request)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.EqualValues(t, 3, arrived.Load())
}

// A brokenStore cannot be asked.
type brokenStore struct {
	throttle.Store
	err error
}

func (s brokenStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, s.err
}

var errDown = errors.New("down")

// refusals are the ways in which a throttle does not send a request.
var refusals = []struct {
	name   string
	store  func() throttle.Store
	policy throttle.Policy
	check  func(*testing.T, error)
}{
	{
		"a cost above the limit", memory,
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return 2 }},
		func(t *testing.T, err error) {
			require.ErrorIs(t, err, throttle.ErrLimited)
			var limited *throttle.LimitError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, "p", limited.Policy)
		},
	},
	{
		"a negative cost", memory,
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return -1 }},
		func(t *testing.T, err error) {
			var config *throttle.ConfigError
			require.ErrorAs(t, err, &config)
		},
	},
	{
		"a store that is away", func() throttle.Store { return brokenStore{memstore.New(), errDown} },
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1)},
		func(t *testing.T, err error) {
			var store *throttle.StoreError
			require.ErrorAs(t, err, &store)
			require.ErrorIs(t, err, errDown)
		},
	},
}

func memory() throttle.Store { return memstore.New() }

// TestPitfall_RefusalsAreRetried: the default client asks five times and sleeps
// for 15 seconds; ours ends at once, with the error intact.
func TestPitfall_RefusalsAreRetried(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(200, ""))
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: c.store(), Policies: []throttle.Policy{c.policy}, Base: up})
				require.NoError(t, err)

				plain := usual(tr)
				n, begin := asked(plain), time.Now()
				_, err = plain.Do(get(t))
				require.Error(t, err)
				require.Equal(t, 5, *n)
				require.Equal(t, 15*time.Second, time.Since(begin))

				ours := retry.NewClient(tr)
				n, begin = asked(ours), time.Now()
				resp, err := ours.Do(get(t))
				require.Nil(t, resp)
				c.check(t, err)
				require.Equal(t, 1, *n)
				require.Zero(t, time.Since(begin))

				resp, err = ours.StandardClient().Do(get(t).Request)
				require.Nil(t, resp)
				c.check(t, err)
				require.Equal(t, 2, *n)
				require.Zero(t, time.Since(begin))
				require.Empty(t, up.seen())
			})
		})
	}
}

// TestRefusalIsTheErrorOfHTTPClient: nothing is wrapped around it.
func TestRefusalIsTheErrorOfHTTPClient(t *testing.T) {
	tr := newTransport(t, answer(200, ""), throttle.Policy{
		Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return 2 },
	})
	_, err := retry.NewClient(tr).Do(get(t))
	require.IsType(t, &url.Error{}, err)
	require.IsType(t, &throttle.LimitError{}, err.(*url.Error).Err)
	require.EqualError(t, err, `Get "http://api.example.com": throttle: policy "p" (1/h): a cost of 2 can never fit`)
}

// TestRefusedAfterAWait: a budget that is full for longer than the context
// allows ends the request at once, however often it may be repeated.
func TestRefusedAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(200, ""))
		client := retry.NewClient(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerMinute(1)}))
		require.Equal(t, 200, status(t, client, get(t)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := client.Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Zero(t, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}

// TestTheCallerLeavesDuringTheWait: its own error comes back, with its cause.
func TestTheCallerLeavesDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(200, ""))
		client := retry.NewClient(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerMinute(1)}))
		require.Equal(t, 200, status(t, client, get(t)))
		reason := errors.New("the job was called off")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(reason) })
		begin := time.Now()
		_, err := client.Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}
