package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/match"
)

// A tunnel ends after tunnelQuiet without a byte, or after endQuiet while the
// handler shuts down. Some models think for minutes before they answer.
const (
	tunnelQuiet = 10 * time.Minute
	endQuiet    = time.Second
)

// Limits for HTTP in a tunnel where the server of the handler has none: reading
// headers, and idle connections.
const (
	headerTime = 10 * time.Second
	unusedTime = 2 * time.Minute
)

// A connector serves CONNECT, by which clients with HTTP_PROXY ask for a tunnel to a host. Plain HTTP in a
// tunnel is served request by request. TLS is refused unless the table allows tunnels to the host. An allowed
// tunnel costs one start, whatever it carries.
type connector struct {
	known     *known
	transport http.RoundTripper
	tunnels   *tunnels
	slots     slots
	hold      func(*http.Request) (*http.Request, *call, *problem)
	serve     func(authority string) http.Handler
	refuse    func(http.ResponseWriter, *http.Request, *problem)
	tell      func(detail string) // Config.BlindTunnel
	idle      time.Duration       // Config.CallerIdle
}

// ServeHTTP implements [http.Handler]. It returns when the tunnel has ended.
func (c *connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, p := c.host(r)
	if p != nil {
		c.refuse(w, r, p)
		return
	}

	// Take a slot before anything that costs a start.
	place := c.slots.enter(clientOf(r.RemoteAddr))
	if place == nil {
		c.refuse(w, r, newProblem(http.StatusServiceUnavailable, "there are too many tunnels through this proxy").after(inbound.Soon))
		return
	}
	defer c.slots.leave(place)

	t := &tunnelled{connector: c, host: host, authority: r.RequestURI}
	defer t.dropUpstream()

	// Port 443 is for TLS: get the start before the 200, while a refusal can still say why.
	if strings.HasSuffix(r.RequestURI, ":443") {
		if p := t.prepare(r); p != nil {
			c.refuse(w, r, p)
			return
		}
	}

	caller, err := take(w, c.idle)
	if err != nil {
		return // the caller has gone
	}
	defer caller.Close()

	// From here on a later tunnel may evict this tunnel.
	c.slots.use(place, caller)

	cut := func() { caller.Close() }
	one, ok := c.tunnels.add(cut, cut)

	// The handler shuts down, so no new tunnel begins.
	if !ok {
		return
	}
	defer one.leave()

	t.caller, t.one = caller, one
	t.carry(r)
}

// host returns the host of a CONNECT. It refuses HTTP/2, a target that is not HOST:PORT, a body, and hosts that no policy
// names.
func (c *connector) host(r *http.Request) (string, *problem) {
	name, port := match.SplitPort(r.RequestURI)
	isTarget := isHost(r.RequestURI) && name != "" && len(port) > len(":")
	switch {
	case r.ProtoMajor != 1:
		return "", newProblem(http.StatusNotImplemented, "tunnels are for HTTP/1.1")
	case !isTarget || r.ContentLength != 0:
		return "", newProblem(http.StatusBadRequest, "the request for a tunnel is not HOST:PORT without a body")
	}
	host, _, ok := c.known.meant(r.RequestURI)
	if !ok {
		return "", unnamed()
	}
	return host, nil
}

// A tunnelled is one CONNECT.
type tunnelled struct {
	*connector
	host      string   // its target
	authority string   // the target as the caller wrote it
	caller    *taken   // nil before the answer 200
	one       *tunnel  // for Shutdown, nil before the answer 200
	upstream  net.Conn // nil before prepare and after dropUpstream
	end       func()   // ends the use of upstream
}

// prepare gets a start and connects to the host, or returns the refusal.
func (t *tunnelled) prepare(r *http.Request) *problem {
	if p := t.blind(r); p != nil {
		return p
	}

	r, call, p := t.hold(r)
	if p != nil {
		return p
	}
	defer call.endWait()

	call.begun = time.Now()

	var err error
	if t.upstream, t.end, err = connect(r.Context(), t.transport, t.host); err != nil {
		p := problemOf(err)
		p.timing = call.timing()
		return p
	}

	return nil
}

// blind returns the refusal of TLS to the host, and reports it to [Config.BlindTunnel], or returns nil if TLS is allowed.
func (t *tunnelled) blind(r *http.Request) *problem {
	policy, why := "", "requests are counted, which TLS hides"
	if t.known.table != nil {
		policy, why = t.known.table().Blind(t.host)
	}
	if why == "" {
		return nil
	}

	// Say how to reach the host without a tunnel.
	at := "ADDRESS-OF-THIS-PROXY"
	if address, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		at = address.String()
	}

	host := strings.TrimSuffix(t.host, ":443")
	name := ""
	if policy != "" {
		name = fmt.Sprintf("policy %q: ", policy)
	}

	p := newProblem(http.StatusForbidden, name+why+": use http://"+at+"/"+host+"/ as the base URL, or http://"+host+"/ by this proxy, which goes on by https")
	p.Policy = policy
	t.tell(p.Detail)

	return p
}

// dropUpstream ends the use of the connection to the upstream, if there is one.
func (t *tunnelled) dropUpstream() {
	if t.upstream != nil {
		t.end()
		t.upstream = nil
	}
}

// carry looks at the first bytes of the tunnel. It serves plain HTTP request by request, and carries TLS to the upstream.
// It returns when the tunnel is over, when the caller sends nothing in time, or when TLS is refused.
func (t *tunnelled) carry(r *http.Request) {
	tls, err := t.caller.speaksTLS()
	if err != nil {
		return
	}

	// Requests of plain HTTP have connections and starts of their own. The start that prepare took for port 443 is lost.
	if !tls {
		t.dropUpstream()
		t.serveHTTP(r)
		return
	}

	// At another port than 443 the tunnel has no start yet: get the start now, while watching that the caller stays.
	if t.upstream == nil {
		t.caller.asks.Store(true) // the first bytes were only peeked at, so Read has not noted that the caller awaits an answer
		ctx, stop := t.caller.untilLeft(r.Context())
		p := t.prepare(r.WithContext(ctx))
		stop()
		if p != nil {
			t.caller.refuseTLS()
			return
		}
	}

	pipe := newPipe(t.caller, t.caller, t.upstream, tunnelQuiet)

	// Shutdown shortens the silence, so that an idle tunnel ends soon and a busy tunnel finishes.
	t.one.endBy(func() { pipe.endWhenQuiet(endQuiet) })
	pipe.run()
}

// serveHTTP serves plain HTTP in a tunnel, with the limits of the server that got r.
func (t *tunnelled) serveHTTP(r *http.Request) {
	server := &http.Server{
		Handler:     t.serve(t.authority),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(r.Context()) },
		// Discard errors of callers that break HTTP.
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: headerTime, IdleTimeout: unusedTime,
	}

	if outer, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		// Log panics in a tunnel where the outer server logs.
		if outer.ErrorLog != nil {
			server.ErrorLog = outer.ErrorLog
		}

		server.MaxHeaderBytes, server.Protocols, server.HTTP2 = outer.MaxHeaderBytes, outer.Protocols, outer.HTTP2
		if outer.ReadHeaderTimeout > 0 {
			server.ReadHeaderTimeout = outer.ReadHeaderTimeout
		}
		if outer.IdleTimeout > 0 {
			server.IdleTimeout = outer.IdleTimeout
		}
	}

	// The inner Shutdown waits for the requests in flight, so it runs beside the loop of tunnels.shutdown.
	listener := &single{conn: t.caller, stop: make(chan struct{})}
	t.one.endBy(func() { go server.Shutdown(context.WithoutCancel(r.Context())) })
	_ = server.Serve(listener)
	if !listener.given { // the server was shut down before it accepted the connection
		t.caller.Close()
	}

	// ServeHTTP closes the connection afterwards, so wait until the inner server is done with it.
	<-t.caller.closed
}

// A taken is a hijacked connection of a CONNECT.
type taken struct {
	net.Conn
	from   *bufio.Reader // reads conn, after the bytes that the server has read ahead
	closed chan struct{}
	once   sync.Once
	within time.Duration // time limit of a write, 0 or less means no limit

	used atomic.Int64 // time of the last byte, in Unix nanoseconds
	asks atomic.Bool  // the last byte came from the caller, who may await an answer
}

// firstBytesTime is how long a tunnel may stay silent at first.
const firstBytesTime = 10 * time.Second

// take hijacks the connection of a CONNECT and answers 200. Later writes may take as long as within each: see taken. After
// an error the caller has gone.
func take(w http.ResponseWriter, within time.Duration) (*taken, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}

	// Read through a new reader: a failed read of the server's reader would end the context of the request.
	ahead, _ := buffered.Peek(buffered.Reader.Buffered())
	from := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn))
	t := &taken{Conn: conn, from: from, closed: make(chan struct{}), within: within}
	t.noteUse()

	// Remove the server's deadlines, but bound the write of the first bytes until speaksTLS removes all deadlines.
	_ = conn.SetDeadline(time.Time{})
	_ = conn.SetWriteDeadline(time.Now().Add(firstBytesTime))

	if _, err := t.Conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		t.Close()
		return nil, err
	}

	return t, nil
}

// speaksTLS waits for the first bytes, for firstBytesTime at most, and reports whether they begin a TLS handshake, or
// returns the error of reading them. The bytes stay to be read. It removes all deadlines.
func (t *taken) speaksTLS() (bool, error) {
	const handshake, version3 = 0x16, 0x03
	_ = t.SetReadDeadline(time.Now().Add(firstBytesTime))

	// Peek at one byte first: Peek(2) could wait for a second byte that never comes.
	first, err := t.from.Peek(1)
	if err == nil && first[0] == handshake {
		first, err = t.from.Peek(2)
	}
	_ = t.SetDeadline(time.Time{})
	return len(first) == 2 && first[1] == version3, err
}

// refuseTLS ends a tunnel in a TLS handshake with the alert access_denied.
func (t *taken) refuseTLS() {
	_ = t.SetWriteDeadline(time.Now().Add(time.Second))

	// A record of type alert, of TLS 1.2, with two bytes: the level fatal, and access_denied.
	_, _ = t.Conn.Write([]byte{0x15, 0x03, 0x03, 0, 2, 2, 49})
	t.Close()
}

// untilLeft returns a context that ends when the caller leaves. It watches the caller until stop is called or
// the caller sends more.
func (t *taken) untilLeft(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)

		// Peek beyond the buffer: only a new byte or the end of the connection wakes the goroutine.
		_, err := t.from.Peek(t.from.Buffered() + 1)

		// A full buffer, and the deadline that stop sets, do not say that the caller has left.
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()

	return watched, func() {
		// A deadline in the past ends the Peek. The connection is usable again once the goroutine has ended.
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

// CloseWrite closes the write side, for pipes.
func (t *taken) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Close()
}

// A single is a listener that accepts one connection, then waits for the end of it.
type single struct {
	conn  *taken
	given bool          // Accept has returned conn
	stop  chan struct{} // closed by Close
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

// A pipe carries bytes between a caller and an upstream, both ways. It ends when both directions have ended,
// or after a time without traffic.
type pipe struct {
	caller, upstream net.Conn
	from             io.Reader    // reads the caller's bytes
	quiet            atomic.Int64 // time without a byte until the pipe ends, in nanoseconds
	timer            *time.Timer  // ends the pipe
}

// pipeBuffer is the size of a direction's buffer: the largest TLS record.
const pipeBuffer = 16 << 10

// newPipe returns a pipe that ends after quiet without a byte.
func newPipe(caller net.Conn, from io.Reader, upstream net.Conn, quiet time.Duration) *pipe {
	p := &pipe{caller: caller, upstream: upstream, from: from}
	p.quiet.Store(int64(quiet))
	p.timer = time.AfterFunc(quiet, p.close)
	return p
}

// run carries bytes until the pipe ends.
func (p *pipe) run() {
	var ways sync.WaitGroup
	ways.Go(func() { p.carry(p.upstream, p.from) })
	ways.Go(func() { p.carry(p.caller, p.upstream) })
	ways.Wait()
	p.timer.Stop()
	p.close()
}

// carry carries bytes in one direction. A peer that has finished sending may still receive.
func (p *pipe) carry(to net.Conn, from io.Reader) {
	buf := make([]byte, pipeBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.noteUse()
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}

		if err == nil {
			continue
		}

		// At the end of from, end only this direction. After an error, or if to has no half to close, end the pipe.
		half, ok := to.(interface{ CloseWrite() error })
		hasEndedHalf := err == io.EOF && ok && half.CloseWrite() == nil
		if !hasEndedHalf {
			p.close()
		}

		return
	}
}

// noteUse notes that a byte was carried.
func (p *pipe) noteUse() { p.timer.Reset(time.Duration(p.quiet.Load())) }

// endWhenQuiet shortens the time without a byte after which the pipe ends.
func (p *pipe) endWhenQuiet(quiet time.Duration) {
	p.quiet.Store(int64(quiet))
	p.noteUse()
}

func (p *pipe) close() {
	p.caller.Close()
	p.upstream.Close()
}
