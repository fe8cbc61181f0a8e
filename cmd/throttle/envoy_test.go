package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A mesh is a server for Envoy that runs as a process of its own, and a connection of a filter.
type mesh struct {
	served
	conn *grpc.ClientConn
}

// startEnvoy starts a server for Envoy that follows a file.
func startEnvoy(t *testing.T, file string, flags ...string) *mesh {
	cmd, _ := startCommand(t, commandVariable, append([]string{"envoy", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)...)
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	s := &mesh{served: served{T: t, cmd: cmd, talk: bufio.NewReader(talk)}}
	line := s.line("the admin is at ")
	s.adminURL = strings.TrimSuffix(line[strings.Index(line, "http://"):], "readyz\n")
	line = s.line("the server for Envoy is at ")
	_, address, _ := strings.Cut(strings.TrimSpace(line), "http://")
	s.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// A call is a request that a filter shows to the server.
type call struct {
	extprocv3.ExternalProcessor_ProcessClient
	reply *extprocv3.ProcessingResponse
	err   error
}

// begin shows a request to a host, and returns when the server has replied.
func (s *mesh) begin(ctx context.Context, host string, headers ...string) *call {
	stream, err := extprocv3.NewExternalProcessorClient(s.conn).Process(ctx)
	if err != nil {
		return &call{err: err}
	}
	all := []*corev3.HeaderValue{{Key: ":method", RawValue: []byte("GET")}, {Key: ":scheme", RawValue: []byte("https")}, {Key: ":authority", RawValue: []byte(host)}, {Key: ":path", RawValue: []byte("/v1")}}
	for i := 0; i < len(headers); i += 2 {
		all = append(all, &corev3.HeaderValue{Key: headers[i], RawValue: []byte(headers[i+1])})
	}
	_ = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: all}, EndOfStream: true},
	}}) // a stream that has failed says so when it is read

	c := &call{ExternalProcessor_ProcessClient: stream}
	c.reply, c.err = stream.Recv()
	return c
}

// status is 200 for a request that may go on, and else the status of the immediate response.
func (c *call) status() int {
	if c.err != nil {
		return 0
	}
	if now := c.reply.GetImmediateResponse(); now != nil {
		return int(now.GetStatus().GetCode())
	}
	return 200
}

// answer shows an answer with a status, and reads the reply.
func (c *call) answer(code string, bodiless bool) error {
	_ = c.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", RawValue: []byte(code)}, {Key: "retry-after", RawValue: []byte("900")}}}, EndOfStream: bodiless,
	}}})
	_, err := c.Recv()
	return err
}

// TestP12_EnvoyKilled: twenty clients of two servers share a budget in Redis, whose starts a killed server has used all
// the same, and whose penalty it has told.
func TestP12_EnvoyKilled(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	file := newFile(t, "api.example.com", "30/h")
	servers := []*mesh{startEnvoy(t, file, at), startEnvoy(t, file, at)}

	var started atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 3 {
				c := servers[i%2].begin(t.Context(), "api.example.com", "prefer", "wait=0")
				if c.status() == 200 && c.answer("200", true) == nil {
					started.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 30, started.Load())

	require.NoError(t, servers[0].cmd.Process.Kill())
	_ = servers[0].cmd.Wait() // it was killed
	require.Equal(t, 429, servers[1].begin(t.Context(), "api.example.com").status())
	again := startEnvoy(t, file, at)
	require.Equal(t, 429, again.begin(t.Context(), "api.example.com").status())
}

// TestP11_EnvoyBan: a refusal that one server has seen closes the budget of another, also when the first is killed.
func TestP11_EnvoyBan(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	file := newFile(t, "api.example.com", "1000/s")
	one, two := startEnvoy(t, file, at), startEnvoy(t, file, at)
	c := one.begin(t.Context(), "api.example.com")
	require.Equal(t, 200, c.status())
	require.NoError(t, c.answer("429", true))

	// Envoy has its reply after 100 ms, and on a busy machine Redis is told later than that.
	budget, err := throttle.NewLimiter(redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "api", Limit: throttle.PerSecond(1000)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		told, err := budget.Status(t.Context(), "")
		return err == nil && told.Paused > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, one.cmd.Process.Kill())
	_ = one.cmd.Wait() // it was killed

	closed := two.begin(t.Context(), "api.example.com")
	require.Equal(t, 429, closed.status())
	require.Eventually(t, func() bool { // an answer of Redis is used for a second
		status, text := two.askAdmin("upstreams")
		return status == 503 && strings.Contains(text, `"policy":"api"`)
	}, time.Minute, 10*time.Millisecond)
}

// TestEnvoyStop: with SIGTERM a server is not ready, refuses what cannot start in time, lets a stream go on until its end,
// and ends.
func TestEnvoyStop(t *testing.T) {
	t.Parallel()
	file := newFile(t, "api.example.com", "1/h")
	s := startEnvoy(t, file, "--max-wait", "2h", "--stop-time", "10m")
	first := s.begin(t.Context(), "api.example.com")
	require.Equal(t, 200, first.status())
	status, _ := s.askAdmin("readyz")
	require.Equal(t, 200, status)

	waits := make(chan int, 1)
	go func() { waits <- s.begin(context.WithoutCancel(t.Context()), "api.example.com").status() }()
	s.metric("throttle_envoy_held 1")
	s.metric("throttle_envoy_streams 2")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 503, <-waits)
	status, _ = s.askAdmin("readyz")
	require.Equal(t, 503, status)
	s.metric(`throttle_envoy_refused_total{reason="stopping"} 1`)

	require.NoError(t, first.answer("200", true))
	_, err := first.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, s.cmd.Wait())
}

// TestEnvoyStopNow: a second signal ends a server with a stream, and so does the time to stop, which ends the stream
// without an error.
func TestEnvoyStopNow(t *testing.T) {
	t.Parallel()
	file := newFile(t, "api.example.com", "100/h")
	for _, c := range []struct {
		stopTime string
		signals  []os.Signal
		clean    bool
	}{
		{"1h", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, false},
		{"1h", []os.Signal{syscall.SIGTERM, os.Interrupt}, true},
		{"1h", []os.Signal{os.Interrupt, os.Interrupt}, false},
		{"1ms", []os.Signal{syscall.SIGTERM}, true},
	} {
		s := startEnvoy(t, file, "--stop-time", c.stopTime)
		stream := s.begin(t.Context(), "api.example.com")
		require.Equal(t, 200, stream.status())
		for i, signal := range c.signals {
			if i > 0 {
				require.Eventually(t, func() bool { status, _ := s.askAdmin("readyz"); return status == 503 }, time.Minute, time.Millisecond)
			}
			require.NoError(t, s.cmd.Process.Signal(signal))
		}
		if c.clean {
			_, err := stream.Recv()
			require.ErrorIs(t, err, io.EOF)
		}
		_ = s.cmd.Wait() // with the signal's code, or 0
	}
}

// TestP12_EnvoyWithoutRedis: while Redis is away requests are refused after --max-wait, and pass when it is back.
func TestP12_EnvoyWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	s := startEnvoy(t, newFile(t, "api.example.com", "100/h"), "--max-wait", "50ms", at)
	passes := func() bool { return s.begin(t.Context(), "api.example.com").status() == 200 }
	require.Eventually(t, passes, time.Minute, 10*time.Millisecond)
	server.Stop()
	require.Equal(t, 503, s.begin(t.Context(), "api.example.com").status())
	_, err := ratelimitv3.NewRateLimitServiceClient(s.conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "api", Descriptors: []*descriptorv3.RateLimitDescriptor{{}}})
	require.Equal(t, codes.Unavailable, status.Code(err))
	server.Restart()
	require.Eventually(t, passes, time.Minute, 10*time.Millisecond)
}

// TestEnvoyTells: stderr has what an operator must know, and no secret, and a changed file comes into force.
func TestEnvoyTells(t *testing.T) {
	t.Parallel()
	file := newFile(t, "api.example.com", "1/h")
	s := startEnvoy(t, file, "--budget-metrics")
	require.Equal(t, 200, s.begin(t.Context(), "other.example.com").status())
	require.Contains(t, s.line("no policy matches"), "other.example.com")
	_, err := ratelimitv3.NewRateLimitServiceClient(s.conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "nothing", Descriptors: []*descriptorv3.RateLimitDescriptor{{}}})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	s.line("ShouldRateLimit: descriptor 1: no policy has this name")
	s.metric("throttle_envoy_unfit_total 1")

	require.NoError(t, os.WriteFile(file, []byte("version: 1\npolicies:\n  - {name: api, match: api.example.com/, limit: 1/h}\n  - {name: named, match: none, limit: 1/h}\n"), 0o600))
	s.line("is in force")
	answer, err := ratelimitv3.NewRateLimitServiceClient(s.conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "named", Descriptors: []*descriptorv3.RateLimitDescriptor{{}}})
	require.NoError(t, err)
	require.Equal(t, ratelimitv3.RateLimitResponse_OK, answer.GetOverallCode())
	s.metric("throttle_envoy_file_applied 1")
}

// TestEnvoyToken: an address that other machines reach needs a token, which is not told.
func TestEnvoyToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(proxyToken+"\n"), 0o600))
	s := startEnvoy(t, newFile(t, "api.example.com", "1/h"), "--token-file", path)
	require.Equal(t, codes.Unauthenticated, status.Code(s.begin(t.Context(), "api.example.com").err))
	require.Equal(t, 200, s.begin(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+proxyToken), "api.example.com").status())

	for flags, says := range map[string]string{
		"--listen 0.0.0.0:0":            "--listen: other machines would reach this address, and could use up the budgets",
		"--listen 0.0.0.0:0 --expose":   "--expose: each machine that reaches the address could use up the budgets: set --token-file or THROTTLE_ENVOY_TOKEN",
		"--follow-hosts x":              "--follow-hosts bounds what is pushed",
		"--listen unix:/nowhere/at/all": "no such file",
	} {
		var talk strings.Builder
		code := run(t.Context(), append([]string{"envoy", newFile(t, "api.example.com", "1/h")}, strings.Fields(flags)...), io.Discard, &talk)
		require.Equal(t, exitUsage, code, flags)
		require.Contains(t, talk.String(), says)
	}
}

// A passing server is a server of ext_proc that lets everything through.
type passing struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (passing) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		reply := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: new(extprocv3.HeadersResponse)}}
		if m.GetResponseHeaders() != nil {
			reply.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: new(extprocv3.HeadersResponse)}
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// TestMeasureEnvoy says what a request that passes Envoy costs alone, with a server of ext_proc that lets everything
// through, and with throttle as a process of its own; and how much memory a waiting request takes.
func TestMeasureEnvoy(t *testing.T) {
	soak.Only(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	send := func() {
		resp, err := client.Get(upstream.URL)
		require.NoError(t, err)
		resp.Body.Close()
	}

	door, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(server, passing{})
	go func() { _ = server.Serve(door) }()
	defer server.Stop()
	conn, err := grpc.NewClient(door.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()

	redis := redistest.Single(t)
	file := newFile(t, "api.example.com", "1000000/s")
	ways := []*struct {
		name    string
		mesh    *mesh
		fastest map[int]time.Duration // of a call, by callers
	}{
		{name: "alone"},
		{name: "a server that lets all through", mesh: &mesh{served: served{T: t}, conn: conn}},
		{name: "throttle envoy, memory", mesh: startEnvoy(t, file)},
		{name: "throttle envoy, Redis", mesh: startEnvoy(t, file, "--redis", redis.URL())},
	}

	// The machine may have other work: the ways take turns, and the fastest round counts.
	const rounds, calls = 10, 1600
	for range rounds {
		for _, way := range ways {
			if way.fastest == nil {
				way.fastest = make(map[int]time.Duration)
			}
			for _, callers := range []int{1, 16} {
				began := time.Now()
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for range calls / callers {
							if way.mesh == nil {
								send()
								continue
							}
							ctx, end := context.WithCancel(t.Context())
							c := way.mesh.begin(ctx, "api.example.com")
							require.Equal(t, 200, c.status())
							send()
							require.NoError(t, c.answer("200", true))
							end()
						}
					})
				}
				all.Wait()
				took := time.Since(began) / calls
				if fastest := way.fastest[callers]; fastest == 0 || took < fastest {
					way.fastest[callers] = took
				}
			}
		}
	}

	number := func(s *mesh, name string) (n float64) {
		_, text := s.askAdmin("metrics")
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		_, err := fmt.Sscan(rest, &n)
		require.NoError(t, err)
		return n
	}
	for _, way := range ways {
		for _, callers := range []int{1, 16} {
			took := way.fastest[callers]
			t.Logf("%-32s %2d at once  %4d µs a call, %4.1f of alone, %4.2f of a server that lets all through",
				way.name, callers, took.Microseconds(), float64(took)/float64(ways[0].fastest[callers]), float64(took)/float64(ways[1].fastest[callers]))
		}
		if way.mesh != nil && way.mesh.cmd != nil {
			t.Logf("%-32s %.0f µs of processor time a call", way.name, 1e6*number(way.mesh, "process_cpu_seconds_total")/(2*rounds*calls))
		}
	}

	s := startEnvoy(t, newFile(t, "api.example.com", "1/h"), "--held", "5000", "--held-per-budget", "5000", "--max-wait", "9000h")
	require.Equal(t, 200, s.begin(t.Context(), "api.example.com").status())
	before := number(s, "process_resident_memory_bytes")
	for range 4000 {
		go s.begin(t.Context(), "api.example.com")
	}
	s.metric("throttle_envoy_held 4000")
	t.Logf("4000 requests wait, and each takes %.0f bytes of the process", (number(s, "process_resident_memory_bytes")-before)/4000)
}
