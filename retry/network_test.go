package retry_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

// TestConnectionRefused: nothing was sent, so a POST is sent again.
func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	var started int
	tr, err := throttle.New(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)}},
		Base:     new(http.Transport),
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventStarted {
				started++
			}
		},
	})
	require.NoError(t, err)
	_, err = prompt(tr).Do(request(t, http.MethodPost, "http://"+l.Addr().String(), []byte("payload")))
	require.Error(t, err)
	require.Equal(t, 5, started)
}

// TestConnectionCut: the request has arrived, and nobody knows what came of it.
func TestConnectionCut(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Add(1)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	client := prompt(newTransport(t, base))

	_, err := client.Do(request(t, http.MethodPost, server.URL, []byte("payload")))
	require.Error(t, err)
	require.EqualValues(t, 1, arrived.Swap(0))

	r := request(t, http.MethodPost, server.URL, []byte("payload"))
	r.Header.Set("Idempotency-Key", "7")
	_, err = client.Do(r)
	require.Error(t, err)
	require.EqualValues(t, 5, arrived.Load())
}

// TestAServer that refuses twice, reached through the standard client.
func TestAServer(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) <= 2 {
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	tr := newTransport(t, base, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)})
	resp, err := retry.NewClient(tr).StandardClient().Do(request(t, http.MethodGet, server.URL, nil).Request)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.EqualValues(t, 3, arrived.Load())
}
