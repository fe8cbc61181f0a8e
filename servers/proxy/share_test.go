package proxy_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP5_TenantsOfTheProxyTakeTurns: the request of one tenant does not wait for the crowd of another.
func TestP5_TenantsOfTheProxyTakeTurns(t *testing.T) {
	var arrived atomic.Int64
	full := make(chan struct{})
	s := newScene(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "crowd" && arrived.Add(1) == 10 {
			close(full)
		}
	}, nil, throttle.Policy{Name: "api", Limit: throttle.SlidingWindow(10, time.Second), Share: throttle.Header("X-Tenant")})
	go func() {
		for range s.events { // nobody looks at them
		}
	}()
	ask := func(ctx context.Context, tenant string) error {
		resp, err := s.do(ctx, "GET", "/"+s.upstream+"/", nil, "X-Tenant: "+tenant)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	ctx, over := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	for range 60 {
		crowd.Go(func() { _ = ask(ctx, "crowd") })
	}
	<-full
	require.NoError(t, ask(t.Context(), "other"))
	require.Less(t, arrived.Load(), int64(40), "it waited for the crowd")
	over()
	crowd.Wait()
}
