package throttle_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// newTLS returns a server whose handshakes take the delays in turn, and a
// transport that trusts it.
func newTLS(t *testing.T, http2 bool, h http.Handler, delays ...time.Duration) (*httptest.Server, *http.Transport) {
	t.Helper()
	var dialled atomic.Int64
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = http2
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		time.Sleep(delays[int(dialled.Add(1)-1)%len(delays)])
		return nil, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	own := srv.Client().Transport.(*http.Transport)
	t.Cleanup(own.CloseIdleConnections)
	return srv, own
}

// TestP2_ColdStartOverTLS: no connection is there yet, and handshakes take up
// to 300 ms, which is more than a grant may age. Whatever the delays, the server
// sees no more than the limit in any window.
func TestP2_ColdStartOverTLS(t *testing.T) {
	for _, c := range []struct {
		name   string
		http2  bool
		delays []time.Duration
	}{
		{"a connection for each request", false, []time.Duration{0, 50 * ms, 300 * ms}},
		{"one connection for all", true, []time.Duration{300 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const n, per = 5, 250 * ms
			arrivals := newStarts()
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = arrivals.RoundTrip(r) })
			srv, own := newTLS(t, c.http2, h, c.delays...)
			own.DisableKeepAlives = !c.http2
			tr := newTransport(t, own, throttle.Policy{
				Name: "p", Limit: throttle.SlidingWindow(n, per), Jitter: 250 * ms,
			})
			var all sync.WaitGroup
			for range 4 * n {
				r := get(t, srv.URL)
				all.Go(func() {
					if err := send(t, tr, r); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			require.Len(t, arrivals.seen(), 4*n)
			require.LessOrEqual(t, most(arrivals.seen(), per), n)
		})
	}
}
