package retry_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/retry"
)

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
