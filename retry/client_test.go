package retry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

func TestNewClient_Defaults(t *testing.T) {
	c := retry.NewClient(newTransport(t, answer(200, "")))
	require.Equal(t, retry.DefaultRetryMax, c.RetryMax)
	require.Equal(t, retry.DefaultRetryWaitMin, c.RetryWaitMin)
	require.Equal(t, retry.DefaultRetryWaitMax, c.RetryWaitMax)
	require.Zero(t, c.HTTPClient.Timeout)
}

// TestNewClientOfNothing: a client without a transport says what is missing, at its first request and without a repeat.
func TestNewClientOfNothing(t *testing.T) {
	_, err := retry.NewClient(nil).StandardClient().Get("http://api.example.com/users?token=secret")
	var wrong *throttle.ConfigError
	require.ErrorAs(t, err, &wrong)
	require.EqualError(t, wrong, "throttle: retry.NewClient: t is nil: give it the *throttle.Transport")
}

// TestUnwrap finds the throttle inside.
func TestUnwrap(t *testing.T) {
	tr := newTransport(t, answer(200, ""))
	top, ok := retry.NewClient(tr).HTTPClient.Transport.(interface{ Unwrap() http.RoundTripper })
	require.True(t, ok)
	require.Same(t, tr, top.Unwrap())
}

// TestPitfall_IdleConnections: after each request that fails for good the default
// client closes those of all users of the same base.
func TestPitfall_IdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(500, ""))
		_, err := usual(newTransport(t, up)).Do(get(t))
		require.Error(t, err)
		require.Equal(t, 1, up.closed)

		up = newUpstream(answer(500, ""))
		tr := newTransport(t, up)
		require.Equal(t, 500, status(t, retry.NewClient(tr), get(t)))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err = retry.NewClient(tr).Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, up.closed)

		tr.CloseIdleConnections()
		require.Equal(t, 1, up.closed)
	})
}

const secret = "http://someone:password@api.example.com/hook/path-token?access_token=query-token"

// TestPitfall_Secrets: the default client prints tokens, in a log and in its
// errors. P14
func TestPitfall_Secrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var printed bytes.Buffer
		plain := retryablehttp.NewClient()
		plain.HTTPClient.Transport = newTransport(t, failing(errReset))
		plain.Logger = log.New(&printed, "", 0)
		_, err := plain.Do(request(t, http.MethodGet, secret, nil))
		for _, token := range []string{"path-token", "query-token"} {
			require.ErrorContains(t, err, token)
			require.Contains(t, printed.String(), token)
		}

		ours := retry.NewClient(newTransport(t, failing(errReset)))
		require.Nil(t, ours.Logger)
		_, err = ours.Do(request(t, http.MethodGet, secret, nil))
		require.EqualError(t, err, `Get "http://api.example.com": connection reset`)
		require.Equal(t, &url.Error{Op: "Get", URL: "http://api.example.com", Err: errReset}, err)
	})
}

// TestSecretsInTheReason: what http.Client prints of a Location that it cannot
// follow, and a base of the URL it had. P14
func TestSecretsInTheReason(t *testing.T) {
	for _, c := range []struct {
		base base
		sent int
		want string
	}{
		{
			answer(302, "", "Location", "http://h/%zz?access_token=query-token"), 1,
			`Get "http://api.example.com": failed to parse Location header`,
		},
		{
			failing(&url.Error{Op: "Get", URL: secret, Err: errReset}), 5,
			`Get "http://api.example.com": Get "http://api.example.com": connection reset`,
		},
		{
			failing(&url.Error{Op: "parse", URL: "http://h/%zz?access_token=query-token", Err: url.EscapeError("%zz")}), 5,
			`Get "http://api.example.com": parse "": invalid URL escape "%zz"`,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(c.base)
			_, err := retry.NewClient(newTransport(t, up)).Do(request(t, http.MethodGet, secret, nil))
			require.EqualError(t, err, c.want)
			require.Len(t, up.seen(), c.sent)
		})
	}
}

// TestSecretsInATimeout: http.Client makes a text of the error. P14
func TestSecretsInATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := retry.NewClient(newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			time.Sleep(time.Millisecond) // until http.Client knows, too
			return nil, &url.Error{Op: "Get", URL: secret, Err: r.Context().Err()}
		})))
		client.HTTPClient.Timeout = time.Second
		_, err := client.Do(request(t, http.MethodPost, secret, nil))
		require.ErrorContains(t, err, "Client.Timeout exceeded")
		require.NotContains(t, err.Error(), "token")
	})
}

// TestAnAttemptTimesOut: HTTPClient.Timeout is for one attempt. If that ends and
// the context does not, an idempotent request is sent again.
func TestAnAttemptTimesOut(t *testing.T) {
	hanging := base(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	for _, c := range []struct {
		method string
		want   []time.Duration
	}{
		{http.MethodGet, []time.Duration{0, 5 * time.Second}},
		{http.MethodPost, []time.Duration{0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(hanging, answer(200, ""))
			client := prompt(newTransport(t, up, open))
			client.HTTPClient.Timeout = 5 * time.Second
			resp, err := client.Do(request(t, c.method, home, nil))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			} else {
				var failed *url.Error
				require.ErrorAs(t, err, &failed)
				require.True(t, failed.Timeout())
			}
			require.Equal(t, c.want, up.seen())
		})
	}
}

// TestAWaitThatAnAttemptHasNoTimeFor is refused at once, and not repeated.
func TestAWaitThatAnAttemptHasNoTimeFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
		client := retry.NewClient(newTransport(t, up, open))
		client.HTTPClient.Timeout = 5 * time.Second
		begin := time.Now()
		_, err := client.Do(get(t))
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Zero(t, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}

// TestReplacedErrorHandler: errors are wrapped, and still known for what they
// are.
func TestReplacedErrorHandler(t *testing.T) {
	client := retry.NewClient(newTransport(t, failing(os.ErrDeadlineExceeded)))
	client.RetryMax = 0
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	_, err := client.Do(get(t))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var failed *url.Error
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Timeout())
}

// stream hides what a reader is, so that net/http knows no length and no way to
// read it again.
func stream(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

// TestBodiesArriveWhole at every attempt, however they were given.
func TestBodiesArriveWhole(t *testing.T) {
	var opened int
	for _, c := range []struct {
		name string
		body any
	}{
		{"bytes", []byte("payload")},
		{"buffer", bytes.NewBufferString("payload")},
		{"stream", stream("payload")}, // which go-retryablehttp reads into memory
		{"function", retryablehttp.ReaderFunc(func() (io.Reader, error) {
			opened++
			return stream("payload"), nil
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, ""), answer(429, ""), answer(200, ""))
				require.Equal(t, 200, status(t, retry.NewClient(newTransport(t, up, open)), request(t, http.MethodPost, home, c.body)))
				require.Equal(t, []string{"POST payload", "POST payload", "POST payload"}, up.brought())
			})
		})
	}
	require.Equal(t, 4, opened, "once for its length, and once for each attempt")
}

// TestBodiesOfTheStandardClient: a body with a GetBody, as http.NewRequest gives
// to the usual readers, is sent again; a stream is not.
func TestBodiesOfTheStandardClient(t *testing.T) {
	for _, c := range []struct {
		name string
		body io.Reader
		want []string
	}{
		{"GetBody", strings.NewReader("payload"), []string{"POST payload", "POST payload"}},
		{"stream", stream("payload"), []string{"POST payload"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, ""), answer(200, ""))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, home, c.body)
				require.NoError(t, err)
				resp, err := retry.NewClient(newTransport(t, up, open)).StandardClient().Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c.want, up.brought())
			})
		})
	}
}

// TestPitfall_AnEmptyPOST: a request made around a stream by hand is sent again
// by the default client when there is nothing left to send, and that is a
// success. Ours returns the refusal, or the error.
func TestPitfall_AnEmptyPOST(t *testing.T) {
	for _, first := range []base{answer(429, ""), failing(unreachable)} {
		synctest.Test(t, func(t *testing.T) {
			byHand := func() *retryablehttp.Request {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, home, stream("payload"))
				require.NoError(t, err)
				return &retryablehttp.Request{Request: r}
			}
			up := newUpstream(first, answer(200, ""))
			require.Equal(t, 200, status(t, usual(newTransport(t, up, open)), byHand()))
			require.Equal(t, []string{"POST payload", "POST "}, up.brought())

			up = newUpstream(first, answer(200, ""))
			resp, err := retry.NewClient(newTransport(t, up, open)).Do(byHand())
			if err == nil {
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 429, resp.StatusCode)
			} else {
				require.ErrorIs(t, err, unreachable)
			}
			require.Equal(t, []string{"POST payload"}, up.brought())
		})
	}
}

// A longBody is a gigabyte that counts what is read of it.
type longBody struct {
	left   int64
	read   atomic.Int64
	closed atomic.Int32
}

// Read implements io.Reader.
func (b *longBody) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.left-b.read.Load())
	if n == 0 {
		return 0, io.EOF
	}
	b.read.Add(n)
	return int(n), nil
}

func (b *longBody) Close() error {
	b.closed.Add(1)
	return nil
}

// long answers with 1 GB.
func long(status int) (base, *longBody) {
	body := &longBody{left: 1 << 30}
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: body, ContentLength: body.left}, nil
	}, body
}

// TestARefusedBodyIsNotReadToItsEnd, even if a classifier has looked at its beginning.
func TestARefusedBodyIsNotReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, body := long(429)
		up := newUpstream(first, answer(200, ""))
		require.Equal(t, 200, status(t, retry.NewClient(newTransport(t, up, recognised, open)), get(t)))
		require.EqualValues(t, 4096, body.read.Load(), "what go-retryablehttp reads, to keep the connection")
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestTheLastAnswer is the caller's, unread and open. The default client closes
// it and returns an error that says nothing of it.
func TestTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, body := long(429)
		up := newUpstream(answer(429, ""), answer(429, ""), answer(429, ""), answer(429, ""), last)
		resp, err := usual(newTransport(t, up)).Do(get(t))
		require.EqualError(t, err, "GET http://api.example.com/ giving up after 5 attempt(s)")
		require.Nil(t, resp)
		require.EqualValues(t, 1, body.closed.Load())

		last, body = long(429)
		up = newUpstream(answer(429, ""), answer(429, ""), answer(429, ""), answer(429, ""), last)
		resp, err = retry.NewClient(newTransport(t, up, open)).Do(get(t))
		require.NoError(t, err)
		require.Len(t, up.seen(), 5)
		require.Equal(t, 429, resp.StatusCode)
		require.Zero(t, body.read.Load())
		require.Zero(t, body.closed.Load())
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestAnAnswerThatCameIsTheCallers, although the context has ended meanwhile.
func TestAnAnswerThatCameIsTheCallers(t *testing.T) {
	for _, code := range []int{200, 429, 500} {
		ctx, cancel := context.WithCancel(t.Context())
		up := newUpstream(base(func(r *http.Request) (*http.Response, error) {
			cancel()
			return answer(code, "")(r)
		}))
		require.Equal(t, code, status(t, retry.NewClient(newTransport(t, up, open)), get(t).WithContext(ctx)))
		require.Len(t, up.seen(), 1)
	}
}

// within sends a GET that has only so much time, and tells how long it took.
func within(t *testing.T, c *retryablehttp.Client, d time.Duration) (*http.Response, time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	begin := time.Now()
	resp, err := c.Do(get(t).WithContext(ctx))
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return resp, time.Since(begin), err
}

// TestPitfall_AnswersLostInTheWait: the default client sleeps until the context
// ends, and all its caller learns is that it did. Ours hands over what came, an
// answer with its body or an error, once there is no time for RetryWaitMin.
func TestPitfall_AnswersLostInTheWait(t *testing.T) {
	wrong := answer(500, "what is wrong")
	synctest.Test(t, func(t *testing.T) {
		_, took, err := within(t, usual(newTransport(t, wrong)), 100*time.Millisecond)
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 100*time.Millisecond, took)
	})
	for _, c := range []struct {
		name string
		room time.Duration
		base base
	}{
		{"an answer", 100 * time.Millisecond, wrong},
		{"an answer, and just too little time", retry.DefaultRetryWaitMin, wrong},
		{"an answer that states a wait", 31 * time.Second, answer(503, "", "Retry-After", "30")},
		{"an error", retry.DefaultRetryWaitMin, failing(errReset)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(c.base)
				resp, took, err := within(t, retry.NewClient(newTransport(t, up)), c.room)
				require.Equal(t, errors.Is(err, errReset), resp == nil)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, took)
				require.Len(t, up.seen(), 1)
			})
		})
	}
}

// TestStatedWaitsEndBeforeTheContext, whatever is added to them.
func TestStatedWaitsEndBeforeTheContext(t *testing.T) {
	const room = 62001 * time.Millisecond // the second wait must be cut if both are long
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			wait := answer(503, "", "Retry-After", "30")
			up := newUpstream(wait, wait, answer(200, ""))
			resp, took, err := within(t, retry.NewClient(newTransport(t, up)), room)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Less(t, took, room)
		})
	}
}

// TestWaitsEndBeforeTheContext: the ceiling doubles, what the context has
// left does not.
func TestWaitsEndBeforeTheContext(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(answer(500, "what is wrong"))
			resp, took, err := within(t, retry.NewClient(newTransport(t, up)), 3*time.Second)
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
			require.Less(t, took, 3*time.Second)
			require.GreaterOrEqual(t, len(up.seen()), 2)
		})
	}
}

// TestABudgetNeedsNoTime: the throttle says itself that a wait cannot fit, and
// one that fits is waited for.
func TestABudgetNeedsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
		resp, took, err := within(t, retry.NewClient(newTransport(t, up, open)), 30*time.Second+100*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 30*time.Second, took)
	})
	synctest.Test(t, func(t *testing.T) {
		_, took, err := within(t, retry.NewClient(newTransport(t, answer(429, "", "Retry-After", "30"), open)), time.Second)
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Zero(t, took)
	})
}

// TestAnAttemptsTimeoutDoesNotShortenWaits: it is not the request's.
func TestAnAttemptsTimeoutDoesNotShortenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(503, "", "Retry-After", "30"), answer(200, ""))
		client := retry.NewClient(newTransport(t, up))
		client.HTTPClient.Timeout = time.Millisecond
		client.RetryWaitMax = time.Hour
		require.Equal(t, 200, status(t, client, get(t)))
		require.Greater(t, up.seen()[1], 30*time.Second)
	})
}

// TestMaxWaitIsForEachAttempt: MaxWait, and its default of a minute, bound the wait of each attempt. A deadline bounds the waits of all.
func TestMaxWaitIsForEachAttempt(t *testing.T) {
	for _, c := range []struct {
		name              string
		maxWait, deadline time.Duration
		attempts          int
		took              time.Duration
	}{
		{"the default", 0, 0, 3, 60 * time.Second},
		{"a minute", time.Minute, 0, 3, 60 * time.Second},
		{"all attempts together wait for longer", 2 * time.Minute, 0, 4, 140 * time.Second},
		{"too short for one", 19 * time.Second, 0, 1, 0},
		{"a deadline", 0, 55 * time.Second, 2, 20 * time.Second},
		{"a deadline and MaxWait", 2 * time.Minute, 55 * time.Second, 2, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "", "Retry-After", "20")) // a ban that is met again is twice as long
				transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{open}, Base: up, MaxWait: c.maxWait})
				require.NoError(t, err)
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}

				begin := time.Now()
				resp, err := retry.NewClient(transport).Do(get(t).WithContext(ctx))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				require.Equal(t, c.took, time.Since(begin).Truncate(20*time.Second))
				require.Len(t, up.seen(), c.attempts)
			})
		})
	}
}

// TestPitfall_TheWrongWayRound counts what an upstream sees of ten requests that
// it cannot answer, at a limit of ten a minute. With the throttle inside the
// retrier every attempt is charged. With the retrier inside the throttle one
// charge pays for five, and the limit is passed fivefold.
func TestPitfall_TheWrongWayRound(t *testing.T) {
	tenAMinute := throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerMinute(10), Jitter: -1}
	job := func(t *testing.T, client *http.Client) {
		for range 10 {
			resp, err := client.Do(get(t).Request)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	t.Run("right", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(answer(500, ""))
			job(t, retry.NewClient(newTransport(t, up, tenAMinute)).StandardClient())
			require.Len(t, up.seen(), 50)
			require.Equal(t, 10, stat.Most(up.seen(), time.Minute))
		})
	})
	t.Run("wrong", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(answer(500, ""))
			inner := retryablehttp.NewClient()
			inner.HTTPClient.Transport, inner.Logger = up, nil
			inner.RetryWaitMin, inner.RetryWaitMax = 0, 0
			inner.ErrorHandler = retryablehttp.PassthroughErrorHandler
			job(t, &http.Client{Transport: newTransport(t, &retryablehttp.RoundTripper{Client: inner}, tenAMinute)})
			require.Len(t, up.seen(), 50)
			require.Equal(t, 50, stat.Most(up.seen(), time.Minute))
		})
	})
}

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

// RoundTrip implements http.RoundTripper.
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
