package grpcthrottle_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/grpcthrottle"
)

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
