// Package fleet is the test bed for what only a fleet can show: several
// processes with many workers each, one store, and an upstream that counts
// arrivals in exact sliding windows and bans. It measures from outside: what
// the upstream saw, how long the workers waited, and how often the store was asked.
//
// [Run] starts the running program once more for each member of the fleet, so a
// program that calls Run calls [Main] first thing, as a test does in TestMain.
// Limiters other than throttle take part as a [Limiter].
package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Config describes one run of a fleet. Redis, Limit, Processes, Workers and
// Load are required, Redis only if the Limiter needs it.
type Config struct {
	Name    string // names the run in reports and its policy in the store
	Limiter string // a name that Main knows; "": throttle's transport
	Redis   string // the store's URL, as redis.ParseURL reads it
	Limit   string // as throttle.ParseLimit reads it: a window of a fixed length
	Jitter  time.Duration

	Processes int
	Workers   int           // in each process, each in a closed loop
	Keys      int           // workers share this many budgets evenly; the default is one
	Load      time.Duration // how long the workers go on

	Delay     time.Duration // each request is held up to this long between grant and send
	Ban       time.Duration // how long the upstream bans, or 0 for no upstream
	Handshake time.Duration // every request dials anew, and its handshake takes up to this long, or 0 for plain HTTP
}

// check returns the limit. It returns an error if the limit is not a window of a fixed length, or if Processes, Workers or
// Load is missing.
func (c Config) check() (throttle.Limit, error) {
	limit, err := throttle.ParseLimit(c.Limit)
	switch {
	case err != nil:
		return limit, err
	case limit.Per() <= 0:
		return limit, fmt.Errorf("fleet: %v has no window of a fixed length", limit)
	case c.Processes <= 0 || c.Workers <= 0 || c.Load <= 0:
		return limit, errors.New("fleet: Processes, Workers and Load must be above zero")
	}
	return limit, nil
}

// key returns the key of a worker's budget.
func (c Config) key(worker int) string {
	if c.Keys <= 1 {
		return ""
	}
	return fmt.Sprintf("key %d", worker%c.Keys)
}

// Serve starts a server for h on a free port of the loopback. With a handshake
// above zero it speaks TLS, and each handshake is held back by a random time up
// to that. The caller closes the server.
func Serve(h http.Handler, handshake time.Duration) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if handshake <= 0 {
		s.Start()
		return s
	}
	s.Listener = &slowListener{Listener: s.Listener, most: handshake}
	s.StartTLS()
	return s
}

// A slowListener makes the first Read of every connection wait. Under TLS that
// is the client's hello, so the whole handshake waits; Accept never does.
type slowListener struct {
	net.Listener
	most time.Duration
}

func (l *slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &slowConn{Conn: c, hold: rand.N(l.most + 1)}, nil
}

type slowConn struct {
	net.Conn
	hold  time.Duration
	first sync.Once
}

func (c *slowConn) Read(p []byte) (int, error) {
	c.first.Do(func() { time.Sleep(c.hold) })
	return c.Conn.Read(p)
}
