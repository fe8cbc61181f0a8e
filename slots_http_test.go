package throttle_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// An upstream is a real one, behind a transport with one place in flight.
type upstream struct {
	*throttle.Transport
	store *spyStore
	url   string
}

func newUpstream(t *testing.T, handler http.HandlerFunc) *upstream {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	store := newSpy()
	store.landed = make(chan struct{}, 100)
	tr := must(throttle.New(throttle.Config{Store: store, Base: &http.Transport{}, Policies: []throttle.Policy{atOnce(1)}}))
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
	}
}

func TestARequestWithoutABodyEndsAtOnce(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for range 3 {
		resp, err := u.RoundTrip(get(t, u.url))
		require.NoError(t, err)
		require.Zero(t, u.inFlight(t))
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, 3, u.store.released())
}

func TestARequestThatFailsEnds(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { cut(w) })
	for range 3 {
		require.ErrorIs(t, send(t, u, get(t, u.url)), io.EOF)
		require.Zero(t, u.inFlight(t))
	}
	require.Equal(t, 3, u.store.released())
}

// TestEachHopIsInFlightByItself: with one place there is none for two at once.
func TestEachHopIsInFlightByItself(t *testing.T) {
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
}

// TestARetryOfTheBaseTakesThePlaceOfTheFirst: what net/http sends again on
// another connection is one request in flight.
func TestARetryOfTheBaseTakesThePlaceOfTheFirst(t *testing.T) {
	var arrivals atomic.Int32
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		if arrivals.Add(1) == 2 { // on the kept connection
			cut(w)
		}
	})
	for range 2 {
		require.NoError(t, send(t, u, get(t, u.url)))
	}
	require.EqualValues(t, 3, arrivals.Load())
	require.Len(t, u.store.booked(), 3)
	require.Equal(t, 3, u.store.released())
	require.Zero(t, u.inFlight(t))
}

func TestAnUpgradedConnectionIsInFlightUntilItIsClosed(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(c, line)
	})
	r := get(t, u.url)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := u.RoundTrip(r)
	require.NoError(t, err)
	_, err = io.WriteString(resp.Body.(io.Writer), "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.Equal(t, 1, u.inFlight(t))
	require.NoError(t, resp.Body.Close())
	require.Zero(t, u.inFlight(t))
	require.Equal(t, 1, u.store.released())
}

// TestRefusedWhileInFlight: a refusal, and a wait that is given up, hold nothing.
func TestRefusedWhileInFlight(t *testing.T) {
	u := newUpstream(t, streams)
	resp, err := u.RoundTrip(get(t, u.url))
	require.NoError(t, err)
	err = send(t, u, get(t, u.url).WithContext(throttle.WithMaxWait(t.Context(), -1)))
	require.ErrorIs(t, err, throttle.ErrLimited)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, send(t, u, get(t, u.url).WithContext(ended)), context.Canceled)
	require.Equal(t, 1, u.inFlight(t))
	require.NoError(t, resp.Body.Close())
	require.NoError(t, send(t, u, get(t, u.url)))
	require.Zero(t, u.inFlight(t))
}
