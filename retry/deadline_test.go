package retry_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

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
