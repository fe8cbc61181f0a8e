package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// How long a caller may take for its headers, and how long it may keep a connection that it does
// not use. There is no bound for a whole request: some answers are streams.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// What a connection may cost: bytes of headers, and with HTTP/2 requests at once and bytes that
// nobody has read yet.
const (
	mostHeaders  = 64 << 10
	mostStreams  = 100
	mostReceived = 256 << 10
)

// adminConnections is how many connections may be open at the admin's address.
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

// run serves until ctx ends, or until the process gets SIGTERM.
func (v *service) run(ctx context.Context) error {
	told, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()

	door, err := listenAt(ctx, v.listen)
	if err != nil {
		return err
	}

	defer door.Close()
	v.door.Listener = door
	failed := make(chan error, 2+len(v.upstreams))

	if v.adminListen != "" {
		server, err := v.serveAdmin(ctx, failed)
		if err != nil {
			return err
		}
		defer server.Close()
	}

	// All addresses are taken before anything says where the proxy is: a supervisor may wait for that line.
	others, err := v.listenForUpstreams(ctx)
	if err != nil {
		return err
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
		first = context.WithoutCancel(ctx) // an interrupt has ended it; the next one ends the process
	}

	v.end(first, servers)
	return nil
}

// listenForUpstreams listens at the addresses of single hosts.
func (v *service) listenForUpstreams(ctx context.Context) ([]net.Listener, error) {
	listeners, errs := make([]net.Listener, len(v.upstreams)), make([]error, len(v.upstreams))
	for i, u := range v.upstreams {
		listeners[i], errs[i] = listenAt(ctx, u.address)
	}

	if err := errors.Join(errs...); err != nil {
		for _, l := range listeners {
			if l != nil {
				l.Close()
			}
		}
		return nil, err
	}

	return listeners, nil
}

// serveUpstreams serves the addresses of single hosts. What ends that is sent to failed. Their
// connections count as those of the proxy's own address.
func (v *service) serveUpstreams(listeners []net.Listener, failed chan<- error) (servers []*http.Server) {
	for i, u := range v.upstreams {
		server := v.server(v.handler.Upstream(u.host))
		servers = append(servers, server)
		go func() { failed <- server.Serve(&bounded{listeners[i], v.door.bound}) }()
		v.say(u.host + " is at " + shown(u.address, listeners[i].Addr(), "/"))
	}
	return servers
}

// end lets what goes on end, in the time for that. It is over at once when ctx ends.
func (v *service) end(ctx context.Context, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(ctx, v.stopTime)
	defer cancel()
	v.admin.stopping.Store(true)
	v.handler.Stop(v.stopTime / 2)

	if !v.shutdown(ctx, servers) {
		v.say("the time to stop is over: what went on was cut")
		for _, server := range servers {
			server.Close()
		}
	}
}

// shutdown lets all end side by side, and reports whether all has ended before ctx. The waiting API refuses
// its callers at once: what they wait for could go on for long, and end without an answer.
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

// server returns a server with bounds for what a caller may cost.
func (v *service) server(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for callers that begin with it; nobody is upgraded
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeaders,
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerConnection: mostReceived, WriteByteTimeout: max(0, v.callerIdle)},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    log.New(panics(v.say), "", 0),
	}
}

// serveAdmin serves the admin's paths. What ends that is sent to failed.
func (v *service) serveAdmin(ctx context.Context, failed chan<- error) (*http.Server, error) {
	listener, err := listenAt(ctx, v.adminListen)
	if err != nil {
		return nil, err
	}
	server := v.server(v.admin.handler())
	server.ReadTimeout, server.WriteTimeout = headerTime, time.Minute
	go func() { failed <- server.Serve(&bounded{listener, &bound{most: adminConnections}}) }()
	go v.admin.ask() // from now on it is known which budgets are used
	v.say("the admin is at " + shown(v.adminListen, listener.Addr(), "/readyz"))
	return server, nil
}

// shown returns where something is served, for a person.
func shown(listen string, at net.Addr, path string) string {
	if strings.HasPrefix(listen, unixPrefix) {
		return listen + ", path " + path
	}
	return "http://" + at.String() + path
}

// panics is the log of a server: it passes on where a panic was, without its value, which may repeat
// something of a request. What else a server logs tells of callers that do not keep to HTTP.
type panics func(line string)

// Write implements [io.Writer].
func (say panics) Write(text []byte) (int, error) {
	if head, stack, ok := bytes.Cut(text, []byte("\n")); ok && bytes.Contains(head, []byte("panic serving")) {
		say("a request ended in a panic, which is a mistake in throttle:\n" + string(stack))
	}
	return len(text), nil
}
