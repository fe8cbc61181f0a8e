package waits

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Pipes are a real HTTP server whose connections lie in memory, so that virtual
// time passes while both sides wait.
type pipes struct {
	stage
	answer time.Duration
	server *http.Server
	conns  chan net.Conn
	over   chan struct{}
	once   sync.Once

	mu       sync.Mutex
	arrivals []spend
}

func newPipes(s stage, answer time.Duration) *pipes {
	p := &pipes{stage: s, answer: answer, conns: make(chan net.Conn), over: make(chan struct{})}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(p) }()
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Accept, Close and Addr make it a listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.over) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// ServeHTTP takes its time.
func (p *pipes) ServeHTTP(http.ResponseWriter, *http.Request) {
	p.mu.Lock()
	p.arrivals = append(p.arrivals, spend{p.now(), 1})
	p.mu.Unlock()
	time.Sleep(p.answer)
}

func (p *pipes) seen() []spend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals
}

// close ends the server. The answers to requests that were given up are on their way.
func (p *pipes) close() {
	_ = p.server.Close()
	time.Sleep(2 * p.answer)
}
