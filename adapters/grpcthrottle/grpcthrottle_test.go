package grpcthrottle_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/grpcthrottle"
	"github.com/fleetthrottle/throttle/adapters/slogthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/readme"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

const checks = "/grpc.health.v1.Health/Check"

// TestPoliciesMatchCalls: by authority, service and method, with metadata as header.
func TestPoliciesMatchCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, limits := serve(t, &server{}, throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "host", Match: "health.example.com/", Limit: throttle.PerHour(99)},
			{Name: "port", Match: "health.example.com:8443/grpc.health.v1.Health/", Limit: throttle.PerHour(99)},
			{Name: "method", Match: "POST " + checks, Limit: throttle.PerHour(99), Key: throttle.Header("X-Tenant")},
			{Name: "watch", Match: "/grpc.health.v1.Health/Watch", Limit: throttle.PerHour(99)},
			{Name: "elsewhere", Match: "other.example.com/", Limit: throttle.PerHour(99)},
		}}, grpcthrottle.Options{})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "acme")
		require.NoError(t, check(ctx, c, ""))
		require.NoError(t, check(ctx, c, "", grpc.CallAuthority("other.example.com")))
		for policy, want := range map[string]int{"host": 1, "port": 1, "watch": 0, "elsewhere": 1} {
			n, _ := used(t, limits, policy, "")
			require.Equal(t, want, n, policy)
		}
		n, _ := used(t, limits, "method", "acme")
		require.Equal(t, 2, n)
	})
}

// TestAuthority: of several authorities the last one counts, as in gRPC, an empty one is none, and a port alone is one of this machine.
func TestAuthority(t *testing.T) {
	const usual = "usual.example.com"
	for _, c := range []struct {
		target string
		opts   []grpc.CallOption
		want   string
	}{
		{"dns:///a.example.com:443", nil, "a.example.com:443"},
		{"dns:///a.example.com:443", []grpc.CallOption{grpc.CallAuthority(usual)}, usual},
		{"dns:///a.example.com:443", []grpc.CallOption{grpc.CallAuthority(usual), grpc.CallAuthority("b.example.com")}, "b.example.com"},
		{"dns:///a.example.com:443", []grpc.CallOption{grpc.CallAuthority(usual), grpc.CallAuthority("")}, "a.example.com:443"},
		{"dns:///:8443", nil, "localhost:8443"},
		{"unix:///run/socket", nil, "localhost"},
	} {
		cc, err := grpc.NewClient(c.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		require.Equal(t, c.want, grpcthrottle.Authority(cc.CanonicalTarget(), c.opts), "%v", c)
		require.NoError(t, cc.Close())
	}
}

// TestCallsAreLogged: a call that no policy matches is told once for its host, and a call that is refused by its policy.
func TestCallsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		logs := slogthrottle.New(slog.New(slog.NewTextHandler(&lines, nil)), slogthrottle.Options{})
		c, _ := serve(t, &server{}, throttle.Config{Store: memstore.New(), Observe: logs.Observe, Policies: []throttle.Policy{
			{Name: "p", Match: "one.example.com/", Limit: throttle.PerHour(1)},
		}}, grpcthrottle.Options{})
		ctx := throttle.WithMaxWait(metadata.AppendToOutgoingContext(t.Context(), "authorization", "tok-SECRET"), throttle.NoWait)
		for range 3 {
			_ = check(ctx, c, "", grpc.CallAuthority("one.example.com"))
			require.NoError(t, check(ctx, c, "", grpc.CallAuthority("two.example.com")))
		}
		require.Equal(t, 1, strings.Count(lines.String(), `msg="throttle: unmatched" throttle.host=two.example.com`))
		require.Equal(t, 2, strings.Count(lines.String(), `msg="throttle: refused" throttle.policy=p`))
		require.Equal(t, 3, strings.Count(lines.String(), "\n"))
		require.NotContains(t, lines.String(), "SECRET")
	})
}

// TestCallsAreHeld until there is room, and only for as long as MaxWait allows.
func TestCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c, _ := serve(t, s, throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1)}}}, grpcthrottle.Options{})
		require.NoError(t, check(t.Context(), c, ""))
		begin := time.Now()
		require.NoError(t, check(t.Context(), c, ""))
		require.Greater(t, time.Since(begin), time.Second)

		err := check(throttle.WithMaxWait(t.Context(), time.Millisecond), c, "")
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Equal(t, limited.RetryAfter, grpcthrottle.RetryDelay(status.Convert(err)))
		require.Equal(t, 2, s.seen())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		err = check(ctx, c, "")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, codes.Canceled, status.Code(err))
	})
}

// TestP11_RefusalsCloseBudgets, for calls and streams, but only those that say for how
// long, and that are about a budget.
func TestP11_RefusalsCloseBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		options grpcthrottle.Options
		a, b    time.Duration
	}{
		"with RetryInfo":    {err: exhausted(t, codes.ResourceExhausted, time.Minute), a: time.Minute, b: time.Minute},
		"without RetryInfo": {err: status.Error(codes.ResourceExhausted, "message larger than max")},
		"unavailable":       {err: exhausted(t, codes.Unavailable, time.Minute)},
		"another error":     {err: exhausted(t, codes.Internal, time.Minute)},
		"less than nothing": {err: exhausted(t, codes.ResourceExhausted, -time.Minute)},
		"one of the policies": {
			err: exhausted(t, codes.Unavailable, time.Minute),
			options: grpcthrottle.Options{Answer: func(s *status.Status) grpcthrottle.Answer {
				return grpcthrottle.Answer{Answer: throttle.Refused(grpcthrottle.RetryDelay(s)), Policies: []string{"of another call", "b"}}
			}},
			b: time.Minute,
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, limits := serve(t, &server{refuse: map[string]error{"x": c.err}}, throttle.Config{
						MaxWait: throttle.Forever,
						Store:   memstore.New(), Policies: []throttle.Policy{{Name: "a", Match: "/", Limit: throttle.PerHour(9)}, {Name: "b", Match: "/", Limit: throttle.PerHour(9)}},
					}, c.options)
					var err error
					if stream {
						var w grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
						w, err = client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "x"})
						require.NoError(t, err)
						_, err = w.Recv()
					} else {
						err = check(t.Context(), client, "x")
					}
					require.Equal(t, status.Code(c.err), status.Code(err))
					_, a := used(t, limits, "a", "")
					_, b := used(t, limits, "b", "")
					require.Equal(t, []time.Duration{c.a, c.b}, []time.Duration{a, b})
				})
			})
		}
	}
}

// TestP6_WhatEndsAStream, and with it what it has in flight.
func TestP6_WhatEndsAStream(t *testing.T) {
	for name, end := range map[string]func(*testing.T, grpc.ServerStreamingClient[healthpb.HealthCheckResponse], context.CancelFunc){
		"its status": func(t *testing.T, w grpc.ServerStreamingClient[healthpb.HealthCheckResponse], _ context.CancelFunc) {
			_, err := w.Recv()
			require.ErrorIs(t, err, io.EOF)
		},
		"its context": func(_ *testing.T, _ grpc.ServerStreamingClient[healthpb.HealthCheckResponse], cancel context.CancelFunc) {
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, limits := serve(t, &server{}, throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "at once", Match: "/", Limit: throttle.Concurrency(1)}}}, grpcthrottle.Options{})
				service := ""
				if name == "its status" {
					service = "short"
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w, err := c.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
				require.NoError(t, err)
				_, err = w.Recv()
				require.NoError(t, err)
				n, _ := used(t, limits, "at once", "")
				require.Equal(t, 1, n)
				require.ErrorIs(t, check(throttle.WithMaxWait(t.Context(), -1), c, ""), throttle.ErrLimited)
				end(t, w, cancel)
				synctest.Wait()
				n, _ = used(t, limits, "at once", "")
				require.Zero(t, n)
				require.NoError(t, check(t.Context(), c, ""))
				n, _ = used(t, limits, "at once", "")
				require.Zero(t, n, "a call ends with its answer")
			})
		})
	}
}

// TestP6_AStreamThatCannotBegin holds nothing.
func TestP6_AStreamThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, exhausted(t, codes.ResourceExhausted, time.Minute)
		}
		c, limits := serve(t, &server{}, throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "at once", Match: "/", Limit: throttle.Concurrency(1)}}}, grpcthrottle.Options{},
			grpc.WithChainStreamInterceptor(broken))
		_, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		n, closed := used(t, limits, "at once", "")
		require.Zero(t, n)
		require.Equal(t, time.Minute, closed)
	})
}

// A brokenStore cannot be asked.
type brokenStore struct{ throttle.Store }

var errDown = errors.New("redis is away")

func (brokenStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, errDown
}

// TestErrorsAreStatuses that unwrap to throttle's own.
func TestErrorsAreStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, &server{}, throttle.Config{MaxWait: throttle.Forever, Store: brokenStore{memstore.New()}, Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1)}}}, grpcthrottle.Options{})
		err := check(t.Context(), c, "")
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorIs(t, err, errDown)
		require.EqualError(t, err, "throttle: the store could not be asked: redis is away")
		require.Equal(t, err.Error(), status.Convert(err).Message())

	})
}

// TestAnInnerInterceptor: an error of throttle is no answer of the server, whatever Options.Answer would make of its status.
func TestAnInnerInterceptor(t *testing.T) {
	inner, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: brokenStore{memstore.New()}, Policies: []throttle.Policy{{Name: "inner", Match: "/", Limit: throttle.PerSecond(1)}}})
	require.NoError(t, err)
	for kind, call := range map[string]func(context.Context, healthpb.HealthClient) error{
		"call":   func(ctx context.Context, h healthpb.HealthClient) error { return check(ctx, h, "") },
		"stream": watchOnce,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			h, outer := serve(t, s, throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "outer", Match: "/", Limit: throttle.PerHour(9)}}},
				grpcthrottle.Options{Answer: answerOf(throttle.Refused(time.Minute))}, grpcthrottle.New(inner, grpcthrottle.Options{}).DialOptions()...)
			require.ErrorIs(t, call(t.Context(), h), errDown, kind)
			require.Zero(t, s.seen())
			_, closed := used(t, outer, "outer", "")
			require.Zero(t, closed, kind)
		})
	}
}

// TestP2_ASlowDial: a start that waited for a connection is taken anew, so that the
// server never sees more than the limit.
func TestP2_ASlowDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := bufconn.Listen(1 << 16)
		srv, s := grpc.NewServer(), &server{}
		healthpb.RegisterHealthServer(srv, s)
		go func() { _ = srv.Serve(pipe) }()
		defer srv.Stop()
		limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1)}}})
		require.NoError(t, err)
		conn, err := grpc.NewClient("passthrough:///slow", append(grpcthrottle.New(limits, grpcthrottle.Options{}).DialOptions(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				time.Sleep(700 * time.Millisecond)
				return pipe.DialContext(ctx)
			}))...)
		require.NoError(t, err)
		defer conn.Close()
		begin := time.Now()
		c := healthpb.NewHealthClient(conn)
		require.NoError(t, check(t.Context(), c, ""))
		require.Equal(t, 700*time.Millisecond, time.Since(begin))
		require.NoError(t, check(t.Context(), c, ""))
		require.GreaterOrEqual(t, time.Since(begin), 1700*time.Millisecond)
	})
}

// TestOverLoopback: with sockets, and streams in both directions at once.
func TestOverLoopback(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv, s := grpc.NewServer(), &server{}
	healthpb.RegisterHealthServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "p", Match: "127.0.0.1/", Limit: throttle.PerHour(20)}, {Name: "at once", Limit: throttle.Concurrency(2)},
	}})
	require.NoError(t, err)
	conn, err := grpc.NewClient(l.Addr().String(), append(grpcthrottle.New(limits, grpcthrottle.Options{}).DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	defer conn.Close()
	c := healthpb.NewHealthClient(conn)
	errs := make(chan error)
	for i := range 30 {
		go func() {
			ctx := throttle.WithMaxWait(t.Context(), time.Minute)
			if i%2 == 0 {
				errs <- check(ctx, c, "")
				return
			}
			w, err := c.Watch(ctx, &healthpb.HealthCheckRequest{Service: "short"})
			for err == nil {
				_, err = w.Recv()
			}
			if err == io.EOF {
				err = nil
			}
			errs <- err
		}()
	}
	refused := 0
	for range 30 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, throttle.ErrLimited)
			refused++
		}
	}
	require.Equal(t, 10, refused)
	require.Equal(t, 20, s.seen())
}

// TestAWrongAnswerIsTold: the error of the call says what is wrong with what Options.Answer has made of it. Its status is that of the server.
func TestAWrongAnswerIsTold(t *testing.T) {
	policies := []throttle.Policy{
		{Name: "a", Match: "/", Limit: throttle.PerHour(99)}, {Name: "b", Match: "/", Limit: throttle.PerHour(99)},
		{Name: "elsewhere", Match: "other.example.com/", Limit: throttle.PerHour(99)},
	}
	wrong := throttle.Answer{Verdict: 99}
	for name, c := range map[string]struct {
		answer func(*status.Status) grpcthrottle.Answer
		says   string // "" for nothing
	}{
		"nothing":                     {func(*status.Status) (a grpcthrottle.Answer) { return a }, ""},
		"a policy that has no part":   {answerOf(throttle.Refused(time.Second), "elsewhere", "a"), ""},
		"a policy that is not there":  {answerOf(throttle.Refused(time.Second), "a", "aa"), `the limiters have no policy "aa": see Policies`},
		"what is left of two budgets": {answerOf(throttle.Answer{}.WithLeft(throttle.Quota{Left: 1, Reset: time.Second})), "the permit is one of several budgets"},
		"a verdict that is none":      {answerOf(wrong), "99"},
		"a panic":                     {func(*status.Status) grpcthrottle.Answer { panic("no") }, "panicked with a string"},
	} {
		for kind, call := range map[string]func(context.Context, healthpb.HealthClient) error{
			"call":   func(ctx context.Context, h healthpb.HealthClient) error { return check(ctx, h, "") },
			"stream": watchOnce,
		} {
			synctest.Test(t, func(t *testing.T) {
				s := &server{refuse: map[string]error{"": status.Error(codes.ResourceExhausted, "too much")}}
				h, _ := serve(t, s, throttle.Config{Store: memstore.New(), Policies: policies}, grpcthrottle.Options{Answer: c.answer})
				err := call(t.Context(), h)
				require.Equal(t, codes.ResourceExhausted, status.Code(err), name+kind)
				require.Equal(t, "too much", status.Convert(err).Message())
				if c.says == "" {
					require.NotContains(t, err.Error(), "grpcthrottle", name+kind)
				} else {
					require.ErrorContains(t, err, "grpcthrottle: Options.Answer: ", name+kind)
					require.ErrorContains(t, err, c.says)
				}
			})
		}
	}
}

// answerOf returns a function that takes each failure for the same.
func answerOf(a throttle.Answer, policies ...string) func(*status.Status) grpcthrottle.Answer {
	return func(*status.Status) grpcthrottle.Answer { return grpcthrottle.Answer{Answer: a, Policies: policies} }
}

// watchOnce begins a stream and reads from it once.
func watchOnce(ctx context.Context, h healthpb.HealthClient) error {
	stream, err := h.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// TestNoLimits: interceptors that were given no limits fail each call, and do not panic.
func TestNoLimits(t *testing.T) {
	i := grpcthrottle.New(nil, grpcthrottle.Options{})
	require.ErrorContains(t, i.Unary(t.Context(), "/a/b", nil, nil, nil, nil), "was given no limits")
	_, err := i.Stream(t.Context(), nil, nil, "/a/b", nil)
	require.ErrorContains(t, err, "was given no limits")
}

// A server answers health checks: it refuses the services that it has an error for, and
// watches last until their context ends.
type server struct {
	healthpb.UnimplementedHealthServer
	refuse map[string]error

	mu    sync.Mutex
	calls []string
}

func (s *server) note(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	return s.refuse[call]
}

func (s *server) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func (s *server) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, s.note(r.Service)
}

func (s *server) Watch(r *healthpb.HealthCheckRequest, w grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := s.note(r.Service); err != nil {
		return err
	}
	if err := w.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}); err != nil {
		return err
	}
	if r.Service == "short" {
		return nil
	}
	<-w.Context().Done()
	return nil
}

// exhausted is how servers refuse.
func exhausted(t *testing.T, code codes.Code, after time.Duration) error {
	t.Helper()
	s, err := status.New(code, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	require.NoError(t, err)
	return s.Err()
}

// serve starts a server and returns a client whose calls are held.
func serve(t *testing.T, s *server, c throttle.Config, o grpcthrottle.Options, more ...grpc.DialOption) (healthpb.HealthClient, *throttle.Limiters) {
	t.Helper()
	limits, err := throttle.NewLimiters(c)
	require.NoError(t, err)
	pipe := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, s)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(pipe) }()
	dial := append(grpcthrottle.New(limits, o).DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///health.example.com:8443", append(dial, more...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		srv.Stop()
		require.NoError(t, <-served)
	})
	return healthpb.NewHealthClient(conn), limits
}

// check asks for a service.
func check(ctx context.Context, c healthpb.HealthClient, service string, opts ...grpc.CallOption) error {
	_, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: service}, opts...)
	return err
}

// used returns how much of a budget counts now, and for how long it is closed.
func used(t *testing.T, l *throttle.Limiters, policy, key string) (int, time.Duration) {
	t.Helper()
	one, err := l.Limiter(policy)
	require.NoError(t, err)
	st, err := one.Status(t.Context(), key)
	require.NoError(t, err)
	return st.Used, st.Paused
}

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) { readme.Vet(t) }
