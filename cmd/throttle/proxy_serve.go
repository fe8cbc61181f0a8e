package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/servers/proxy"
)

// Time limits for reading headers, and for idle connections. Whole requests are
// not limited: some answers are streams.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// Memory limits of a connection: bytes of headers, and for HTTP/2 concurrent
// requests and unread bytes.
const (
	mostHeaders  = 64 << 10
	mostStreams  = 100
	mostReceived = 256 << 10
)

// adminConnections bounds the connections to the admin's address.
const adminConnections = 64

// listenAndServe listens, and serves until ctx ends, or until SIGTERM.
func (s *proxyServer) listenAndServe(ctx context.Context) error {
	door, err := listenAt(ctx, s.listen)
	if err != nil {
		return err
	}
	return s.serveAt(ctx, door)
}

// serveAt serves the proxy at a listener, and the upstream addresses, until ctx ends or SIGTERM comes, and closes the listeners.
// An address at which it cannot listen is an error.
func (s *proxyServer) serveAt(ctx context.Context, door net.Listener) error {
	defer door.Close()
	s.door.Listener = door

	// Listen at all addresses before printing one: a supervisor may wait for that line.
	others, err := s.listenForUpstreams(ctx)
	if err != nil {
		return err
	}
	defer closeAll(others)

	var servers []*http.Server
	begin := func(fail context.CancelCauseFunc) {
		server := s.server(s.handler, s.callerIdle)
		go func() { fail(server.Serve(&s.door)) }()
		s.say("the proxy is at " + shown(s.listen, door.Addr(), "/HOST/"))
		servers = append(s.serveUpstreams(others, fail), server)
	}

	return s.serve(ctx, begin, func(ctx context.Context) { s.end(ctx, servers) })
}

// listenForUpstreams listens at the addresses of --upstream, in their order. If it fails at one, it returns all errors and listens
// at none.
func (s *proxyServer) listenForUpstreams(ctx context.Context) ([]net.Listener, error) {
	listeners, errs := make([]net.Listener, len(s.upstreams)), make([]error, len(s.upstreams))

	// Try all addresses, so that all mistakes are reported at once.
	for i, u := range s.upstreams {
		listeners[i], errs[i] = listenAt(ctx, u.address)
	}

	if err := errors.Join(errs...); err != nil {
		closeAll(listeners)
		return nil, err
	}

	return listeners, nil
}

// closeAll closes listeners, some of which may be nil.
func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			l.Close()
		}
	}
}

// serveUpstreams begins to serve the addresses of --upstream, prints them, and tells fail of errors. Their connections count
// towards the limit of the proxy's own address.
func (s *proxyServer) serveUpstreams(listeners []net.Listener, fail context.CancelCauseFunc) (servers []*http.Server) {
	for i, u := range s.upstreams {
		server := s.server(s.handler.Upstream(u.host), s.callerIdle)
		servers = append(servers, server)
		go func() { fail(server.Serve(&bounded{listeners[i], s.door.bound})) }()
		s.say(u.host + " is at " + shown(u.address, listeners[i].Addr(), "/"))
	}
	return servers
}

// end stops the servers: requests that wait in the proxy may start in the first half of --stop-time. When ctx ends, it cuts all
// connections that remain.
func (s *proxyServer) end(ctx context.Context, servers []*http.Server) {
	// The second half is for answers in progress.
	s.handler.Stop(s.stopTime / 2)

	if !s.shutdown(ctx, servers) {
		s.say("the time to stop is over: what went on was cut")
		for _, server := range servers {
			server.Close()
		}
	}
}

// shutdown ends the servers, the tunnels and the waiting API in parallel, and reports whether all ended without an error before
// ctx did.
func (s *proxyServer) shutdown(ctx context.Context, servers []*http.Server) bool {
	// The waiting API refuses its callers now and releases their permits: a caller that still waited when ctx ends would be cut off
	// without an answer.
	ends := []func(context.Context) error{s.handler.Shutdown, s.waiting.Close}
	for _, server := range servers {
		ends = append(ends, server.Shutdown)
	}

	var ending sync.WaitGroup
	var failed atomic.Bool
	for _, end := range ends {
		ending.Go(func() {
			if end(ctx) != nil {
				failed.Store(true)
			}
		})
	}

	ending.Wait()
	return !failed.Load()
}

// server returns a server for a handler, which limits the cost of a caller. A caller may stop reading for callerIdle, or
// for any time if callerIdle is negative. The log of the server goes to s.say, through panics.
func (s *sidecar) server(handler http.Handler, callerIdle time.Duration) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // without an upgrade
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeaders,
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerConnection: mostReceived, WriteByteTimeout: max(0, callerIdle)},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    log.New(panics(s.say), "", 0),
	}
}

// serveAdmin begins to serve the admin's paths, and prints their address. A later error goes to fail.
func (s *sidecar) serveAdmin(ctx context.Context, fail context.CancelCauseFunc) (*http.Server, error) {
	listener, err := listenAt(ctx, s.adminListen)
	if err != nil {
		return nil, err
	}
	server := s.server(s.admin.handler(), proxy.DefaultCallerIdle)
	server.ReadTimeout, server.WriteTimeout = headerTime, time.Minute
	go func() { fail(server.Serve(&bounded{listener, &bound{most: adminConnections}})) }()
	go s.admin.ask() // from the first question on, the transport records which budgets are used
	s.say("the admin is at " + shown(s.adminListen, listener.Addr(), "/readyz"))
	return server, nil
}

// shown returns where a path is served, in readable form. listen is the address in the flag, at the listener's own.
func shown(listen string, at net.Addr, path string) string {
	if strings.HasPrefix(listen, unixPrefix) {
		return listen + ", path " + path
	}
	return "http://" + at.String() + path
}

// panics is the log of a server. It forwards where a panic was, without its value, which may repeat parts of
// a request. It drops all further lines, which are about callers that break HTTP.
type panics func(line string)

// Write implements [io.Writer].
func (say panics) Write(text []byte) (int, error) {
	if head, stack, ok := bytes.Cut(text, []byte("\n")); ok && bytes.Contains(head, []byte("panic serving")) {
		say("a request ended in a panic, which is a mistake in throttle:\n" + string(stack))
	}
	return len(text), nil
}

// An upstreamAt is an address that serves one host.
type upstreamAt struct{ address, host string }

// upstreamsOf parses the flags --upstream, and returns all mistakes. taken is the address of --listen, expose says that --expose is
// set.
func upstreamsOf(flags []string, taken string, expose bool) (all []upstreamAt, wrong mistakes) {
	addresses := []string{taken}
	for _, text := range flags {
		end := max(0, strings.LastIndexByte(text, '='))
		u := upstreamAt{text[:end], strings.TrimPrefix(text[end:], "=")}
		note := func(is bool, what string) bool { return wrong.note(is, "--upstream "+text+": "+what) }
		isMalformed := note(u.host == "" || !isAddress(u.address), "use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com")
		if isMalformed {
			continue
		}

		note(!expose && isExposed(u.address), "other machines would reach this address, and could send requests: pass --expose as well")
		note(strings.ContainsAny(u.host, "/@?#* "), "what follows = is a host, without a scheme and without a path")

		// Port 0 is a free port, which differs each time.
		note(slices.Contains(addresses, u.address) && !strings.HasSuffix(u.address, ":0"), "another flag has this address")
		all, addresses = append(all, u), append(addresses, u.address)
	}

	return all, wrong
}

// isAddress reports whether an address has the form "host:port", or "unix:" and a path.
func isAddress(s string) bool {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		return path != ""
	}
	_, _, err := net.SplitHostPort(s)
	return err == nil
}

// missing returns an error for each upstream whose host a table does not have.
func missing(all []upstreamAt, table *proxy.Table) (mistakes []error) {
	for _, u := range all {
		if !table.Has(u.host) {
			mistakes = append(mistakes, fmt.Errorf("--upstream %s=%s: no policy of the file names this host", u.address, u.host))
		}
	}
	return mistakes
}
