// Package bubble has what tests in a bubble of package synctest need beside it.
package bubble

import (
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// After returns a channel that is closed in d, and what stops that. It is for tests in place
// of [time.After] and [time.NewTimer]: a timer of a bubble that runs in a goroutine which finds
// it over breaks the race detector (go.dev/issue/78156). A goroutine finds it over when the
// goroutine receives from its channel, which a timer of [time.AfterFunc] has not, or starts it
// with no time to go.
func After(d time.Duration) (over <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	if d <= 0 {
		close(c)
		return c, func() bool { return false }
	}
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}

// Send sends text to a server of a handler, over the only connection of the server, and nothing more. It returns how long
// the server keeps the connection open.
func Send(h http.Handler, text string) (time.Duration, error) {
	ours, theirs := net.Pipe()
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	defer server.Close()
	l := &listener{conn: theirs, end: make(chan struct{})}
	go func() { _ = server.Serve(l) }()

	begun := time.Now()
	go func() { _, _ = io.WriteString(ours, text) }()
	_, err := io.Copy(io.Discard, ours)
	return time.Since(begun), err
}

// A listener has one connection.
type listener struct {
	conn net.Conn
	end  chan struct{}
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.end
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	close(l.end)
	return nil
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
