package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/internal/inbound"
)

// unixPrefix marks an address that is the path of a socket.
const unixPrefix = "unix:"

// isExposed reports whether other machines reach an address.
func isExposed(address string) bool {
	return !strings.HasPrefix(address, unixPrefix) && !inbound.IsLoopbackAddress(address)
}

// listenAt listens at an address: "host:port", or "unix:/path".
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(ctx, path)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// A socket is a listener that removes its file.
type socket struct {
	net.Listener
	path string
	file fs.FileInfo // as created
	once sync.Once
}

// listenUnix creates a socket that only its owner may use. It replaces a socket without a listener, and fails if anything
// else is at the path. It creates the socket in a private folder and renames it, so that nobody finds the socket before its
// rights are set.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := checkReplaceable(ctx, path); err != nil {
		return nil, err
	}

	folder, err := os.MkdirTemp(filepath.Dir(path), ".t")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)

	made := filepath.Join(folder, "s")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}

	// A UnixListener would remove its first name, which no longer exists. socket.Close removes the final name.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socket{Listener: listener, path: path}

	err = os.Chmod(made, 0o600)
	if err == nil {
		// Remember the file: Close must not remove the socket of a different process.
		s.file, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}

	return s, nil
}

// checkReplaceable returns an error unless there is nothing at a path, or a socket without a listener.
func checkReplaceable(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case file.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is no socket, and stays", path)
	}

	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another program listens at %s", path)
	}

	// Only a refused connection proves that no program listens.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}

	return nil
}

// Close removes the file, unless a different file is there now.
func (s *socket) Close() error {
	s.once.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
			os.Remove(s.path)
		}
	})
	return s.Listener.Close()
}

// A bounded listener limits open connections, so that slow clients cannot pile up. A connection too many closes the oldest
// connection without a valid token, so that clients without the token cannot shut out clients with it. If there is none, the
// connection is answered with a 503. Several listeners can share one bound.
type bounded struct {
	net.Listener
	*bound
}

// A bound counts open connections, and limits them.
type bound struct {
	most    int64
	open    atomic.Int64
	refused atomic.Int64 // connections closed because there were too many
	telling atomic.Int64 // connections that are being told

	mu        sync.Mutex
	strangers list.List // of *boundedConn without a valid token, oldest first
}

// strangersPart says which part of the connections one address may have without a valid token: a quarter.
const strangersPart = 4

// makeRoom makes room for a connection from an address. If all places are taken, it closes the oldest connection without a valid
// token, if there is one. Otherwise it closes the oldest such connection of the same address if the address has its full part.
// The loopback has no such bound, because its connections may belong to different users.
func (b *bound) makeRoom(address net.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()

	full := b.open.Load() >= b.most
	from := hostOfAddress(address)

	// The list has the oldest connection first.
	var oldest *boundedConn // of those that may be closed
	ofAddress := int64(0)
	for e := b.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*boundedConn)
		same := from != "" && hostOfAddress(c.RemoteAddr()) == from
		if oldest == nil && (same || full) {
			oldest = c
		}
		if same {
			ofAddress++
		}
	}

	if oldest != nil && (full || ofAddress >= max(1, b.most/strangersPart)) {
		b.refused.Add(1)
		go oldest.Close() // in a goroutine, because Close takes the mutex

		// Close comes later, so give back the place now.
		b.strangers.Remove(oldest.place)
		oldest.place = nil
		b.free(oldest)
	}
}

// hostOfAddress returns the host of an address, or "" for loopback and for a socket.
func hostOfAddress(a net.Addr) string {
	at, ok := a.(*net.TCPAddr)
	if !ok || at.IP.IsLoopback() {
		return ""
	}
	return at.IP.String()
}

// free gives the place of a connection back, once.
func (b *bound) free(c *boundedConn) {
	wasFreed := c.freed.Swap(true)
	if !wasFreed {
		b.open.Add(-1)
	}
}

// connKey is the context key of the connection of a request.
type connKey struct{}

// letIn notes that the connection of a request has a valid token.
func letIn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*boundedConn); ok {
		c.of.know(c)
	}
}

// know removes a connection from the connections without a valid token.
func (b *bound) know(c *boundedConn) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if c.place != nil {
		b.strangers.Remove(c.place)
		c.place = nil
	}
}

// mostTold is how many connections are told at once that there are too many.
const mostTold = 64

// tooMany is the answer to a connection too many.
var tooMany = fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nVia: 1.1 throttle\r\nServer-Timing: throttle;dur=0\r\nRetry-After: 1\r\nConnection: close\r\n"+
	"Content-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s", len(tooManyProblem), tooManyProblem)

const tooManyProblem = `{"title":"Service Unavailable","status":503,"detail":"too many connections to this proxy are open"}`

// Accept implements [net.Listener]. It makes room for a connection: see makeRoom. A connection without room gets the answer
// tooMany, unless mostTold connections are being told, and is closed.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}

		b.makeRoom(conn.RemoteAddr())

		// Add before comparing: several listeners share the bound.
		open := b.open.Add(1)
		if open <= b.most {
			c := &boundedConn{Conn: conn, of: b.bound}
			b.mu.Lock()
			c.place = b.strangers.PushBack(c)
			b.mu.Unlock()
			return c, nil
		}

		b.open.Add(-1)
		b.refused.Add(1)

		// Each refusal takes a goroutine, so bound the refusals that are explained.
		telling := b.telling.Add(1)
		if telling > mostTold {
			conn.Close()
			b.telling.Add(-1)
			continue
		}

		go func() {
			defer b.telling.Add(-1)
			tell(conn)
		}()
	}
}

// tell writes tooMany, reads for at most a second, and closes the connection. A connection that is closed with unread bytes
// is reset, and the client would not see the answer.
func tell(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, tooMany); err == nil && closeWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, conn, 1<<20)
	}
}

// A boundedConn is a connection of a bounded listener.
type boundedConn struct {
	net.Conn
	of    *bound
	place *list.Element // in strangers, or nil with a valid token or behind a closing listener; guarded by the bound's mutex
	freed atomic.Bool
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	c.of.know(c)
	c.of.free(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http close its side first, so that a client sees the last
// answer.
func (c *boundedConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes the sending side of a connection, if the connection can do so.
func closeWrite(conn net.Conn) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
