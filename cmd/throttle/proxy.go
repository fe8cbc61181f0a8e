package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/servers/waitapi"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// proxyTokenVariable is the environment variable with the proxy's token, used
// without --token-file.
const proxyTokenVariable = "THROTTLE_PROXY_TOKEN"

// Defaults of the proxy.
const (
	defaultListen      = "127.0.0.1:7070"
	defaultConnections = 1024
	defaultStopTime    = 20 * time.Second
)

// A sidecar is the proxy command: its flags, and the state that serves them.
type sidecar struct {
	program                        string // name in reports to the fleet
	at                             server
	listen, admin                  string // admin is "" for none
	expose, noToken, budgetMetrics bool
	tokenFile, token               string
	upstreamFlags                  []string
	upstreams                      []upstreamAt
	tunnels                        int
	maxWait, stopTime, callerIdle  time.Duration
	held, perBudget, connections   int
	private                        []string
	permits                        time.Duration // longest lifetime of permits
	followHosts                    string        // policy file that bounds pushed files
	ceiling                        *policyfile.File
	penalties                      time.Duration // longest penalty by a permit's caller, 0 for none

	// Of throttle run, and zero for throttle proxy.
	budgets string                                   // directory of the budgets without Redis
	watch   func(context.Context, throttle.Event)    // for the page
	extend  func(*policyfile.File) []throttle.Policy // returns the rows in force for a file
	standby func(context.Context) ([]byte, error)    // returns a file in place of none

	table   atomic.Pointer[proxy.Table] // of the policies in force
	metrics *promthrottle.Metrics
	once    firsts // lines that stderr has had
	news    news
	mu      sync.Mutex // guards talk
	talk    io.Writer
}

func newProxy() *cobra.Command {
	c, _ := newProxyWith()
	return c
}

// newProxyWith also returns the values of the flags.
func newProxyWith() (*cobra.Command, *sidecar) {
	s := &sidecar{program: "throttle-proxy", metrics: promthrottle.New(), news: news{now: time.Now}}
	c := &cobra.Command{
		Use: "proxy [FILE]",
		Example: `  throttle proxy policies.yaml
  throttle proxy policies.yaml --redis redis://127.0.0.1:6379`,
		Short: "Hold the requests of programs in other languages",
		Long: "Serve a proxy that holds requests until the policies of FILE have room for them.\n" +
			"Programs reach https://api.example.com/v1 by the base URL http://127.0.0.1:7070/api.example.com/v1,\n" +
			"or by http://api.example.com/v1 with HTTP_PROXY=http://127.0.0.1:7070, or by an --upstream.\n" +
			"With --redis all proxies and programs share the budgets. Without FILE the proxy follows the file that is pushed there.",
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s.talk = c.ErrOrStderr()
			return s.run(c.Context(), strings.Join(args, ""))
		},
	}

	s.at.addFlags(c)
	f := c.Flags()
	_ = f.MarkHidden("timeout") // --max-wait limits the wait for Redis, too
	f.StringVar(&s.listen, "listen", defaultListen, "address to listen at, or unix:/path/to/socket, which only this user may use")
	f.StringArrayVar(&s.upstreamFlags, "upstream", nil, "address that serves a single host of the file, such as 127.0.0.1:7071=api.example.com; may be repeated")
	f.BoolVar(&s.expose, "expose", false, "allow an address that other machines can reach; needs a token")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the token that callers must send; by default the token, if any, is in "+proxyTokenVariable)
	f.BoolVar(&s.noToken, "no-token", false, "allow --expose without a token; each machine that reaches the address may send requests")
	f.StringVar(&s.admin, "admin", "", "address that serves /livez, /readyz, /upstreams and /metrics, such as 127.0.0.1:7079 (default none)")
	f.BoolVar(&s.budgetMetrics, "budget-metrics", false, "add metrics of the budgets; each scrape asks Redis, so set it in few proxies of a fleet")
	f.DurationVar(&s.maxWait, "max-wait", proxy.DefaultMaxWait, "maximum time that a request is held; callers can shorten it with \"Prefer: wait=2\"")
	f.DurationVar(&s.stopTime, "stop-time", defaultStopTime, "maximum time that the proxy takes to stop; waiting requests can still start in the first half")
	f.DurationVar(&s.callerIdle, "caller-idle", proxy.DefaultCallerIdle, "maximum time that a caller may stall while it sends its body or reads its answer")
	f.IntVar(&s.held, "held", proxy.DefaultHeld, "maximum number of requests held at once, and of MiB for their bodies")
	f.IntVar(&s.perBudget, "held-per-budget", proxy.DefaultHeldPerBudget, "maximum number of requests held at once for one budget")
	f.IntVar(&s.tunnels, "tunnels", proxy.DefaultTunnels, "maximum number of open tunnels of programs with HTTP_PROXY; 0 refuses all tunnels")
	f.IntVar(&s.connections, "connections", defaultConnections, "maximum number of open connections of callers")
	f.DurationVar(&s.permits, "permit-lifetime", waitapi.DefaultMaxLifetime, "maximum lifetime of a permit of the waiting API that is not released; callers that ask for no lifetime get a minute")
	f.StringVar(&s.followHosts, "follow-hosts", "", "without FILE: file of policies that bounds the pushed files; they may name only hosts of this file, and make only keys that this file makes")
	f.DurationVar(&s.penalties, "permit-penalty-max", waitapi.DefaultMaxPenalty, "maximum time for which /v1/penalize of the waiting API closes a budget; 0 refuses the call")
	f.StringSliceVar(&s.private, "private", nil, "host of the file, without a port, that may have a private address")

	return c, s
}

// check reports all unsafe or meaningless flags at once, and reads the token.
func (s *sidecar) check(path string) error {
	var mistakes []error
	note := func(wrong bool, text string) {
		if wrong {
			mistakes = append(mistakes, errors.New(text))
		}
	}

	note(path == "-", "proxy follows a file, and stdin is none")
	note(path != "" && s.followHosts != "", "--follow-hosts bounds what is pushed, and FILE is followed")
	note(path == "" && !s.at.hasAddress(), "there is no FILE, and no --redis into which one is pushed")
	note(s.maxWait <= 0, "--max-wait: use more than 0")
	note(s.stopTime <= 0, "--stop-time: use more than 0")
	note(s.callerIdle <= 0, "--caller-idle: use more than 0")
	note(s.held <= 0, "--held: use 1 or more")
	note(s.perBudget <= 0, "--held-per-budget: use 1 or more")
	note(s.connections <= 0, "--connections: use 1 or more")
	note(s.permits <= 0, "--permit-lifetime: use more than 0")
	note(s.penalties < 0, "--permit-penalty-max: use 0 or more")
	note(s.tunnels < 0, "--tunnels: use 0 or more")

	for _, host := range s.private {
		// An IPv6 address has colons, and is a host.
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		note(err != nil && strings.ContainsAny(host, ":/"), "--private "+host+": use a host, without a scheme, a port and a path")
	}

	note(!s.expose && isExposed(s.listen), "--listen: other machines would reach this address, and could send requests: pass --expose as well")
	note(!s.expose && s.admin != "" && isExposed(s.admin), "--admin: other machines would reach this address, which needs no token: pass --expose as well")
	upstreams, wrong := upstreamsOf(s.upstreamFlags, s.listen, s.expose)
	s.upstreams, mistakes = upstreams, append(mistakes, wrong...)

	var err error
	if s.followHosts != "" {
		if s.ceiling, err = policyfile.Load(s.followHosts); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--follow-hosts: %w", err))
		}
	}

	// Whether the addresses are safe depends on the token, so stop here without it.
	if s.token, err = readToken(s.tokenFile, proxyTokenVariable); err != nil {
		return errors.Join(append(mistakes, err)...)
	}

	note(s.expose && len(s.exposed()) > 0 && s.token == "" && !s.noToken, "--expose: each machine that reaches the address could send requests: set --token-file or "+proxyTokenVariable+", or pass --no-token")
	return errors.Join(mistakes...)
}

// exposed returns the addresses that other machines reach.
func (s *sidecar) exposed() (all []string) {
	for _, u := range append([]upstreamAt{{address: s.listen}}, s.upstreams...) {
		if isExposed(u.address) {
			all = append(all, u.address)
		}
	}
	return all
}

// run serves until ctx ends, or until SIGTERM.
func (s *sidecar) run(ctx context.Context, path string) error {
	if err := s.check(path); err != nil {
		return err
	}

	store, reporter, closeStore, err := s.open()
	if err != nil {
		return err
	}
	defer closeStore()

	// Deferred after closeStore: the follower ends before its store is closed.
	following, stop := context.WithCancel(ctx)
	defer stop()

	served, err := s.follow(following, path, store, reporter)
	if err != nil {
		return err
	}

	return served.run(ctx)
}

// open returns the store of the budgets, and the reporter to the fleet, if there is one.
func (s *sidecar) open() (store throttle.Store, reporter *fleet.Reporter, closeStore func(), err error) {
	if !s.at.hasAddress() && s.budgets != "" {
		store, err := filestore.New(s.budgets, filestore.Options{})
		return store, nil, func() {}, err
	}
	if !s.at.hasAddress() {
		s.say("there is no --redis: the budgets are this process's own")
		return memstore.New(), nil, func() {}, nil
	}

	client, err := s.at.connect()
	if err != nil {
		return nil, nil, nil, err
	}

	inner := redisstore.New(client, redisstore.Options{Namespace: s.at.namespace, HashTags: s.at.hashTags})
	reporter, err = fleet.Start(client, inner, fleet.ReporterOptions{Namespace: s.at.namespace, Program: s.program})
	if err != nil {
		client.Close()
		return nil, nil, nil, err
	}

	// The reporter removes its record with the client, so it is closed first.
	return reporter, reporter, func() {
		reporter.Close()
		client.Close()
	}, nil
}

// follow returns a service whose policies follow a file, or the pushed file.
func (s *sidecar) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (*service, error) {
	observers := []func(context.Context, throttle.Event){proxy.Observe, s.metrics.Observe, s.observe}
	if s.watch != nil {
		observers = append(observers, s.watch)
	}
	observe := throttle.Observers(observers...)

	transport, err := throttle.New(throttle.Config{Store: store, Base: proxy.NewBase(s.private...), Observe: observe})
	if err != nil {
		return nil, err
	}

	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Observe: observe})
	if err != nil {
		return nil, err
	}

	s.metrics.Follow(transport, limiters)
	// In the flags 0 means none. In the packages 0 means the default, and a negative number means none.
	waiting, err := waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: s.maxWait, Held: s.held, MaxLifetime: s.permits, MaxPenalty: cmp.Or(s.penalties, -1)})
	if err != nil {
		return nil, err
	}

	handler, err := proxy.New(proxy.Config{
		OutsideLink: s.tellOutside, BlindTunnel: s.tellBlind, Tunnels: cmp.Or(s.tunnels, -1),
		Transport: transport, Waiting: waiting, Table: s.table.Load, Token: s.token, Local: !isExposed(s.listen),
		MaxWait: s.maxWait, Held: s.held, HeldPerBudget: s.perBudget, CallerIdle: s.callerIdle, LetIn: letIn,
	})
	if err != nil {
		return nil, err
	}

	follower, err := s.followFile(ctx, path, reporter, func(f *policyfile.File) error {
		policies, named := f.Policies, f.ForLimiters()
		if s.extend != nil {
			policies = s.extend(f)
			named = throttle.WithoutAnswers(append(slices.Clone(policies), f.Named...))
		}

		// Set the policies before the table: no host may be reachable before its limits are in force.
		if err := errors.Join(transport.SetPolicies(policies), limiters.SetPolicies(named)); err != nil {
			return err
		}

		s.use(proxy.NewTable(policies, f.Tunnels...))
		s.tellTunnels(f.Tunnels)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Only now the hosts of the first file are known.
	if err := errors.Join(missing(s.upstreams, s.table.Load())...); err != nil {
		return nil, err
	}

	v := s.service(handler, transport, follower)
	v.waiting = waiting
	return v, nil
}

// followFile follows a file or, if path is "", the pushed file.
func (s *sidecar) followFile(ctx context.Context, path string, reporter *fleet.Reporter, apply func(*policyfile.File) error) (*policyfile.Follower, error) {
	options := policyfile.Options{Path: path, Apply: apply, Report: s.report, Ceiling: s.ceiling}
	if path == "" && s.standby != nil {
		options.Name, options.Read = "no file", s.standby
	}
	if path == "" && s.standby == nil {
		follower, err := pushed.Follow(ctx, reporter, options)
		return follower, withExitCode(err)
	}
	follower, err := policyfile.Follow(ctx, options)
	if err == nil && reporter != nil {
		pushed.Report(reporter, follower)
	}
	return follower, err
}

// service returns the service of a handler.
func (s *sidecar) service(handler *proxy.Handler, transport *throttle.Transport, follower *policyfile.Follower) *service {
	registry := prometheus.NewRegistry()
	v := &service{
		listen: s.listen, adminListen: s.admin, handler: handler, upstreams: s.upstreams, door: bounded{bound: &bound{most: int64(s.connections)}}, stopTime: s.stopTime, callerIdle: s.callerIdle, say: s.say,
		admin: &admin{
			statuses: transport.Statuses, file: follower.State, metrics: registry, local: !isExposed(s.admin) && !strings.HasPrefix(s.admin, unixPrefix),
			policies: func() []throttle.Policy { return follower.File().All() },
		},
	}

	registry.MustRegister(s.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&proxyMetrics{handler, &v.door, func() bool { return follower.State().Err == nil }})
	if s.budgetMetrics {
		registry.MustRegister(promthrottle.Budgets(transport))
	}
	if isLoose(s.tokenFile) {
		s.say(looseWarning(s.tokenFile))
	}
	if at := s.exposed(); len(at) > 0 && s.token == "" {
		s.say("WARNING: there is no token, and each machine that reaches " + strings.Join(at, ", ") + " can send requests")
	}

	return v
}

// use puts a table in force, and warns of upstream addresses whose hosts it lacks.
func (s *sidecar) use(table *proxy.Table) {
	if s.table.Swap(table) == nil {
		return // a mistake at the start, reported by follow
	}
	for _, err := range missing(s.upstreams, table) {
		s.say(err.Error() + " any more, and requests to the address are refused")
	}
}

// report prints changes of the policy file.
func (s *sidecar) report(state policyfile.State) {
	switch {
	case state.Err != nil && state.Seen == state.InForce:
		s.say("the file cannot be read, and " + state.InForce + " stays in force: " + state.Err.Error())
	case state.Err != nil:
		s.say(state.Seen + " is not in force, and " + state.InForce + " stays: " + state.Err.Error())
	case !state.Until.IsZero():
		s.say(fmt.Sprintf("%s loosens, and is in force in %s: %s", state.Seen, brief(time.Until(state.Until)), strings.Join(state.Loosens, "; ")))
	case state.InForce == state.Seen:
		s.say(state.InForce + " is in force")
	}
}

// observe prints events that an operator must know: limits that are not kept, and programs that stand still.
func (s *sidecar) observe(_ context.Context, e throttle.Event) {
	if line := s.news.of(e); line != "" {
		s.say(line)
	}

	switch e.Kind {
	case throttle.EventIllegible, throttle.EventFunctionFailed:
		s.say(e.Err.Error())
	case throttle.EventUnmatched:
		s.sayOnce("no policy matches some requests to " + fleet.Clean(e.Host, longestHost) + ": they are not held")
	}
}

// say writes a line to stderr.
func (s *sidecar) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.talk, "throttle: "+clean(line))
}

// longestHost is the longest printed name of a host.
const longestHost = 255

// tellOutside prints a link that bypasses the proxy.
func (s *sidecar) tellOutside(host string) {
	s.sayOnce("an answer has a link to " + fleet.Clean(host, longestHost) + ", which leads round the proxy: a program that follows it is not held there")
}

// tellTunnels prints which hosts the file opens for TLS tunnels, and that their requests are not counted.
func (s *sidecar) tellTunnels(hosts []string) {
	for _, host := range hosts {
		s.sayOnce("tunnels to " + host + " are carried, as the file says: each connection counts as one request, and the requests inside are neither counted nor held")
	}
}

// tellBlind prints the refusal of a tunnel.
func (s *sidecar) tellBlind(detail string) { s.sayOnce("a tunnel of TLS is refused: " + detail) }

// sayOnce writes a line to stderr, at most once.
func (s *sidecar) sayOnce(line string) {
	if s.once.add(line) {
		s.say(line)
	}
}
