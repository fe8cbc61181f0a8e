package retry_test

import (
	"bytes"
	"context"
	"log"
	"net/http"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
