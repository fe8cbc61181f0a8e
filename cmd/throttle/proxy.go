package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	listening
	at      server
	maxWait time.Duration
	held    int
	private []string
	permits time.Duration // how long they last at most
	waiting *waitapi.Handler

	table   atomic.Pointer[proxy.Table] // of the policies in force
	outside atomic.Int64                // how many links of answers have led round the proxy
	once    firsts                      // what stderr says once
	mu      sync.Mutex                  // is held while talk is written to
	talk    io.Writer
}

func newProxy() *cobra.Command {
	s := &sidecar{}
	c := &cobra.Command{
		Use:   "proxy FILE",
		Short: "Hold the requests of programs in other languages",
		Long: "Serve a proxy that holds requests until the policies of FILE have room for them.\n" +
			"Programs reach https://api.example.com/v1 by the base URL http://127.0.0.1:7070/api.example.com/v1,\n" +
			"or by http://api.example.com/v1 with HTTP_PROXY=http://127.0.0.1:7070, or by an --upstream.\n" +
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
	s.listening.addFlags(c)
	f.DurationVar(&s.maxWait, "max-wait", proxy.DefaultMaxWait, "how long a request is held at most; callers ask for less with \"Prefer: wait=2\"")
	f.IntVar(&s.held, "held", proxy.DefaultHeld, "how many requests are held at once at most")
	f.DurationVar(&s.permits, "permit-lifetime", waitapi.DefaultMaxLifetime, "how long a permit of the waiting API lasts at most that is not released; callers ask for more than a minute")
	f.StringSliceVar(&s.private, "private", nil, "a host of the file, without a port, that may be at a private address")
	return c
}

// run serves until ctx ends, or until the process is told to end.
func (s *sidecar) run(ctx context.Context, path string) error {
	if err := errors.Join(s.mistakes(path)...); err != nil {
		return err
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

// mistakes returns all that is wrong with the flags.
func (s *sidecar) mistakes(path string) (all []error) {
	note := func(wrong bool, text string) {
		if wrong {
			all = append(all, errors.New(text))
		}
	}
	note(path == "-", "proxy follows a file, and stdin is none")
	note(s.maxWait <= 0, "--max-wait: use more than 0")
	note(s.held <= 0, "--held: use 1 or more")
	note(s.permits <= 0, "--permit-lifetime: use more than 0")
	return append(all, s.wrongAddresses()...)
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
func (s *sidecar) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (*proxy.Handler, error) {
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
		s.use(proxy.NewTable(f.Policies))
		return nil
	}
	follower, err := policyfile.Follow(ctx, policyfile.Options{Path: path, Apply: apply, Report: s.report})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.missing(s.table.Load())...); err != nil {
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
		Table: s.table.Load, Tunnels: s.maxTunnels(), OutsideLink: s.tellOutside, BlindTunnel: s.tellBlind,
	})
}

// use puts a table in force, and tells of the addresses whose hosts it does not have.
func (s *sidecar) use(table *proxy.Table) {
	if s.table.Swap(table) == nil {
		return // at the start that is a mistake
	}
	for _, err := range s.missing(table) {
		s.say(err.Error() + " any more, and requests to the address are refused")
	}
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

// tellOutside tells of a link that leads round the proxy.
func (s *sidecar) tellOutside(host string) {
	s.outside.Add(1)
	s.sayOnce("an answer has a link to " + fleet.Clean(host, longestHost) + ", which leads round the proxy: a program that follows it is not held there")
}

// tellBlind tells of a tunnel that is refused.
func (s *sidecar) tellBlind(detail string) { s.sayOnce("a tunnel of TLS is refused: " + detail) }

// sayOnce writes a line to stderr, unless it stands there already.
func (s *sidecar) sayOnce(line string) {
	if s.once.add(line) {
		s.say(line)
	}
}

// longestHost is how long the name of a host may be.
const longestHost = 255

// serve serves until ctx ends. Requests that are held then still have their time.
func (s *sidecar) serve(ctx context.Context, handler *proxy.Handler) error {
	services, err := s.listening.open(handler)
	if err != nil {
		return err
	}
	served := make(chan error, len(services))
	for _, p := range services {
		go func() { served <- p.server.Serve(p.Listener) }()
		s.say(p.told)
	}
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	s.waiting.Close() // what its callers wait for could go on for long, and end without an answer
	ending, cancel := context.WithTimeout(context.Background(), s.maxWait+stopTime)
	defer cancel()
	shutdown(ending, handler, services)
	return err
}
