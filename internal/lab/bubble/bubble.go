// Package bubble has what tests in a bubble of package synctest need beside it.
package bubble

import (
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// After returns a channel that is closed after d, and a function that prevents it. If d is not above 0 the channel is
// closed already. Tests in bubbles use it in place of [time.After] and [time.NewTimer]: the race detector fails on a
// bubble's timer that a goroutine finds over when it receives from the timer's channel, or starts it with no time to go
// (go.dev/issue/78156). A timer of [time.AfterFunc] has no channel.
func After(d time.Duration) (over <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	if d <= 0 {
		close(c)
		return c, func() bool { return false }
	}
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}

// Send sends text to a server of a handler over its only connection, then nothing more, and reads answers until the server
// closes the connection. It returns how long the server kept the connection open.
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
