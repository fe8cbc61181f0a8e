package main

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// A proxyServer is the proxy command: its flags, and the state that serves them.
type proxyServer struct {
	sidecar
	upstreamFlags []string
	upstreams     []upstreamAt
	tunnels       int
	callerIdle    time.Duration
	private       []string
	permits       time.Duration // longest lifetime of permits
	penalties     time.Duration // longest penalty by a permit's caller, 0 for none

	// Of throttle run, and zero for throttle proxy.
	watch  func(context.Context, throttle.Event)    // for the page
	extend func(*policyfile.File) []throttle.Policy // returns the rows in force for a file

	table   atomic.Pointer[proxy.Table] // of the policies in force
	handler *proxy.Handler
	waiting *waitapi.Handler
	door    bounded // at listen
}

// newProxy returns the command proxy, which serves the proxy.
func newProxy() *cobra.Command {
	c, _ := newProxyWith()
	return c
}

// newProxyWith also returns the values of the flags.
func newProxyWith() (*cobra.Command, *proxyServer) {
	s := &proxyServer{sidecar: sidecar{
		name: "proxy", tokenVariable: "THROTTLE_PROXY_TOKEN", misuse: "send requests",
		listen: "127.0.0.1:7070", maxWait: proxy.DefaultMaxWait, held: proxy.DefaultHeld, perBudget: proxy.DefaultHeldPerBudget,
	}}
	c := &cobra.Command{
		Use: "proxy [FILE]",
		Example: `  throttle proxy policies.yaml
  throttle proxy policies.yaml --redis redis://127.0.0.1:6379`,
		Short: "Hold the requests of programs in other languages",
		Long: "Serve a proxy that holds requests until the policies of FILE have room for them.\n" +
			"Programs reach https://api.example.com/v1 by the base URL http://127.0.0.1:7070/api.example.com/v1,\n" +
			"or by http://api.example.com/v1 with HTTP_PROXY=http://127.0.0.1:7070, or by an --upstream.\n" +
			"With --redis all proxies and programs share the budgets. Without FILE the proxy follows the file that is pushed there.",
	}

	s.complete(c, s.check, s.follow)
	f := c.Flags()
	f.Lookup("held").Usage += ", and of MiB for their bodies"
	f.StringArrayVar(&s.upstreamFlags, "upstream", nil, "address that serves a single host of the file, such as 127.0.0.1:7071=api.example.com; may be repeated")
	f.DurationVar(&s.callerIdle, "caller-idle", proxy.DefaultCallerIdle, "maximum time that a caller may stall while it sends its body or reads its answer")
	f.IntVar(&s.tunnels, "tunnels", proxy.DefaultTunnels, "maximum number of open tunnels of programs with HTTP_PROXY; 0 refuses all tunnels")
	f.DurationVar(&s.permits, "permit-lifetime", waitapi.DefaultMaxLifetime, "maximum lifetime of a permit of the waiting API that is not released; callers that ask for no lifetime get a minute")
	f.DurationVar(&s.penalties, "permit-penalty-max", waitapi.DefaultMaxPenalty, "maximum time for which /v1/penalize of the waiting API closes a budget; 0 refuses the call")
	f.StringSliceVar(&s.private, "private", nil, "host of the file, without a port, that may have a private address")

	return c, s
}

// check returns all unsafe or meaningless flags at once, and reads the token.
func (s *proxyServer) check(path string) error {
	upstreams, wrong := upstreamsOf(s.upstreamFlags, s.listen, s.expose)
	s.upstreams = upstreams

	all := mistakes{s.sidecar.check(path, upstreams)}
	all.note(s.callerIdle <= 0, "--caller-idle: use more than 0")
	all.note(s.permits <= 0, "--permit-lifetime: use more than 0")
	all.note(s.penalties < 0, "--permit-penalty-max: use 0 or more")
	all.note(s.tunnels < 0, "--tunnels: use 0 or more")

	for _, host := range s.private {
		// An IPv6 address has colons, and is a host.
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		all.note(err != nil && strings.ContainsAny(host, ":/"), "--private "+host+": use a host, without a scheme, a port and a path")
	}

	return errors.Join(append(all, wrong...)...)
}

// follow makes the handler, whose policies follow a file, or the pushed file.
func (s *proxyServer) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (serve func(context.Context) error, err error) {
	observers := []func(context.Context, throttle.Event){proxy.Observe}
	if s.watch != nil {
		observers = append(observers, s.watch)
	}

	transport, limiters, err := s.enforce(store, proxy.NewBase(s.private...), observers...)
	if err != nil {
		return nil, err
	}

	// In the flags 0 means none. In the packages 0 means the default, and a negative number means none.
	s.waiting, err = waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: s.maxWait, Held: s.held, MaxLifetime: s.permits, MaxPenalty: cmp.Or(s.penalties, -1)})
	if err != nil {
		return nil, err
	}

	s.handler, err = proxy.New(proxy.Config{
		OutsideLink: s.tellOutside, BlindTunnel: s.tellBlind, Tunnels: cmp.Or(s.tunnels, -1),
		Transport: transport, Waiting: s.waiting, Table: s.table.Load, Token: s.token, Local: !isExposed(s.listen),
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

	s.door.bound = &bound{most: int64(s.connections)}
	s.operate(transport, follower, s.numbers(follower), s.upstreams)
	return s.listenAndServe, nil
}

// numbers returns the metrics of the proxy itself. promthrottle has those for policies.
func (s *proxyServer) numbers(follower *policyfile.Follower) numbers {
	return func(gauge, counter report) {
		n := s.handler.Stats()
		gauge("throttle_proxy_held", "Requests that wait in the proxy now.", int64(n.Held))
		gauge("throttle_proxy_body_bytes", "Bodies that the proxy has in memory now.", n.BodyBytes)
		gauge("throttle_proxy_connections", "Connections of callers that are open now.", s.door.open.Load())
		gauge("throttle_proxy_file_applied", "Whether the file of policies as it was read last is in force, or waits to be.", isApplied(follower))
		counter("throttle_proxy_connections_refused_total", "Connections of callers that were closed because too many were open.", s.door.refused.Load())
		counter("throttle_proxy_left_total", "Callers that left before their request had an answer.", n.Left)
		counter("throttle_proxy_aborted_total", "Answers that ended in the middle.", n.Aborted)
		counter("throttle_proxy_links_round_total", "Links in answers that lead round the proxy.", n.LinksRound)
		counter("throttle_proxy_tunnels_ended_total", "Idle tunnels that were ended to make room for others.", n.TunnelsEnded)
		counter("throttle_proxy_unreadable_total", "Answers in br, zstd or another coding that no policy can read.", n.Unreadable)
		for reason, refused := range n.Refused {
			counter("throttle_proxy_refused_total", "Requests that the proxy answered itself, by reason.", refused, reason)
		}
	}
}

// use puts a table in force, and warns of upstream addresses whose hosts it lacks.
func (s *proxyServer) use(table *proxy.Table) {
	if s.table.Swap(table) == nil {
		return // a mistake at the start, reported by follow
	}
	for _, err := range missing(s.upstreams, table) {
		s.say(err.Error() + " any more, and requests to the address are refused")
	}
}

// tellOutside prints a link that bypasses the proxy.
func (s *proxyServer) tellOutside(host string) {
	s.sayOnce("an answer has a link to " + fleet.Clean(host, longestHost) + ", which leads round the proxy: a program that follows it is not held there")
}

// tellTunnels prints which hosts the file opens for TLS tunnels, and that their requests are not counted.
func (s *proxyServer) tellTunnels(hosts []string) {
	for _, host := range hosts {
		s.sayOnce("tunnels to " + host + " are carried, as the file says: each connection counts as one request, and the requests inside are neither counted nor held")
	}
}

// tellBlind prints the refusal of a tunnel.
func (s *proxyServer) tellBlind(detail string) { s.sayOnce("a tunnel of TLS is refused: " + detail) }
