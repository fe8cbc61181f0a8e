package throttle_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// pipes is a network of one server in virtual time.
type pipes struct {
	dials time.Duration // how long a dial takes
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newPipes(dials time.Duration) *pipes {
	return &pipes{dials: dials, conns: make(chan net.Conn), over: make(chan struct{})}
}

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

// dial is the DialContext of a transport. As a net.Dialer it tells the caller's trace.
func (p *pipes) dial(ctx context.Context, name, addr string) (net.Conn, error) {
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.ConnectStart != nil {
		trace.ConnectStart(name, addr)
	}

	time.Sleep(p.dials)
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// An upstream is net/http's own server in virtual time, where no start grows too old because the machine is
// busy. It is behind a transport with one place in flight, or other policies.
type upstream struct {
	*throttle.Transport
	store *spyStore
	url   string
}

func newUpstream(t *testing.T, handler http.HandlerFunc, policies ...throttle.Policy) *upstream {
	t.Helper()
	network := newPipes(0)
	srv := &httptest.Server{Listener: network, Config: &http.Server{Handler: handler}}
	srv.Start()
	t.Cleanup(srv.Close)

	store := newSpy()
	store.landed = make(chan struct{}, 100)
	if policies == nil {
		policies = append(policies, atOnce(1))
	}
	tr := must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever, Store: store, Base: &http.Transport{DialContext: network.dial}, Policies: everywhere(policies...),
	}))
	t.Cleanup(tr.CloseIdleConnections)
	return &upstream{tr, store, srv.URL}
}

func (u *upstream) inFlight(t *testing.T) int {
	t.Helper()
	return status(t, u.store, u.Transport, get(t, u.url)).Used
}

// cut hangs up on the client, after what was written.
func cut(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		c.Close()
	}
}

// streams is an answer that goes on until its caller leaves.
func streams(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "some")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// TestP6_WhatEndsARequestInFlight: whatever comes first, and it counts once.
func TestP6_WhatEndsARequestInFlight(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		end     func(*testing.T, *http.Response, context.CancelFunc)
	}{
		{"close", streams, func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
			require.NoError(t, resp.Body.Close())
		}},
		{"the end of the body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "all") },
			func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "all", string(body))
			}},
		{"an error while reading", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			cut(w)
		}, func(t *testing.T, resp *http.Response, _ context.CancelFunc) {
			_, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}},
		{"the end of the context", streams, func(_ *testing.T, _ *http.Response, cancel context.CancelFunc) {
			cancel()
		}},
		{"the end of the context, after another body was put in place", streams,
			func(t *testing.T, resp *http.Response, cancel context.CancelFunc) {
				ours := resp.Body
				t.Cleanup(func() { ours.Close() })
				resp.Body = io.NopCloser(strings.NewReader("another"))
				require.NoError(t, resp.Body.Close())
				cancel()
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, c.handler)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := u.RoundTrip(get(t, u.url).WithContext(ctx))
				require.NoError(t, err)
				require.Equal(t, 1, u.inFlight(t), "the answer has begun and is not over")
				c.end(t, resp, cancel)
				u.store.awaitLanded(t)
				require.Zero(t, u.inFlight(t))

				resp.Body.Close()
				cancel()
				require.NoError(t, send(t, u, get(t, u.url+"/next")))
				require.Equal(t, 2, u.store.released(), "once each")
			})
		})
	}
}

func TestARequestWithoutABodyEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		for range 3 {
			resp, err := u.RoundTrip(get(t, u.url))
			require.NoError(t, err)
			require.Zero(t, u.inFlight(t))
			require.NoError(t, resp.Body.Close())
		}
		require.Equal(t, 3, u.store.released())
	})
}

func TestARequestThatFailsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { cut(w) })
		for range 3 {
			require.ErrorIs(t, send(t, u, get(t, u.url)), io.EOF)
			require.Zero(t, u.inFlight(t))
		}
		require.Equal(t, 3, u.store.released())
	})
}

// TestEachHopIsInFlightByItself: with one place there is none for two at once.
func TestEachHopIsInFlightByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/moved", http.StatusFound)
				return
			}
			io.WriteString(w, "here")
		})
		resp, err := (&http.Client{Transport: u.Transport}).Do(get(t, u.url))
		require.NoError(t, err)
		require.Equal(t, 1, u.store.released())
		require.Equal(t, 1, u.inFlight(t))
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "here", string(body))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 2, u.store.released())
		require.Zero(t, u.inFlight(t))
	})
}

// TestP13_EveryRetryIsCharged: net/http itself sends a request again when a kept connection
// turns out to be dead. Both may have arrived, so both count; they are one request in flight.
func TestP13_EveryRetryIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			policy         throttle.Policy
			used, released int
		}{{atOnce(1), 0, 3}, {throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(10)}, 3, 0}} {
			var arrivals atomic.Int32
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				if arrivals.Add(1) == 2 { // on the kept connection
					cut(w)
				}
			}, c.policy)
			for range 2 {
				require.NoError(t, send(t, u, get(t, u.url)))
			}
			require.EqualValues(t, 3, arrivals.Load())
			require.Len(t, u.store.charged(), 3)
			require.Equal(t, c.released, u.store.released())
			require.Equal(t, c.used, u.inFlight(t))
		}
	})
}

// TestP13_UpgradeKeepsItsWriter, and is in flight until it is closed.
func TestP13_UpgradeKeepsItsWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []throttle.Policy{atOnce(1), onePerHour} {
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				c, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					return
				}
				defer c.Close()
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				line, _ := rw.ReadString('\n')
				io.WriteString(c, line)
			}, p)
			r := get(t, u.url)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "echo")
			resp, err := u.RoundTrip(r)
			require.NoError(t, err)
			conn, ok := resp.Body.(io.ReadWriteCloser)
			require.True(t, ok, "the body of an upgraded connection must stay writable")
			_, err = io.WriteString(conn, "hello\n")
			require.NoError(t, err)
			line, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "hello\n", line)
			require.Equal(t, 1, u.inFlight(t))
			require.NoError(t, resp.Body.Close())
			if p.Limit.Kind() == store.KindConcurrency {
				require.Zero(t, u.inFlight(t))
				require.Equal(t, 1, u.store.released())
			}
		}
	})
}

// A cloning base sends a copy, as one does that adds a header.
type cloning struct{ http.RoundTripper }

func (c cloning) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.RoundTripper.RoundTrip(r.Clone(r.Context()))
}

// TestP11_APenaltyStopsAClone bans the fleet while a connection is dialled. What the
// caller is told was not sent does not arrive, though its copy has a URL of its own.
func TestP11_APenaltyStopsAClone(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for range 20 {
			var arrived atomic.Int32
			upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
			if secure {
				upstream.StartTLS()
			} else {
				upstream.Start()
			}
			base := upstream.Client().Transport.(*http.Transport).Clone()
			tr := must(throttle.New(throttle.Config{
				MaxWait: throttle.Forever,
				Store:   memstore.New(), Base: cloning{base}, Policies: everywhere(onePerSecond),
			}))
			l, err := tr.Limiter(onePerSecond.Name)
			require.NoError(t, err)
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if err := l.Pause(ctx, "", time.Hour); err != nil {
					return nil, err
				}
				time.Sleep(40 * ms) // too long for the grant
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream.URL, strings.NewReader("pay 100"))
			require.NoError(t, err)
			_, err = tr.RoundTrip(r)
			require.True(t, errors.Is(err, throttle.ErrLimited), err)
			base.CloseIdleConnections()
			upstream.Close() // when all that arrived was answered
			require.Zero(t, arrived.Load())
			cancel()
		}
	}
}

// newTLS returns a server in virtual time whose handshakes take the delays in turn, and a
// transport that trusts it.
func newTLS(t *testing.T, http2 bool, h http.Handler, delays ...time.Duration) (*httptest.Server, *http.Transport) {
	t.Helper()
	var dialled atomic.Int64
	network := newPipes(0)
	srv := &httptest.Server{Listener: network, EnableHTTP2: http2, Config: &http.Server{Handler: h}}
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		time.Sleep(delays[int(dialled.Add(1)-1)%len(delays)])
		return nil, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)

	own := srv.Client().Transport.(*http.Transport)
	own.DialContext = network.dial
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
			synctest.Test(t, func(t *testing.T) {
				const n, per = 5, 250 * ms
				arrivals := newStarts()
				h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = arrivals.RoundTrip(r) })
				srv, own := newTLS(t, c.http2, h, c.delays...)
				own.DisableKeepAlives = !c.http2
				tr := newTransport(t, own, throttle.Policy{
					Name: "p", Match: "/", Limit: throttle.SlidingWindow(n, per), Jitter: 250 * ms,
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
		})
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
				arrivals, net, bodies := newStarts(), newPipes(300*ms), make(chan string, 3)
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
				tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: base, Policies: everywhere(ninePerSecond)}))

				var all sync.WaitGroup
				sent := make([]*sceneBody, 3)
				for i := range sent {
					sent[i] = newSceneBody()
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

// countConns is a server that counts the connections that it was asked for, and those that are open.
func countConns(t *testing.T, h http.HandlerFunc) (url string, dialled, open *atomic.Int64) {
	t.Helper()
	dialled, open = new(atomic.Int64), new(atomic.Int64)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			dialled.Add(1)
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL, dialled, open
}

// TestDefaultBaseKeepsConnections: 64 workers need 64 connections to each of two hosts, and not one for each call.
func TestDefaultBaseKeepsConnections(t *testing.T) {
	const workers, rounds = 64, 4
	var together sync.WaitGroup // the handlers of a round, each of which waits for all
	handler := func(w http.ResponseWriter, _ *http.Request) {
		together.Done()
		together.Wait()
		_, _ = io.WriteString(w, "answer")
	}
	url1, dialled1, open1 := countConns(t, handler)
	url2, dialled2, open2 := countConns(t, handler)

	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.Concurrency(workers)}}}))
	for range rounds {
		for _, url := range []string{url1, url2} {
			together.Add(workers)
			var callers sync.WaitGroup
			for range workers {
				callers.Go(func() {
					resp, err := tr.RoundTrip(get(t, url))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						err = errors.Join(err, resp.Body.Close())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
		}
	}

	// On a busy machine net/http drops a connection now and then, if it hears too late that the request was written.
	for _, dialled := range []*atomic.Int64{dialled1, dialled2} {
		require.GreaterOrEqual(t, dialled.Load(), int64(workers))
		require.LessOrEqual(t, dialled.Load(), int64(workers+workers/8))
	}

	tr.CloseIdleConnections()
	require.Eventually(t, func() bool { return open1.Load()+open2.Load() == 0 }, hangs, time.Millisecond)
}

// TestDefaultBaseEndsWithItsTransport: nobody can use the connections of a transport that is gone, so they are closed.
func TestDefaultBaseEndsWithItsTransport(t *testing.T) {
	url, dialled, open := countConns(t, func(http.ResponseWriter, *http.Request) {})
	for range 3 {
		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Policies: everywhere(atOnce(1))}))
		resp, err := tr.RoundTrip(get(t, url))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.EqualValues(t, 3, dialled.Load())
	require.Eventually(t, func() bool {
		runtime.GC()
		return open.Load() == 0
	}, hangs, time.Millisecond)
}
