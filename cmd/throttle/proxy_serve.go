package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/servers/waitapi"
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

// A service is a proxy that is ready to be served.
type service struct {
	listen, adminListen string
	handler             *proxy.Handler
	waiting             *waitapi.Handler
	admin               *admin
	upstreams           []upstreamAt
	stopTime            time.Duration
	callerIdle          time.Duration
	say                 func(line string)

	door bounded // at listen
}

// run listens, and serves until ctx ends, or until SIGTERM.
func (v *service) run(ctx context.Context) error {
	door, err := listenAt(ctx, v.listen)
	if err != nil {
		return err
	}
	return v.serve(ctx, door)
}

// serve serves a listener until ctx ends, or until SIGTERM, and closes it.
func (v *service) serve(ctx context.Context, door net.Listener) error {
	told, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()
	defer door.Close()

	v.door.Listener = door
	// There is room for the error of each server, so that none blocks after the first.
	failed := make(chan error, 2+len(v.upstreams))

	// Listen at all addresses before printing one: a supervisor may wait for that line.
	others, err := v.listenForUpstreams(ctx)
	if err != nil {
		return err
	}
	defer closeAll(others)

	if v.adminListen != "" {
		server, err := v.serveAdmin(ctx, failed)
		if err != nil {
			return err
		}
		defer server.Close()
	}

	server := v.server(v.handler)
	go func() { failed <- server.Serve(&v.door) }()
	v.say("the proxy is at " + shown(v.listen, door.Addr(), "/HOST/"))
	servers := append(v.serveUpstreams(others, failed), server)

	select {
	case err := <-failed:
		return err
	case <-told.Done():
	}

	restore() // the next SIGTERM ends the process
	first := ctx
	if ctx.Err() != nil {
		first = context.WithoutCancel(ctx) // ended by an interrupt; the next interrupt ends the process
	}

	v.end(first, servers)
	return nil
}

// listenForUpstreams listens at the addresses of single hosts.
func (v *service) listenForUpstreams(ctx context.Context) ([]net.Listener, error) {
	listeners, errs := make([]net.Listener, len(v.upstreams)), make([]error, len(v.upstreams))
	// Try all addresses, so that all mistakes are reported at once.
	for i, u := range v.upstreams {
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

// serveUpstreams serves the addresses of single hosts, and sends errors to failed. Their connections count
// towards the limit of the proxy's own address.
func (v *service) serveUpstreams(listeners []net.Listener, failed chan<- error) (servers []*http.Server) {
	for i, u := range v.upstreams {
		server := v.server(v.handler.Upstream(u.host))
		servers = append(servers, server)
		go func() { failed <- server.Serve(&bounded{listeners[i], v.door.bound}) }()
		v.say(u.host + " is at " + shown(u.address, listeners[i].Addr(), "/"))
	}
	return servers
}

// end stops gracefully, within stopTime. It stops at once when ctx ends.
func (v *service) end(ctx context.Context, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(ctx, v.stopTime)
	defer cancel()
	// Fail the readiness probe first.
	v.admin.stopping.Store(true)
	// The second half of the time is for answers in progress.
	v.handler.Stop(v.stopTime / 2)

	if !v.shutdown(ctx, servers) {
		v.say("the time to stop is over: what went on was cut")
		for _, server := range servers {
			server.Close()
		}
	}
}

// shutdown stops all servers in parallel, and reports whether they ended before ctx. The waiting API refuses
// its callers at once: their waits could last long, and would end without an answer.
func (v *service) shutdown(ctx context.Context, servers []*http.Server) bool {
	ends := []func(context.Context) error{v.handler.Shutdown, v.waiting.Close}
	for _, server := range servers {
		ends = append(ends, server.Shutdown)
	}

	var ending sync.WaitGroup
	var cut atomic.Bool
	for _, end := range ends {
		ending.Go(func() {
			if end(ctx) != nil {
				cut.Store(true)
			}
		})
	}

	ending.Wait()
	return !cut.Load()
}

// server returns a server that limits the cost of a caller.
func (v *service) server(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // without an upgrade
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeaders,
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerConnection: mostReceived, WriteByteTimeout: max(0, v.callerIdle)},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    log.New(panics(v.say), "", 0),
	}
}

// serveAdmin serves the admin's paths, and sends errors to failed.
func (v *service) serveAdmin(ctx context.Context, failed chan<- error) (*http.Server, error) {
	listener, err := listenAt(ctx, v.adminListen)
	if err != nil {
		return nil, err
	}
	server := v.server(v.admin.handler())
	server.ReadTimeout, server.WriteTimeout = headerTime, time.Minute
	go func() { failed <- server.Serve(&bounded{listener, &bound{most: adminConnections}}) }()
	go v.admin.ask() // starts recording which budgets are used
	v.say("the admin is at " + shown(v.adminListen, listener.Addr(), "/readyz"))
	return server, nil
}

// shown returns where something is served, in readable form.
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

// upstreamsOf parses the flags --upstream, and returns all mistakes. taken is the address of --listen.
func upstreamsOf(flags []string, taken string, expose bool) (all []upstreamAt, mistakes []error) {
	addresses := []string{taken}
	for _, text := range flags {
		end := max(0, strings.LastIndexByte(text, '='))
		u := upstreamAt{text[:end], strings.TrimPrefix(text[end:], "=")}
		note := func(wrong bool, what string) bool {
			if wrong {
				mistakes = append(mistakes, fmt.Errorf("--upstream %s: %s", text, what))
			}
			return wrong
		}
		if note(u.host == "" || !isAddress(u.address), "use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com") {
			continue
		}

		note(!expose && isExposed(u.address), "other machines would reach this address, and could send requests: pass --expose as well")
		note(strings.ContainsAny(u.host, "/@?#* "), "what follows = is a host, without a scheme and without a path")
		note(slices.Contains(addresses, u.address) && !strings.HasSuffix(u.address, ":0"), "another flag has this address")
		all, addresses = append(all, u), append(addresses, u.address)
	}

	return all, mistakes
}

// isAddress reports whether the proxy can listen at an address.
func isAddress(s string) bool {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		return path != ""
	}
	_, _, err := net.SplitHostPort(s)
	return err == nil
}

// missing returns an error per upstream whose host a table lacks.
func missing(all []upstreamAt, table *proxy.Table) (mistakes []error) {
	for _, u := range all {
		if !table.Has(u.host) {
			mistakes = append(mistakes, fmt.Errorf("--upstream %s=%s: no policy of the file names this host", u.address, u.host))
		}
	}
	return mistakes
}

// firsts are texts that are reported once.
type firsts struct {
	mu   sync.Mutex
	told map[string]bool
}

// mostFirsts bounds the texts: callers and upstreams can cause any number.
const mostFirsts = 100

// add reports whether a text is new.
func (f *firsts) add(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[text] || len(f.told) >= mostFirsts {
		return false
	}
	if f.told == nil {
		f.told = make(map[string]bool)
	}
	f.told[text] = true
	return true
}
