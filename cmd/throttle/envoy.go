package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/envoy"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// envoyTokenVariable is the environment variable with the token of the server for Envoy, used without --token-file.
const envoyTokenVariable = "THROTTLE_ENVOY_TOKEN"

// defaultEnvoyListen is where the server for Envoy listens.
const defaultEnvoyListen = "127.0.0.1:7072"

// An envoyServer is the envoy command: the flags and the state of a sidecar, of which it uses what follows a file and
// talks to operators.
type envoyServer struct {
	sidecar
	server *envoy.Server
	admin  *admin
}

func newEnvoy() *cobra.Command {
	s := &envoyServer{sidecar: sidecar{program: "throttle-envoy", metrics: promthrottle.New()}}
	s.news.now = time.Now
	c := &cobra.Command{
		Use: "envoy [FILE]",
		Example: `  throttle envoy policies.yaml
  throttle envoy policies.yaml --redis redis://127.0.0.1:6379 --admin 127.0.0.1:7079`,
		Short: "Hold the requests that pass through Envoy, Istio or Envoy Gateway",
		Long: "Serve the filters ext_proc and ratelimit of Envoy over gRPC: they wait until the policies of FILE have room.\n" +
			"https://github.com/fleetthrottle/throttle/blob/main/docs/envoy.md has the configuration of the filters.\n" +
			"With --redis all servers and programs share the budgets. Without FILE the server follows the file that is pushed there.",
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s.talk = c.ErrOrStderr()
			return s.run(c.Context(), strings.Join(args, ""))
		},
	}

	s.at.addFlags(c)
	f := c.Flags()
	_ = f.MarkHidden("timeout") // --max-wait limits the wait for Redis, too
	f.StringVar(&s.listen, "listen", defaultEnvoyListen, "address to listen at, or unix:/path/to/socket, which only this user may use")
	f.BoolVar(&s.expose, "expose", false, "allow an address that other machines can reach; needs a token")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the token that the filters must send; by default the token, if any, is in "+envoyTokenVariable)
	f.BoolVar(&s.noToken, "no-token", false, "allow --expose without a token; each machine that reaches the address may use up the budgets")
	f.StringVar(&s.sidecar.admin, "admin", "", "address that serves /livez, /readyz, /upstreams and /metrics, such as 127.0.0.1:7079 (default none)")
	f.BoolVar(&s.budgetMetrics, "budget-metrics", false, "add metrics of the budgets; each scrape asks Redis, so set it in few servers of a fleet")
	f.DurationVar(&s.maxWait, "max-wait", envoy.DefaultMaxWait, "maximum time that a request is held; message_timeout of the filter must be longer")
	f.DurationVar(&s.stopTime, "stop-time", defaultStopTime, "maximum time that the server takes to stop; waiting requests can still start in the first half")
	f.IntVar(&s.held, "held", envoy.DefaultHeld, "maximum number of requests held at once")
	f.IntVar(&s.perBudget, "held-per-budget", envoy.DefaultHeldPerBudget, "maximum number of requests held at once for one budget")
	f.IntVar(&s.connections, "connections", defaultConnections, "maximum number of open connections of filters")
	f.StringVar(&s.followHosts, "follow-hosts", "", "without FILE: file of policies that bounds the pushed files; they may name only hosts of this file, and make only keys that this file makes")

	return c
}

// check reports all unsafe or meaningless flags at once, and reads the token.
func (s *envoyServer) check(path string) error {
	var mistakes []error
	note := func(wrong bool, text string) {
		if wrong {
			mistakes = append(mistakes, errors.New(text))
		}
	}

	note(path == "-", "envoy follows a file, and stdin is none")
	note(path != "" && s.followHosts != "", "--follow-hosts bounds what is pushed, and FILE is followed")
	note(path == "" && !s.at.hasAddress(), "there is no FILE, and no --redis into which one is pushed")
	note(s.maxWait <= 0, "--max-wait: use more than 0")
	note(s.stopTime <= 0, "--stop-time: use more than 0")
	note(s.held <= 0, "--held: use 1 or more")
	note(s.perBudget <= 0, "--held-per-budget: use 1 or more")
	note(s.connections <= 0, "--connections: use 1 or more")
	note(!s.expose && isExposed(s.listen), "--listen: other machines would reach this address, and could use up the budgets: pass --expose as well")
	note(!s.expose && s.sidecar.admin != "" && isExposed(s.sidecar.admin), "--admin: other machines would reach this address, which needs no token: pass --expose as well")

	var err error
	if s.followHosts != "" {
		if s.ceiling, err = policyfile.Load(s.followHosts); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--follow-hosts: %w", err))
		}
	}

	// Whether the addresses are safe depends on the token, so stop here without it.
	if s.token, err = readToken(s.tokenFile, envoyTokenVariable); err != nil {
		return errors.Join(append(mistakes, err)...)
	}
	note(s.expose && isExposed(s.listen) && s.token == "" && !s.noToken, "--expose: each machine that reaches the address could use up the budgets: set --token-file or "+envoyTokenVariable+", or pass --no-token")

	return errors.Join(mistakes...)
}

// run serves until ctx ends, or until SIGTERM.
func (s *envoyServer) run(ctx context.Context, path string) error {
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
	if err := s.follow(following, path, store, reporter); err != nil {
		return err
	}

	return s.serve(ctx)
}

// follow makes the server, whose policies follow a file, or the pushed file.
func (s *envoyServer) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) error {
	observe := throttle.Observers(envoy.Observe, s.metrics.Observe, s.observe)
	transport, err := throttle.New(throttle.Config{Store: store, Base: envoy.NewBase(), Observe: observe})
	if err != nil {
		return err
	}

	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Observe: observe})
	if err != nil {
		return err
	}

	s.metrics.Follow(transport, limiters)
	s.server, err = envoy.New(envoy.Config{
		Transport: transport, Limiters: limiters, MaxWait: s.maxWait, Held: s.held, HeldPerBudget: s.perBudget, Token: s.token, Unfit: s.sayOnce,
	})
	if err != nil {
		return err
	}

	follower, err := s.followFile(ctx, path, reporter, func(f *policyfile.File) error {
		return errors.Join(transport.SetPolicies(f.Policies), limiters.SetPolicies(f.ForLimiters()))
	})
	if err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(s.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&envoyMetrics{s.server, func() bool { return follower.State().Err == nil }})
	if s.budgetMetrics {
		registry.MustRegister(promthrottle.Budgets(transport))
	}

	s.admin = &admin{
		statuses: transport.Statuses, file: follower.State, metrics: registry, local: !isExposed(s.sidecar.admin) && !strings.HasPrefix(s.sidecar.admin, unixPrefix),
		policies: func() []throttle.Policy { return follower.File().All() },
	}
	if s.token == "" && isExposed(s.listen) {
		s.say("WARNING: there is no token, and each machine that reaches " + s.listen + " can use up the budgets")
	}

	return nil
}

// serve serves until ctx ends, or until SIGTERM, and then ends within --stop-time.
func (s *envoyServer) serve(ctx context.Context) error {
	told, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()

	door, err := listenAt(ctx, s.listen)
	if err != nil {
		return err
	}
	defer door.Close()

	failed := make(chan error, 2)
	if s.sidecar.admin != "" {
		v := &service{adminListen: s.sidecar.admin, admin: s.admin, say: s.say, callerIdle: proxy.DefaultCallerIdle}
		server, err := v.serveAdmin(ctx, failed)
		if err != nil {
			return err
		}
		defer server.Close()
	}

	go func() { failed <- s.server.Serve(&closing{door, &bound{most: int64(s.connections)}}) }()
	s.say("the server for Envoy is at " + strings.TrimSuffix(shown(s.listen, door.Addr(), "/"), "/"))

	select {
	case err := <-failed:
		return err
	case <-told.Done():
	}

	restore() // the next SIGTERM ends the process
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // ended by an interrupt; the next interrupt ends the process
	}

	s.end(ctx)
	return nil
}

// end stops within --stop-time. The second half of the time is for answers in progress.
func (s *envoyServer) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.stopTime)
	defer cancel()

	s.admin.stopping.Store(true)
	s.server.Stop(s.stopTime / 2)
	if s.server.Shutdown(ctx) != nil {
		s.say("the time to stop is over: Envoy goes on alone with the requests that have started")
	}
}

// A closing listener closes connections above a bound. Nothing tells the filters why: they speak HTTP/2, and connect again.
type closing struct {
	net.Listener
	*bound
}

// Accept implements [net.Listener].
func (l *closing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &boundedConn{Conn: conn, of: l.bound}, nil
		}
		l.open.Add(-1)
		conn.Close()
	}
}

// envoyMetrics are the Prometheus metrics of the server itself. promthrottle has those for policies.
type envoyMetrics struct {
	server  *envoy.Server
	applied func() bool // the latest file is in force, or waits for its grace time
}

// Descriptions of the metrics.
var (
	envoyHeldDesc    = prometheus.NewDesc("throttle_envoy_held", "Requests that wait in the server for Envoy now.", nil, nil)
	envoyStreamsDesc = prometheus.NewDesc("throttle_envoy_streams", "Streams of ext_proc that are open now.", nil, nil)
	envoyRefusedDesc = prometheus.NewDesc("throttle_envoy_refused_total", "Requests that the server refused, by reason.", []string{"reason"}, nil)
	envoyLeftDesc    = prometheus.NewDesc("throttle_envoy_left_total", "Callers that left while their request waited.", nil, nil)
	envoyUnfitDesc   = prometheus.NewDesc("throttle_envoy_unfit_total", "Calls of filters whose configuration keeps the server from holding requests or reading answers.", nil, nil)
	envoyAppliedDesc = prometheus.NewDesc("throttle_envoy_file_applied", "Whether the file of policies as it was read last is in force, or waits to be.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (m *envoyMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements [prometheus.Collector].
func (m *envoyMetrics) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	s := m.server.Stats()

	var applied int64
	if m.applied() {
		applied = 1
	}

	send(envoyHeldDesc, prometheus.GaugeValue, int64(s.Held))
	send(envoyStreamsDesc, prometheus.GaugeValue, s.Streams)
	send(envoyAppliedDesc, prometheus.GaugeValue, applied)
	send(envoyLeftDesc, prometheus.CounterValue, s.Left)
	send(envoyUnfitDesc, prometheus.CounterValue, s.Unfit)
	for reason, n := range s.Refused {
		send(envoyRefusedDesc, prometheus.CounterValue, n, reason)
	}
}
