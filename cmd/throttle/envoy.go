package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/envoy"
)

// An envoyServer is the envoy command: its flags, and the state that serves them.
type envoyServer struct {
	sidecar
	server *envoy.Server
}

// newEnvoy returns the command envoy, which serves the filters ext_proc and ratelimit of Envoy.
func newEnvoy() *cobra.Command {
	s := &envoyServer{sidecar: sidecar{
		name: "envoy", tokenVariable: "THROTTLE_ENVOY_TOKEN", misuse: "use up the budgets",
		listen: "127.0.0.1:7072", maxWait: envoy.DefaultMaxWait, held: envoy.DefaultHeld, perBudget: envoy.DefaultHeldPerBudget,
	}}
	c := &cobra.Command{
		Use: "envoy [FILE]",
		Example: `  throttle envoy policies.yaml
  throttle envoy policies.yaml --redis redis://127.0.0.1:6379 --admin 127.0.0.1:7079`,
		Short: "Hold the requests that pass through Envoy, Istio or Envoy Gateway",
		Long: "Serve the filters ext_proc and ratelimit of Envoy over gRPC: they wait until the policies of FILE have room.\n" +
			"https://github.com/fleetthrottle/throttle/blob/main/docs/use/envoy.md has the configuration of the filters.\n" +
			"With --redis all servers and programs share the budgets. Without FILE the server follows the file that is pushed there.",
	}

	s.complete(c, func(path string) error { return s.check(path, nil) }, s.follow)
	c.Flags().Lookup("max-wait").Usage += "; message_timeout of the filter must be longer"
	return c
}

// follow makes the server, and keeps its policies as in the file at path, or in the pushed file if path is "", until ctx ends. It
// returns a function that serves.
func (s *envoyServer) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (serve func(context.Context) error, err error) {
	transport, limiters, err := s.enforce(store, envoy.NewBase(), envoy.Observe)
	if err != nil {
		return nil, err
	}

	s.server, err = envoy.New(envoy.Config{
		Transport: transport, Limiters: limiters, MaxWait: s.maxWait, Held: s.held, HeldPerBudget: s.perBudget, Token: s.token, Unfit: s.sayOnce,
	})
	if err != nil {
		return nil, err
	}

	follower, err := s.followFile(ctx, path, reporter, func(f *policyfile.File) error {
		return errors.Join(transport.SetPolicies(f.Policies), limiters.SetPolicies(f.ForLimiters()))
	})
	if err != nil {
		return nil, err
	}

	s.operate(transport, follower, s.numbers(follower), nil)
	return s.listenAndServe, nil
}

// listenAndServe serves until ctx ends, or until SIGTERM, and then ends within --stop-time.
func (s *envoyServer) listenAndServe(ctx context.Context) error {
	door, err := listenAt(ctx, s.listen)
	if err != nil {
		return err
	}
	defer door.Close()

	begin := func(fail context.CancelCauseFunc) {
		go func() { fail(s.server.Serve(&closing{door, &bound{most: int64(s.connections)}})) }()
		s.say("the server for Envoy is at " + strings.TrimSuffix(shown(s.listen, door.Addr(), "/"), "/"))
	}

	return s.serve(ctx, begin, func(ctx context.Context) {
		// The second half of the time is for answers in progress.
		s.server.Stop(s.stopTime / 2)
		if s.server.Shutdown(ctx) != nil {
			s.say("the time to stop is over: Envoy goes on alone with the requests that have started")
		}
	})
}

// A closing listener closes connections above a bound without an answer: the filters speak HTTP/2, and connect again.
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

		open := l.open.Add(1)
		if open <= l.most {
			return &boundedConn{Conn: conn, of: l.bound}, nil
		}

		l.open.Add(-1)
		conn.Close()
	}
}

// numbers returns the metrics of the server itself. promthrottle has the metrics of policies.
func (s *envoyServer) numbers(follower *policyfile.Follower) numbers {
	return func(gauge, counter report) {
		n := s.server.Stats()
		gauge("throttle_envoy_held", "Requests that wait in the server for Envoy now.", int64(n.Held))
		gauge("throttle_envoy_streams", "Streams of ext_proc that are open now.", n.Streams)
		gauge("throttle_envoy_file_applied", "Whether the file of policies as it was read last is in force, or waits to be.", isApplied(follower))
		counter("throttle_envoy_left_total", "Callers that left while their request waited.", n.Left)
		counter("throttle_envoy_unfit_total", "Calls of filters whose configuration keeps the server from holding requests or reading answers.", n.Unfit)
		for reason, refused := range n.Refused {
			counter("throttle_envoy_refused_total", "Requests that the server refused, by reason.", refused, reason)
		}
	}
}
