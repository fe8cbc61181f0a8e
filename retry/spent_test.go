package retry_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/retry"
)

// stalling answers with the beginning of a body whose end comes after a day.
func stalling(status int, begin string) base {
	return func(r *http.Request) (*http.Response, error) {
		body, upstream := io.Pipe()
		go func() {
			if _, err := io.WriteString(upstream, begin); err == nil {
				time.Sleep(24 * time.Hour)
			}
			upstream.Close()
		}()
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: body, ContentLength: -1}, nil
	}
}

// TestPitfall_AStalledAnswer: the default client reads an answer that it makes
// nothing of for as long as the upstream likes.
func TestPitfall_AStalledAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(stalling(429, "later"), answer(200, ""))
		c := usual(newTransport(t, up))
		c.RetryWaitMin, c.RetryWaitMax = 0, 0
		require.Equal(t, 200, status(t, c, get(t)))
		require.Equal(t, []time.Duration{0, 24 * time.Hour}, up.seen())
	})
	for _, begin := range []string{"", "later"} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(stalling(503, begin), stalling(503, begin), answer(200, ""))
			require.Equal(t, 200, status(t, prompt(newTransport(t, up)), get(t)))
			require.Equal(t, []time.Duration{0, retry.DrainTime, 2 * retry.DrainTime}, up.seen())
			time.Sleep(48 * time.Hour) // until the upstream has ended, too
		})
	}
}

// TestTheLastAnswerMayBeSlow: its reader has all the time in the world.
func TestTheLastAnswerMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prompt(newTransport(t, stalling(500, "slowly")))
		c.RetryMax = 0
		begin := time.Now()
		resp, err := c.Do(get(t))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "slowly", string(body))
		require.Equal(t, 24*time.Hour, time.Since(begin))
	})
}

// TestAStalledServer: over a real connection, whose end the server sees.
func TestAStalledServer(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) > 1 {
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "later") // to a client that leaves
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	tr := newTransport(t, base, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)})
	require.Equal(t, 200, status(t, prompt(tr), request(t, http.MethodGet, server.URL, nil)))
	require.EqualValues(t, 2, arrived.Load())
}

// TestPitfall_APrivateSleep: ours waits for a penalty in the budget, in line, so
// that callers that come meanwhile are served after it. The default client sleeps
// beside it and finds that all others are before it.
func TestPitfall_APrivateSleep(t *testing.T) {
	for _, c := range []struct {
		name   string
		client func(http.RoundTripper) *retryablehttp.Client
		want   []string // in this order
	}{
		{"usual", usual, []string{"POST a", "POST b", "POST a"}},
		{"ours", retry.NewClient, []string{"POST a", "POST a", "POST b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
				client := c.client(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.LeakyBucket(1, time.Second)}))
				send := func(body string) <-chan error {
					r, done := request(t, http.MethodPost, home, []byte(body)), make(chan error)
					go func() {
						resp, err := client.Do(r)
						if err == nil {
							err = resp.Body.Close()
						}
						done <- err
					}()
					return done
				}
				a := send("a")
				time.Sleep(time.Second)
				b := send("b")
				require.NoError(t, <-a)
				require.NoError(t, <-b)
				require.Equal(t, c.want, up.brought())
				require.Equal(t, 30*time.Second, up.seen()[1])
			})
		})
	}
}

// TestPenaltyTakesAsLongAsItSays for the attempt itself.
func TestPenaltyTakesAsLongAsItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(503, "", "Retry-After", "20"), answer(200, ""))
		first := open
		first.Answer = throttle.RetryAfter
		client := retry.NewClient(newTransport(t, up, first))
		require.Equal(t, 200, status(t, client, get(t)))
		require.Equal(t, []time.Duration{0, 30 * time.Second, 50 * time.Second}, up.seen())
	})
}

// TestPenaltyLongerThanAnyPrivateWait is waited for too, if the caller has time.
func TestPenaltyLongerThanAnyPrivateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "3000"), answer(200, ""))
		require.Equal(t, 200, status(t, retry.NewClient(newTransport(t, up, open)), get(t)))
		require.Equal(t, []time.Duration{0, 3000 * time.Second}, up.seen())
	})
}

// TestPenaltyThatCannotFit is refused at once. The default client sleeps until
// the context ends and knows only that.
func TestPenaltyThatCannotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := answer(429, "", "Retry-After", "30")
		soon := func() *retryablehttp.Request {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			t.Cleanup(cancel)
			return get(t).WithContext(ctx)
		}
		begin := time.Now()
		_, err := usual(newTransport(t, refusing, open)).Do(soon())
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 10*time.Second, time.Since(begin))

		begin = time.Now()
		_, err = retry.NewClient(newTransport(t, refusing, open)).Do(soon())
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		require.Equal(t, 30*time.Second, limited.RetryAfter)
		require.Zero(t, time.Since(begin))
	})
}

// TestTimeoutOfTheStandardClient is a deadline like any other.
func TestTimeoutOfTheStandardClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
		client := retry.NewClient(newTransport(t, up, open)).StandardClient()
		client.Timeout = 10 * time.Second
		begin := time.Now()
		_, err := client.Do(get(t).Request)
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Zero(t, time.Since(begin))

		client.Timeout = time.Minute
		resp, err := client.Do(get(t).Request)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []time.Duration{0, 30 * time.Second}, up.seen())
	})
}

// TestMaxWaitOfTheTransport bounds the wait for a penalty too.
func TestMaxWaitOfTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "", "Retry-After", "30"), answer(200, ""))
		client := retry.NewClient(newTransport(t, up, open))
		_, err := client.Do(get(t).WithContext(throttle.WithMaxWait(t.Context(), 29*time.Second)))
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Len(t, up.seen(), 1)
	})
}

// banned is the policy of an upstream that refuses with a 200.
var banned = throttle.Policy{
	Name: "app", Match: "/", Limit: throttle.PerSecond(1000), Answer: func(resp *http.Response) throttle.Answer {
		head, err := feedback.PeekBody(resp, 1024)
		if err != nil || !strings.Contains(string(head), `"sub_code":"90018"`) {
			return throttle.Answer{}
		}
		return throttle.Refused(2 * time.Second)
	},
}

// TestPitfall_CodeInA200: the default client takes it for a success. Ours repeats
// even a POST, because what was refused was not done.
func TestPitfall_CodeInA200(t *testing.T) {
	const refusal, success = `{"errcode":88,"sub_code":"90018"}`, `{"errcode":0}`
	for _, c := range []struct {
		name   string
		client func(http.RoundTripper) *retryablehttp.Client
		want   string
		times  []time.Duration
	}{
		{"usual", usual, refusal, []time.Duration{0}},
		{"ours", retry.NewClient, success, []time.Duration{0, 2 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(200, refusal), answer(200, success))
				client := c.client(newTransport(t, up, banned))
				client.HTTPClient.Timeout = time.Minute // wraps the body once more
				resp, err := client.Do(request(t, http.MethodPost, home, []byte("payload")))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c.want, string(got))
				require.Equal(t, c.times, up.seen())
				for _, brought := range up.brought() {
					require.Equal(t, "POST payload", brought)
				}
			})
		})
	}
}

// TestRequestsInFlight: the refused answer is over before the next attempt, or
// the two would wait for each other.
func TestRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(429, "later", "Retry-After", "30"), answer(200, ""))
		client := retry.NewClient(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.Concurrency(1)}))
		require.Equal(t, 200, status(t, client, get(t)))
		require.Equal(t, []time.Duration{0, 30 * time.Second}, up.seen())
	})
}

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
