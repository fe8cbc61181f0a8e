//go:build unix

package pgstore_test

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
)

// TestP12_Failover: the server is lost under load, and its synchronous standby takes over. The standby knows each start
// that was granted.
func TestP12_Failover(t *testing.T) {
	server := newServer(t)
	standby := followed(t, server)
	url := both(server, standby)
	charge := hourly(1_000_000)
	var c crowd
	c.come(t, 8, charge, open(t, url), open(t, url), open(t, url))
	c.awaits(t, 1000)
	server.Kill()
	standby.Promote()
	c.awaits(t, 500)
	c.ends()
	s := open(t, standby.URL())
	require.Eventually(t, func() bool { return used(t, s, charge) == int(c.granted.Load()) }, time.Minute, 10*time.Millisecond)
}

// followed starts a standby of a server, without which the server confirms nothing from now on.
func followed(t *testing.T, server *pgtest.Server) *pgtest.Server {
	t.Helper()
	// The standby does not wait for another one when it takes over.
	standby := server.Standby("standby", "synchronous_standby_names=")
	admin, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var state string
		err := admin.QueryRow(t.Context(), "SELECT sync_state FROM pg_stat_replication").Scan(&state)
		return err == nil && state == "sync"
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, admin.Close(t.Context()))
	return standby
}

// both is a URL of two servers: that which can be written to is used.
func both(a, b *pgtest.Server) string {
	return fmt.Sprintf("postgres://test@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write", a.Port, b.Port)
}

// A relay stands between stores and a server. It can lose what the server says.
type relay struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	lose   func() bool                   // whether the reply to what a client has just sent is lost, with the connection. With nil none is.
	thawed atomic.Pointer[chan struct{}] // closed while anything is passed on
	over   chan struct{}                 // closed at the end

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newRelay(t *testing.T, server *pgtest.Server) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, to: server.Addr(), over: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	r.thaw()
	r.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.serve(client) })
		}
	})
	t.Cleanup(func() {
		close(r.over)
		_ = l.Close()
		r.cut()
		r.running.Wait()
	})
	return r
}

// url is that of the server behind the relay.
func (r *relay) url(t *testing.T, server *pgtest.Server) string {
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	u.Host = r.listener.Addr().String()
	return u.String()
}

// freeze has nothing passed on until thaw is called.
func (r *relay) freeze() {
	c := make(chan struct{})
	r.thawed.Store(&c)
}

func (r *relay) thaw() {
	c := make(chan struct{})
	close(c)
	if was := r.thawed.Swap(&c); was != nil {
		close(*was)
	}
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// keep notes a connection until it ends, and reports false at the end.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.over:
		_ = c.Close()
		return false
	default:
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) forget(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

func (r *relay) serve(client net.Conn) {
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		_ = client.Close()
		return
	}
	if !r.keep(client) || !r.keep(server) {
		return
	}
	var losing atomic.Bool
	var one sync.WaitGroup
	one.Go(func() {
		defer r.forget(client)
		r.pass(server, client, func() bool { return losing.Load() })
	})
	r.pass(client, server, func() bool {
		if r.lose != nil && r.lose() {
			losing.Store(true)
		}
		return false
	})
	r.forget(server)
	one.Wait()
}

// pass passes on what one side says to the other one. It ends when stop says so of something that was said.
func (r *relay) pass(from, to net.Conn, stop func() bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-*r.thawed.Load():
		case <-r.over:
			return
		}
		if err != nil || stop() {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
