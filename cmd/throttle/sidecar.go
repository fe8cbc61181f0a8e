package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
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
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// Defaults of a sidecar.
const (
	defaultConnections = 1024
	defaultStopTime    = 20 * time.Second
)

// A sidecar is the common part of throttle proxy and throttle envoy: a server that holds requests of other programs by
// the policies of a file. It has the flags of both, and the state that serves them.
type sidecar struct {
	name          string // of the command
	tokenVariable string // environment variable with the token, used without --token-file
	misuse        string // what machines could do that reach the address without a token

	at                             server
	listen, adminListen            string // adminListen is "" for no admin
	expose, noToken, budgetMetrics bool
	tokenFile, token               string
	maxWait, stopTime              time.Duration
	held, perBudget, connections   int
	followHosts                    string // policy file that bounds pushed files
	ceiling                        *policyfile.File

	// Of throttle run, and zero for the other commands.
	budgets string                                // directory of the budgets without Redis
	standby func(context.Context) ([]byte, error) // returns a file in place of none

	admin   *admin
	metrics *promthrottle.Metrics
	once    firsts // lines of sayOnce
	news    news
	ofStore storeNews
	mu      sync.Mutex // guards talk
	talk    io.Writer
}

// complete adds the common flags to a command, and makes its Args and RunE: the command calls check with FILE or "", then serves by
// follow. The values that the fields of the flags have now are the defaults.
func (s *sidecar) complete(c *cobra.Command, check func(path string) error, follow follow) {
	s.metrics, s.news.now, s.ofStore.say = promthrottle.New(), time.Now, s.say
	c.Args = argumentCount(0, 1)
	c.RunE = func(c *cobra.Command, args []string) error {
		s.talk = c.ErrOrStderr()
		path := strings.Join(args, "")
		if err := check(path); err != nil {
			return err
		}
		return s.run(c.Context(), path, follow)
	}

	s.at.addFlags(c)
	f := c.Flags()
	_ = f.MarkHidden("timeout") // --max-wait limits the wait for Redis, too
	f.StringVar(&s.listen, "listen", s.listen, "address to listen at, or unix:/path/to/socket, which only this user may use")
	f.BoolVar(&s.expose, "expose", false, "allow an address that other machines can reach; needs a token")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the token that callers must send; by default the token, if any, is in "+s.tokenVariable)
	f.BoolVar(&s.noToken, "no-token", false, "allow --expose without a token; each machine that reaches the address could "+s.misuse)
	f.StringVar(&s.adminListen, "admin", "", "address that serves /livez, /readyz, /upstreams and /metrics, such as 127.0.0.1:7079 (default none)")
	f.BoolVar(&s.budgetMetrics, "budget-metrics", false, "add metrics of the budgets; each scrape asks Redis, so set it in few servers of a fleet")
	f.DurationVar(&s.maxWait, "max-wait", s.maxWait, "maximum time that a request is held; callers can shorten it with \"Prefer: wait=2\"")
	f.DurationVar(&s.stopTime, "stop-time", defaultStopTime, "maximum time that the server takes to stop; waiting requests can still start in the first half")
	f.IntVar(&s.held, "held", s.held, "maximum number of requests held at once")
	f.IntVar(&s.perBudget, "held-per-budget", s.perBudget, "maximum number of requests held at once for one budget")
	f.IntVar(&s.connections, "connections", defaultConnections, "maximum number of open connections of callers")
	f.StringVar(&s.followHosts, "follow-hosts", "", "without FILE: file of policies that bounds the pushed files; they may name only hosts of this file, and make only keys that this file makes")
}

// mistakes are what is wrong with flags.
type mistakes []error

// note adds text as a mistake if wrong is true, and returns wrong.
func (m *mistakes) note(wrong bool, text string) bool {
	if wrong {
		*m = append(*m, errors.New(text))
	}
	return wrong
}

// check returns all mistakes in the common flags, and reads the token and the file of --follow-hosts. path is FILE, or "".
// upstreams are the addresses beside --listen.
func (s *sidecar) check(path string, upstreams []upstreamAt) error {
	var all mistakes
	all.note(path == "-", s.name+" follows a file, and stdin is none")
	all.note(path != "" && s.followHosts != "", "--follow-hosts bounds what is pushed, and FILE is followed")
	all.note(path == "" && !s.at.hasAddress(), "there is no FILE, and no --redis into which one is pushed")
	all.note(s.maxWait <= 0, "--max-wait: use more than 0")
	all.note(s.stopTime <= 0, "--stop-time: use more than 0")
	all.note(s.held <= 0, "--held: use 1 or more")
	all.note(s.perBudget <= 0, "--held-per-budget: use 1 or more")
	all.note(s.connections <= 0, "--connections: use 1 or more")
	all.note(!s.expose && isExposed(s.listen), "--listen: other machines would reach this address, and could "+s.misuse+": pass --expose as well")
	all.note(!s.expose && s.adminListen != "" && isExposed(s.adminListen), "--admin: other machines would reach this address, which needs no token: pass --expose as well")

	var err error
	if s.followHosts != "" {
		if s.ceiling, err = policyfile.Load(s.followHosts); err != nil {
			all = append(all, fmt.Errorf("--follow-hosts: %w", err))
		}
	}

	// Whether the addresses are safe depends on the token, so stop here if it cannot be read.
	if s.token, err = readToken(s.tokenFile, s.tokenVariable); err != nil {
		return errors.Join(append(all, err)...)
	}

	isOpen := s.token == "" && len(s.exposed(upstreams)) > 0
	all.note(s.expose && isOpen && !s.noToken, "--expose: each machine that reaches the address could "+s.misuse+": set --token-file or "+s.tokenVariable+", or pass --no-token")
	return errors.Join(all...)
}

// exposed returns the addresses that other machines reach: of --listen and of upstreams.
func (s *sidecar) exposed(upstreams []upstreamAt) (all []string) {
	for _, u := range append([]upstreamAt{{address: s.listen}}, upstreams...) {
		if isExposed(u.address) {
			all = append(all, u.address)
		}
	}
	return all
}

// A follow makes a server, and keeps its policies as in the file at path, or in the pushed file if path is "", until ctx ends. It
// returns a function that serves until the context of serve ends. reporter is nil without Redis.
type follow func(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (serve func(context.Context) error, err error)

// run opens the store, and serves by follow until ctx ends or SIGTERM comes.
func (s *sidecar) run(ctx context.Context, path string, follow follow) error {
	store, reporter, closeStore, err := s.open()
	if err != nil {
		return err
	}
	defer closeStore()

	// Deferred after closeStore: the follower ends before its store is closed.
	following, stop := context.WithCancel(ctx)
	defer stop()

	serve, err := follow(following, path, store, reporter)
	if err != nil {
		return err
	}

	return serve(ctx)
}

// open returns the store of the budgets: in Redis, in files of the directory s.budgets, or in memory. With Redis it returns the
// reporter to the fleet, too, and otherwise nil. closeStore closes both.
func (s *sidecar) open() (store throttle.Store, reporter *fleet.Reporter, closeStore func(), err error) {
	switch {
	case s.at.hasAddress(): // see below
	case s.budgets != "":
		store, err := filestore.New(s.budgets, filestore.Options{})
		return store, nil, func() {}, err
	default:
		s.say("there is no --redis: the budgets are this process's own") // in memory
		return memstore.New(), nil, func() {}, nil
	}

	client, err := s.at.connect()
	if err != nil {
		return nil, nil, nil, err
	}

	inner := redisstore.New(client, redisstore.Options{Namespace: s.at.namespace, HashTags: s.at.hashTags})
	reporter, err = fleet.Start(client, inner, fleet.ReporterOptions{Namespace: s.at.namespace, Program: "throttle-" + s.name})
	if err != nil {
		client.Close()
		return nil, nil, nil, err
	}

	// The reporter is the store: it wraps inner. The reporter removes its record with the client, so it is closed first.
	return reporter, reporter, func() {
		reporter.Close()
		client.Close()
	}, nil
}

// enforce returns a transport with a base, and limiters, both without policies as yet. The metrics, stderr and the observers get
// the events of both, and s.ofStore hears of bookings.
func (s *sidecar) enforce(store throttle.Store, base http.RoundTripper, observers ...func(context.Context, throttle.Event)) (*throttle.Transport, *throttle.Limiters, error) {
	store = heardStore{store, &s.ofStore}
	observe := throttle.Observers(append(observers, s.metrics.Observe, s.observe)...)
	transport, err := throttle.New(throttle.Config{Store: store, Base: base, Observe: observe})
	if err != nil {
		return nil, nil, err
	}

	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Observe: observe})
	if err != nil {
		return nil, nil, err
	}

	s.metrics.Follow(transport, limiters)
	return transport, limiters, nil
}

// followFile follows the file at path. If path is "" it follows the standby or, without a standby, the pushed file. It calls apply
// with the first version, and later with each version that comes into force. With a reporter the fleet sees which version that is.
func (s *sidecar) followFile(ctx context.Context, path string, reporter *fleet.Reporter, apply func(*policyfile.File) error) (*policyfile.Follower, error) {
	options := policyfile.Options{Path: path, Apply: apply, Report: s.report, Ceiling: s.ceiling}
	if path == "" && s.standby != nil {
		options.Name, options.Read = "no file", s.standby
	}
	if path == "" && s.standby == nil {
		// check has made sure that there is Redis, and so a reporter.
		follower, err := pushed.Follow(ctx, reporter, options)
		return follower, withExitCode(err)
	}

	follower, err := policyfile.Follow(ctx, options)
	if err == nil && reporter != nil {
		pushed.Report(reporter, follower)
	}

	return follower, err
}

// operate makes the admin, with the numbers of the server. It warns of a token file that isLoose, and of addresses that other
// machines reach without a token.
func (s *sidecar) operate(transport *throttle.Transport, follower *policyfile.Follower, own numbers, upstreams []upstreamAt) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), own)
	if s.budgetMetrics {
		registry.MustRegister(promthrottle.Budgets(transport))
	}

	s.admin = &admin{
		statuses: transport.Statuses, file: follower.State, metrics: registry, local: !isExposed(s.adminListen) && !strings.HasPrefix(s.adminListen, unixPrefix),
		policies: func() []throttle.Policy { return follower.File().All() },
	}

	if isLoose(s.tokenFile) {
		s.say(looseWarning(s.tokenFile))
	}
	if at := s.exposed(upstreams); len(at) > 0 && s.token == "" {
		s.say("WARNING: there is no token, and each machine that reaches " + strings.Join(at, ", ") + " can " + s.misuse)
	}
}

// serve serves the admin, if there is one, and calls begin. When ctx ends or SIGTERM comes, it calls end with a context that lasts
// for at most --stop-time. When a server fails, the server calls fail, and serve returns the error at once, without end. If the
// admin cannot listen, serve returns the error without begin.
func (s *sidecar) serve(ctx context.Context, begin func(fail context.CancelCauseFunc), end func(context.Context)) error {
	told, restore := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer restore()
	serving, fail := context.WithCancelCause(told)

	if s.adminListen != "" {
		server, err := s.serveAdmin(ctx, fail)
		if err != nil {
			return err
		}
		defer server.Close()
	}

	begin(fail)
	<-serving.Done()
	if told.Err() == nil {
		return context.Cause(serving)
	}

	// The next SIGTERM ends the process. If an interrupt has ended ctx, --stop-time runs without ctx.
	restore()
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}

	stopping, cancel := context.WithTimeout(ctx, s.stopTime)
	defer cancel()

	// Fail the readiness probe first.
	s.admin.stopping.Store(true)
	end(stopping)
	return nil
}

// report prints which version of the policies is in force, and why a later version is not, or when it will be. It prints nothing
// of a new text that was read only once, unless the next read fails.
func (s *sidecar) report(state policyfile.State) {
	switch {
	// The version in force has no mistake, so the error is of a failed read.
	case state.Err != nil && state.Seen == state.InForce:
		s.say("the file cannot be read, and " + state.InForce + " stays in force: " + state.Err.Error())

	// The version last seen is wrong, or the last read failed.
	case state.Err != nil:
		s.say(state.Seen + " is not in force, and " + state.InForce + " stays: " + state.Err.Error())
	case !state.Until.IsZero():
		s.say(fmt.Sprintf("%s loosens, and is in force in %s: %s", state.Seen, brief(time.Until(state.Until)), strings.Join(state.Loosens, "; ")))
	case state.InForce == state.Seen:
		s.say(state.InForce + " is in force")
	}
}

// observe prints events that an operator must know: limits that are not kept, and programs that stand still.
func (s *sidecar) observe(ctx context.Context, e throttle.Event) {
	if line := s.news.of(e); line != "" {
		s.say(line)
	}

	switch e.Kind {
	case throttle.EventStoreFailed:
		s.ofStore.fail(ctx, e.Err)
	case throttle.EventIllegible, throttle.EventFunctionFailed:
		s.say(e.Err.Error())
	case throttle.EventUnmatched:
		s.sayOnce("no policy matches some requests to " + fleet.Clean(e.Host, longestHost) + ": they are not held")
	}
}

// longestHost is the longest printed name of a host.
const longestHost = 255

// say writes a line to stderr.
func (s *sidecar) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.talk, "throttle: "+clean(line))
}

// sayOnce writes a line to stderr, at most once.
func (s *sidecar) sayOnce(line string) {
	if s.once.add(line) {
		s.say(line)
	}
}

// firsts are texts that are reported once.
type firsts struct {
	mu   sync.Mutex
	told map[string]bool
}

// mostFirsts bounds the texts: callers and upstreams can cause any number.
const mostFirsts = 100

// add notes a text, and reports whether it is new. Once mostFirsts texts are noted, no text is new.
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
