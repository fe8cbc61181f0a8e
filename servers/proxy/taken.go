package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A taken is a connection that a caller has taken over by CONNECT.
type taken struct {
	net.Conn
	from   *bufio.Reader // of the connection: what the server has read ahead comes first
	closed chan struct{}
	once   sync.Once
	within time.Duration // how long a write may wait for the caller; 0 or less: for ever

	used atomic.Int64 // when a byte was carried last, in nanoseconds of Unix
	asks atomic.Bool  // that byte was the caller's, who may await an answer
}

// firstBytesTime is how long a caller that has its tunnel may take to say something.
const firstBytesTime = 10 * time.Second

// take takes the connection of a CONNECT over, and says that the tunnel is there.
func take(w http.ResponseWriter, within time.Duration) (*taken, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}

	// The reader of the server ends the context of the request when a read fails.
	ahead, _ := buffered.Peek(buffered.Reader.Buffered())
	from := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn))
	t := &taken{Conn: conn, from: from, closed: make(chan struct{}), within: within}
	t.noteUse()
	_ = conn.SetDeadline(time.Time{}) // those of the server
	_ = conn.SetWriteDeadline(time.Now().Add(firstBytesTime))

	if _, err := t.Conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		t.Close()
		return nil, err
	}

	return t, nil
}

// speaksTLS waits for the first bytes, and reports whether they begin a handshake of TLS.
func (t *taken) speaksTLS() (bool, error) {
	const handshake, version3 = 0x16, 0x03
	_ = t.SetReadDeadline(time.Now().Add(firstBytesTime))
	first, err := t.from.Peek(1)
	if err == nil && first[0] == handshake {
		first, err = t.from.Peek(2)
	}
	_ = t.SetDeadline(time.Time{})
	return len(first) == 2 && first[1] == version3, err
}

// refuseTLS ends a tunnel whose caller has begun a handshake of TLS, with the alert that access is denied.
func (t *taken) refuseTLS() {
	_ = t.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = t.Conn.Write([]byte{0x15, 0x03, 0x03, 0, 2, 2, 49})
	t.Close()
}

// untilLeft returns a context that ends when the caller leaves. The caller is watched until stop
// is called, or until it sends more.
func (t *taken) untilLeft(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := t.from.Peek(t.from.Buffered() + 1)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()

	return watched, func() {
		_ = t.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = t.SetReadDeadline(time.Time{})
	}
}

// noteUse notes that a byte was carried.
func (t *taken) noteUse() { t.used.Store(time.Now().UnixNano()) }

// Read implements [net.Conn].
func (t *taken) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if n > 0 {
		t.asks.Store(true)
		t.noteUse()
	}
	return n, err
}

// Write implements [net.Conn].
func (t *taken) Write(p []byte) (int, error) {
	if t.within > 0 {
		_ = t.SetWriteDeadline(time.Now().Add(t.within))
	}

	t.asks.Store(false) // before the caller can ask for more
	n, err := t.Conn.Write(p)
	if n > 0 {
		t.noteUse()
	}
	return n, err
}

// Close implements [net.Conn].
func (t *taken) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.Conn.Close()
}

// CloseWrite is for pipes.
func (t *taken) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Close()
}

// A single is a listener that accepts one connection, and waits for its end then.
type single struct {
	conn  *taken
	given bool
	stop  chan struct{}
	once  sync.Once
}

// Accept implements [net.Listener].
func (l *single) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.conn, nil
	}
	select {
	case <-l.stop:
	case <-l.conn.closed:
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (l *single) Close() error {
	l.once.Do(func() { close(l.stop) })
	return nil
}

// Addr implements [net.Listener].
func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }
