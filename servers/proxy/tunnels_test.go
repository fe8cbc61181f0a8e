package proxy_test

import (
	"bufio"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// Clients whose addresses differ. The last two are one: they are in the same /64.
const (
	greedy  = "192.0.2.1:1000"
	other   = "192.0.2.2:1000"
	fresh   = "[::ffff:192.0.2.3]:1000"
	third   = "[2001:db8::1]:1000"
	third64 = "[2001:db8::2]:1000"
)

// newTunnelScene is a virtual scene with a bound of tunnels, in which a path "/slow" has its answer after a minute.
func newTunnelScene(t *testing.T, most int) *scene {
	policies := []throttle.Policy{at("api.example.com/", 1000)}
	return newVirtualScene(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(time.Minute)
		}
		told(w, r)
	}, func(c *proxy.Config) {
		carried(policies, "api.example.com")(c)
		c.Tunnels, c.MaxWait = most, time.Hour
	}, policies...)
}

// tunnelFrom opens a tunnel for a client, or returns nil if there is none for the client.
func (s *scene) tunnelFrom(client, to string) *wire {
	s.Helper()
	s.front.from = client
	w := s.dial()
	w.send("CONNECT " + to + " HTTP/1.1\nHost: " + to + "\n\n")
	resp, err := http.ReadResponse(w.from, &http.Request{Method: "CONNECT"})
	require.NoError(s, err)
	if resp.StatusCode == http.StatusServiceUnavailable {
		require.NotEmpty(s, resp.Header.Get("Retry-After"))
		return nil
	}
	require.Equal(s, 200, resp.StatusCode)
	return w
}

// isOpen reports whether the proxy has left a tunnel open on which nothing is under way.
func (w *wire) isOpen() bool {
	w.Helper()
	synctest.Wait()

	_ = w.Conn.SetReadDeadline(time.Now().Add(time.Microsecond)) // which fails if the tunnel has ended
	_, err := w.from.Peek(1)
	require.Error(w, err)
	_ = w.Conn.SetReadDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// use sends a request in a tunnel, and reads its answer.
func (w *wire) use() {
	w.Helper()
	w.send("GET / HTTP/1.1\nHost: api.example.com\n\n")
	resp, _ := w.answer("GET")
	require.Equal(w, 200, resp.StatusCode)
}

// overTLS returns a tunnel with TLS in it.
func (w *wire) overTLS() *wire {
	w.Helper()
	conn, err := w.secure()
	require.NoError(w, err)
	return &wire{w.scene, conn, bufio.NewReader(conn)}
}

// fill takes tunnels for a client, a second apart, and uses each once. The port says whether they carry TLS.
func (s *scene) fill(client, port string, n int) (all []*wire) {
	s.Helper()
	for range n {
		w := s.tunnelFrom(client, "api.example.com"+port)
		require.NotNil(s, w)
		if port == ":443" {
			w = w.overTLS()
		}
		w.use()
		all = append(all, w)
		time.Sleep(time.Second)
	}
	return all
}

// requireEnded requires that of these tunnels some have ended, by their place, and no others.
func requireEnded(t *testing.T, all []*wire, ended ...int) {
	t.Helper()
	for i, w := range all {
		require.Equal(t, !slices.Contains(ended, i), w.isOpen(), "tunnel %d", i)
	}
}

// TestP12_IdleTunnelsMakeRoom: a client that has all tunnels and does not use them leaves one to another client at once,
// the one that was idle for longest. A tunnel that was in use a moment ago stays.
func TestP12_IdleTunnelsMakeRoom(t *testing.T) {
	for _, port := range []string{":80", ":443"} {
		synctest.Test(t, func(t *testing.T) {
			s := newTunnelScene(t, 4)
			held := s.fill(greedy, port, 4)
			require.Nil(t, s.tunnelFrom(other, "api.example.com"+port), "the tunnels were in use a moment ago")

			time.Sleep(6 * time.Second)
			begun := time.Now()
			require.NotNil(t, s.tunnelFrom(other, "api.example.com"+port))
			require.Zero(t, time.Since(begun))
			requireEnded(t, held, 0)
			require.EqualValues(t, 1, s.handler.Stats().TunnelsEnded)

			require.NotNil(t, s.tunnelFrom(greedy, "api.example.com"+port), "a client takes its own idle tunnels")
			requireEnded(t, held, 0, 1)
		})
	}
}

// TestP12_TunnelsAreShared: room comes from the client with the most tunnels, and nobody takes it from a client that has
// no more than the one who asks.
func TestP12_TunnelsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTunnelScene(t, 6)
		few := s.fill(other, ":80", 1)
		many := s.fill(greedy, ":80", 3)
		some := s.fill(third, ":80", 2)
		time.Sleep(6 * time.Second)

		require.NotNil(t, s.tunnelFrom(fresh, "api.example.com:80"))
		requireEnded(t, few)
		requireEnded(t, many, 0)
		require.NotNil(t, s.tunnelFrom(third64, "api.example.com:80"), "nobody has more than the client")
		requireEnded(t, some, 0)
		requireEnded(t, many, 0)

		time.Sleep(time.Second)
		for _, w := range append(some[1:], many[1:]...) {
			w.use()
		}
		require.Nil(t, s.tunnelFrom(greedy, "api.example.com:80"), "what is idle is the one tunnel of a client that has fewer")
		requireEnded(t, few)
	})
}

// TestP12_AwaitedTunnelsEndLast: a tunnel in which the caller waits for an answer ends after those in which nobody waits.
func TestP12_AwaitedTunnelsEndLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTunnelScene(t, 3)
		awaited := s.fill(greedy, ":80", 1)[0]
		awaited.send("GET /slow HTTP/1.1\nHost: api.example.com\n\n")
		time.Sleep(time.Second)
		idle := s.fill(greedy, ":80", 2)
		time.Sleep(6 * time.Second)

		for i := range idle {
			require.NotNil(t, s.tunnelFrom(other, "api.example.com:80"))
			requireEnded(t, idle[:i+1], []int{0, 1}[:i+1]...)
			time.Sleep(6 * time.Second)
		}
		resp, _ := awaited.answer("GET")
		require.Equal(t, 200, resp.StatusCode)
	})
}
