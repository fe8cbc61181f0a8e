package throttle_test

import (
	"context"

	"net/http"

	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// firstly is a base that answers its first request in one way and all others in
// another.
func firstly(first, others base) base {
	var n atomic.Int32
	return func(r *http.Request) (*http.Response, error) {
		if n.Add(1) == 1 {
			return first(r)
		}
		return others(r)
	}
}

// TestP11_ABackendThatIsDown: behind a load balancer three answers in ten are a 503,
// and the fleet goes on at nine tenths of its limit or more.
func TestP11_ABackendThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStarts(), 0
		s.then = func(r *http.Request) (*http.Response, error) {
			if n++; n*7%10 < 3 {
				return answer(503, "", "Retry-After", "5")(r)
			}
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Jitter: -1})
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			line(t, tr, 1, home)
		}
		require.Greater(t, len(s.seen()), 2160)
	})
}

// TestP11_TheFleetIsToldAlthoughTheCallerLeft: the context ended with the answer.
func TestP11_TheFleetIsToldAlthoughTheCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.pause = func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{onePerHour}, Base: base(
			func(r *http.Request) (*http.Response, error) {
				cancel()
				return answer(429, "")(r)
			})}))
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		synctest.Wait() // the caller did not wait for it
		require.Equal(t, 1, store.paused())
	})
}
