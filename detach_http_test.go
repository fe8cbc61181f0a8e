package throttle_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// pipes is a network of one server in virtual time.
type pipes struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), over: make(chan struct{})} }

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error { p.once.Do(func() { close(p.over) }); return nil }

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// dial takes 300 ms.
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	time.Sleep(300 * ms)
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// TestP11_ABanWhileServersAreDialled: they close connections on which nothing
// comes for five seconds, as net/http's own server does when told to. Nobody is
// lost, and each body arrives whole.
func TestP11_ABanWhileServersAreDialled(t *testing.T) {
	for _, c := range []struct {
		name   string
		http2  bool
		post   bool
		cloned bool
	}{
		{"HTTP/1, GET", false, false, false}, {"HTTP/1, POST", false, true, false},
		{"HTTP/2, GET", true, false, false}, {"HTTP/2, POST", true, true, false},
		{"HTTP/1, cloned GET", false, false, true}, {"HTTP/1, cloned POST", false, true, true},
		{"HTTP/2, cloned GET", true, false, true}, {"HTTP/2, cloned POST", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrivals, net, bodies := newStarts(), newPipes(), make(chan string, 3)
				srv := &httptest.Server{Listener: net, EnableHTTP2: c.http2, Config: &http.Server{
					ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second,
					Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = arrivals.RoundTrip(r)
						bodies <- string(must(io.ReadAll(r.Body)))
					}),
				}}
				srv.StartTLS()
				defer srv.Close()
				own := srv.Client().Transport.(*http.Transport)
				own.DialContext = net.dial
				defer own.CloseIdleConnections()
				var base http.RoundTripper = own
				if c.cloned {
					base = cloning{own}
				}
				store := memstore.New()
				tr := must(throttle.New(throttle.Config{Store: store, Base: base, Policies: []throttle.Policy{ninePerSecond}}))

				var all sync.WaitGroup
				sent := make([]*onceBody, 3)
				for i := range sent {
					sent[i] = newOnceBody()
					r := get(t, srv.URL)
					if c.post {
						r = post(t, srv.URL, sent[i])
					}
					all.Go(func() {
						if err := send(t, tr, r); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(100 * ms)
				require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Minute))
				all.Wait()
				synctest.Wait()

				require.Len(t, arrivals.seen(), 3, "once each")
				for _, at := range arrivals.seen() {
					require.GreaterOrEqual(t, at, 60100*ms)
				}
				want, closed := "", int32(0)
				if c.post {
					want, closed = "whole", 1
				}
				for _, b := range sent {
					require.Equal(t, want, <-bodies)
					require.Equal(t, closed, b.closed.Load())
				}
			})
		})
	}
}
