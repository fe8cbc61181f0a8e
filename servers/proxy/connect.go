package proxy

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/match"
)

// A tunnel without a byte for tunnelQuiet ends; and for endQuiet when the handler shuts down.
// Some models think for minutes before they answer.
const (
	tunnelQuiet = 10 * time.Minute
	endQuiet    = time.Second
)

// How long a caller in a tunnel may take for headers, and how long its connection may be unused,
// where the server of the handler has no such bounds.
const (
	headerTime = 10 * time.Second
	unusedTime = 2 * time.Minute
)

// A connector serves CONNECT, by which programs with HTTP_PROXY ask for a tunnel to a host. Plain
// HTTP in a tunnel is served request by request. TLS is refused, unless the table says that the tunnels of
// the host are carried: then a connection costs one start, whatever the connection carries.
type connector struct {
	known     *known
	transport http.RoundTripper
	tunnels   *tunnels
	slots     slots
	hold      func(*http.Request) (*http.Request, *call, *problem)
	serve     func(authority string) http.Handler
	refuse    func(http.ResponseWriter, *http.Request, *problem)
	tell      func(detail string)
	idle      time.Duration // Config.CallerIdle
}

// ServeHTTP implements [http.Handler].
func (c *connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, p := c.host(r)
	if p != nil {
		c.refuse(w, r, p)
		return
	}

	place := c.slots.enter(clientOf(r.RemoteAddr))
	if place == nil {
		c.refuse(w, r, newProblem(http.StatusServiceUnavailable, "there are too many tunnels through this proxy").after(soon))
		return
	}

	defer c.slots.leave(place)

	t := &tunnelled{connector: c, host: host, authority: r.RequestURI}
	defer t.hangUp()

	if strings.HasSuffix(r.RequestURI, ":443") { // certainly TLS
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
	c.slots.use(place, caller)

	cut := func() { caller.Close() }
	one, ok := c.tunnels.add(cut, cut)
	if !ok {
		return
	}

	defer one.leave()
	t.caller, t.one = caller, one
	t.carry(r)
}

// host returns the host to which a tunnel is asked for.
func (c *connector) host(r *http.Request) (string, *problem) {
	name, port := match.SplitPort(r.RequestURI)
	switch {
	case r.ProtoMajor != 1:
		return "", newProblem(http.StatusNotImplemented, "tunnels are for HTTP/1.1")
	case !isHost(r.RequestURI) || name == "" || len(port) < len(":1") || r.ContentLength != 0:
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
	host      string // which it leads to
	authority string // as the caller wrote it
	caller    *taken
	one       *tunnel
	upstream  net.Conn // nil: there is none
	end       func()   // ends the use of upstream
}

// prepare connects to the host, with a start.
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
		t.upstream = nil
		p := problemOf(err)
		p.timing = call.timing()
		return p
	}

	return nil
}

// blind returns why a connection of TLS to the host is not carried, or nil if it is carried.
func (t *tunnelled) blind(r *http.Request) *problem {
	policy, why := "", "requests are counted, which TLS hides"
	if t.known.table != nil {
		policy, why = t.known.table().Blind(t.host)
	}
	if why == "" {
		return nil
	}

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

// hangUp ends the use of the upstream.
func (t *tunnelled) hangUp() {
	if t.upstream != nil {
		t.end()
		t.upstream = nil
	}
}

// carry does what the first bytes of the caller ask for.
func (t *tunnelled) carry(r *http.Request) {
	switch tls, err := t.caller.speaksTLS(); {
	case err != nil:
		return
	case !tls:
		t.hangUp() // a start that was spent for nothing, at port 443 only
		t.serveHTTP(r)
		return

	case t.upstream == nil:
		t.caller.asks.Store(true)
		ctx, stop := t.caller.untilLeft(r.Context())
		p := t.prepare(r.WithContext(ctx))
		if stop(); p != nil {
			t.caller.refuseTLS()
			return
		}
	}

	pipe := newPipe(t.caller, t.caller, t.upstream, tunnelQuiet)
	t.one.endBy(func() { pipe.endWhenQuiet(endQuiet) })
	pipe.run()
}

// serveHTTP serves the plain HTTP in a tunnel, under the bounds of the server that r has come to.
func (t *tunnelled) serveHTTP(r *http.Request) {
	server := &http.Server{
		Handler:           t.serve(t.authority),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(r.Context()) },
		ErrorLog:          log.New(io.Discard, "", 0), // of callers that do not keep to HTTP
		ReadHeaderTimeout: headerTime, IdleTimeout: unusedTime,
	}

	if outer, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		if outer.ErrorLog != nil { // a panic in a tunnel is told where the others are
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

	listener := &single{conn: t.caller, stop: make(chan struct{})}
	t.one.endBy(func() { go server.Shutdown(context.WithoutCancel(r.Context())) })
	_ = server.Serve(listener)
	if !listener.given { // it was shut down before
		t.caller.Close()
	}

	<-t.caller.closed
}
