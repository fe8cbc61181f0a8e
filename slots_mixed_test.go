package throttle_test

import (
	"context"
	"net/http"
	"net/http/httptrace"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP6_AConnectionAfterTheEnd: when the caller has left, what was in flight has
// ended, and nothing of it may be given back a second time.
func TestP6_AConnectionAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{atOnce(2), onePerHour},
			Base: base(func(r *http.Request) (*http.Response, error) {
				cancel()
				time.Sleep(time.Minute) // the grant would be stale
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				return nil, r.Context().Err()
			})}))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
		require.Equal(t, 1, store.released())
		require.Zero(t, store.cancelled())
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
	})
}
