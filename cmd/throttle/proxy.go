package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/proxy"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/waitapi"
)

// A sidecar is a proxy that is served.
type sidecar struct {
	at      server
	listen  string
	expose  bool
	maxWait time.Duration
	held    int
	private []string
	permits time.Duration // how long they last at most
	waiting *waitapi.Handler

	hosts atomic.Pointer[func(host string) bool] // of the policies in force
	mu    sync.Mutex                             // is held while talk is written to
	talk  io.Writer
}

func newProxy() *cobra.Command {
	s := &sidecar{}
	c := &cobra.Command{
		Use:   "proxy FILE",
		Short: "Hold the requests of programs in other languages",
		Long: "Serve a proxy that holds requests until the policies of FILE have room for them.\n" +
			"Programs reach https://api.example.com/v1 by the base URL http://127.0.0.1:7070/api.example.com/v1.\n" +
			"With --redis all proxies and programs share the budgets.",
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s.talk = c.ErrOrStderr()
			return s.run(c.Context(), args[0])
		},
	}
	s.at.addFlags(c)
	f := c.Flags()
	_ = f.MarkHidden("timeout") // --max-wait says how long a caller waits for Redis, too
	f.StringVar(&s.listen, "listen", "127.0.0.1:7070", "where to listen")
	f.BoolVar(&s.expose, "expose", false, "listen at an address that other machines reach: each of them can then send requests")
	f.DurationVar(&s.maxWait, "max-wait", proxy.DefaultMaxWait, "how long a request is held at most; callers ask for less with \"Prefer: wait=2\"")
	f.IntVar(&s.held, "held", proxy.DefaultHeld, "how many requests are held at once at most")
	f.DurationVar(&s.permits, "permit-lifetime", waitapi.DefaultMaxLifetime, "how long a permit of the waiting API lasts at most that is not released; callers ask for more than a minute")
	f.StringSliceVar(&s.private, "private", nil, "a host of the file, without a port, that may be at a private address")
	return c
}

// run serves until ctx ends, or until the process is told to end.
func (s *sidecar) run(ctx context.Context, path string) error {
	switch {
	case path == "-":
		return errors.New("proxy follows a file, and stdin is none")
	case s.maxWait <= 0:
		return errors.New("--max-wait: use more than 0")
	case s.held <= 0:
		return errors.New("--held: use 1 or more")
	case s.permits <= 0:
		return errors.New("--permit-lifetime: use more than 0")
	case !s.expose && !onLoopback(s.listen):
		return errors.New("--listen: other machines would reach this address, and could send requests: pass --expose as well")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	store, reporter, closeStore, err := s.open()
	if err != nil {
		return err
	}
	defer closeStore()
	handler, err := s.follow(ctx, path, store, reporter)
	if err != nil {
		return err
	}
	return s.serve(ctx, handler)
}

// onLoopback reports whether only this machine reaches an address.
func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// open returns the store of the budgets, and what reports to the fleet, if there is one.
func (s *sidecar) open() (store throttle.Store, reporter *fleet.Reporter, closeStore func(), err error) {
	if !s.at.hasAddress() {
		s.say("there is no --redis: the budgets are this process's own")
		return memstore.New(), nil, func() {}, nil
	}
	client, err := s.at.connect()
	if err != nil {
		return nil, nil, nil, err
	}
	inner := redisstore.New(client, &redisstore.Options{Namespace: s.at.namespace, HashTags: s.at.hashTags})
	reporter = fleet.Start(client, inner, &fleet.ReporterOptions{Namespace: s.at.namespace, Program: "throttle-proxy"})
	return reporter, reporter, func() {
		reporter.Close()
		client.Close()
	}, nil
}

// follow returns a handler under the policies of a file, as the file is now and becomes later.
func (s *sidecar) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (http.Handler, error) {
	transport, err := throttle.New(throttle.Config{Store: store, Base: proxy.NewBase(s.private...), Observe: s.observe})
	if err != nil {
		return nil, err
	}
	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Observe: s.observe})
	if err != nil {
		return nil, err
	}
	apply := func(f *policyfile.File) error {
		if err := errors.Join(transport.SetPolicies(f.Policies), limiters.SetPolicies(f.Policies)); err != nil {
			return err
		}
		hosts := proxy.Hosts(f.Policies)
		s.hosts.Store(&hosts)
		return nil
	}
	follower, err := policyfile.Follow(ctx, policyfile.Options{Path: path, Apply: apply, Report: s.report})
	if err != nil {
		return nil, err
	}
	if reporter != nil {
		pushed.Report(reporter, follower)
	}
	s.waiting, err = waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: s.maxWait, Held: s.held, MaxLifetime: s.permits})
	if err != nil {
		return nil, err
	}
	return proxy.New(proxy.Config{
		Transport: transport, Waiting: s.waiting, MaxWait: s.maxWait, Held: s.held, Local: onLoopback(s.listen),
		Hosts: func(host string) bool { return (*s.hosts.Load())(host) },
	})
}

// report tells of a file that has changed.
func (s *sidecar) report(state policyfile.State) {
	switch {
	case state.Err != nil:
		s.say("the file is not in force: " + state.Err.Error())
	case !state.Until.IsZero():
		s.say(fmt.Sprintf("%s loosens, and is in force in %s: %s", state.Seen, brief(time.Until(state.Until)), strings.Join(state.Loosens, "; ")))
	case state.InForce == state.Seen:
		s.say(state.InForce + " is in force")
	}
}

// observe tells of what an operator must know, without which limits are not kept.
func (s *sidecar) observe(_ context.Context, e throttle.Event) {
	if e.Kind == throttle.Illegible || e.Kind == throttle.FunctionFailed {
		s.say(e.Err.Error())
	}
}

// say writes a line to stderr.
func (s *sidecar) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.talk, "throttle: "+clean(line))
}

// How long a caller may take for its headers, how long it may keep a connection that it does not
// use, and how long answers may go on when the process ends. There is no bound for a whole
// request: some answers are streams.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	stopTime   = 10 * time.Second
)

// serve serves until ctx ends. Requests that are held then still have their time.
func (s *sidecar) serve(ctx context.Context, handler http.Handler) error {
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: log.New(io.Discard, "", 0), // which callers do not keep to HTTP
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.say("the proxy is at http://" + listener.Addr().String() + "/HOST/")
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.waiting.Close() // what its callers wait for could go on for long, and end without an answer
	ending, cancel := context.WithTimeout(context.Background(), s.maxWait+stopTime)
	defer cancel()
	if server.Shutdown(ending) != nil {
		server.Close() // streams that go on
	}
	return nil
}
