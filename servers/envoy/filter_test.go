package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/envoy"
)

// A filter plays the filter ext_proc of Envoy 1.37 and later, as the protocol's messages and the documentation describe
// it: one message at a time, each with its own timeout; body modes NONE, BUFFERED and STREAMED; mode overrides in replies
// to headers, where they are allowed; a stream that is closed as soon as no further message can come; a request that
// fails if the stream fails (failure_mode_allow: false).
type filter struct {
	client    extprocv3.ExternalProcessorClient
	mode      *filterv3.ProcessingMode // nil: the default
	overrides bool                     // allow_mode_override
	timeout   time.Duration            // message_timeout; 0 means an hour
	trailing  bool                     // a request without a body has trailers
	upstream  func(*http.Request) answer
}

// An answer is an answer of the upstream.
type answer struct {
	status   int
	header   http.Header
	chunks   []string
	trailers bool
	flows    func() // called while the body flows to the caller
}

// An outcome is what became of a request.
type outcome struct {
	status   int
	header   http.Header
	body     string
	local    bool      // an immediate response of the server
	grpc     uint32    // grpc_status of an immediate response
	sent     time.Time // when the upstream got the request, zero if it did not
	messages []string  // that Envoy sent
	err      error     // of the stream
}

var errTimeout = errors.New("message timeout")

// do sends a request through the filter.
func (f *filter) do(ctx context.Context, method, target, body string, headers ...string) (o outcome) {
	ctx, reset := context.WithCancelCause(ctx)
	defer reset(nil)
	stream, err := f.client.Process(ctx)
	if err != nil {
		o.err = err
		return o
	}

	mode := &filterv3.ProcessingMode{
		RequestBodyMode: f.mode.GetRequestBodyMode(), ResponseBodyMode: f.mode.GetResponseBodyMode(), ResponseTrailerMode: f.mode.GetResponseTrailerMode(),
	}
	open, over := true, false
	// ask sends a message and returns the reply. With an immediate response, or after an error, over is true.
	ask := func(name string, m *extprocv3.ProcessingRequest) {
		if !open || over {
			return
		}
		o.messages = append(o.messages, name)
		if err := stream.Send(m); err != nil {
			_, o.err = stream.Recv()
			over, open = true, false
			if o.err == io.EOF {
				over, o.err = false, nil // a clean end: Envoy goes on alone
			}
			return
		}

		limit := f.timeout
		if limit == 0 {
			limit = time.Hour
		}
		timer := time.AfterFunc(limit, func() { reset(errTimeout) })
		reply, err := stream.Recv()
		timer.Stop()
		switch now := reply.GetImmediateResponse(); {
		case err == io.EOF:
			open = false // a clean end: Envoy goes on alone
		case err != nil:
			o.err, over = err, true
			if context.Cause(ctx) == errTimeout {
				o.err, o.status = errTimeout, http.StatusGatewayTimeout
			}
		case now != nil:
			over = true
			o.local, o.status, o.body, o.header, o.grpc = true, int(now.GetStatus().GetCode()), string(now.GetBody()), make(http.Header), now.GetGrpcStatus().GetStatus()
			for _, h := range now.GetHeaders().GetSetHeaders() {
				o.header.Add(h.GetHeader().GetKey(), string(h.GetHeader().GetRawValue()))
			}
		case f.overrides && reply.GetModeOverride() != nil && strings.HasSuffix(name, "Headers"):
			mode = reply.GetModeOverride()
		}

		if got := fmt.Sprintf("%T", reply.GetResponse()); err == nil && !over && !strings.HasSuffix(got, "_"+name) {
			o.err, over = fmt.Errorf("spurious message %s", got), true
		}
	}
	closeStream := func() {
		if open {
			_ = stream.CloseSend()
			reset(nil)
			open = false
		}
	}

	u, _ := url.Parse(target)
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: make(http.Header)}
	all := []string{":method: " + method, ":scheme: " + u.Scheme, ":authority: " + u.Host, ":path: " + u.RequestURI()}
	for _, h := range headers {
		all = append(all, h)
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}

	first := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(all...), EndOfStream: body == "" && !f.trailing}}}
	first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: mode.RequestBodyMode, ResponseBodyMode: mode.ResponseBodyMode}
	ask("RequestHeaders", first)
	if body != "" && mode.RequestBodyMode == filterv3.ProcessingMode_BUFFERED {
		ask("RequestBody", bodyMessage(body, true))
	}
	if body == "" && f.trailing && mode.RequestTrailerMode == filterv3.ProcessingMode_SEND {
		ask("RequestTrailers", &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: new(extprocv3.HttpTrailers)}})
	}
	if over {
		return o
	}

	o.sent = time.Now()
	a := f.upstream(req)
	o.status, o.header = a.status, a.header
	lines := []string{fmt.Sprintf(":status: %d", a.status)}
	for name, values := range a.header {
		for _, v := range values {
			lines = append(lines, strings.ToLower(name)+": "+v)
		}
	}

	bodiless := len(a.chunks) == 0 && !a.trailers
	ask("ResponseHeaders", &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(lines...), EndOfStream: bodiless},
	}})
	sendsTrailers := mode.ResponseTrailerMode == filterv3.ProcessingMode_SEND
	if bodiless || mode.ResponseBodyMode == filterv3.ProcessingMode_NONE && !sendsTrailers {
		closeStream()
	}

	if a.flows != nil {
		a.flows()
	}
	for i, chunk := range a.chunks {
		if mode.ResponseBodyMode != filterv3.ProcessingMode_NONE {
			ask("ResponseBody", answerMessage(chunk, i == len(a.chunks)-1 && !a.trailers))
		}
		o.body += chunk
	}
	if a.trailers && sendsTrailers {
		ask("ResponseTrailers", &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: new(extprocv3.HttpTrailers)}})
	}

	closeStream()
	return o
}

func headerMap(lines ...string) *corev3.HeaderMap {
	m := new(corev3.HeaderMap)
	for _, line := range lines {
		i := strings.Index(line[1:], ": ") + 1
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: strings.ToLower(line[:i]), RawValue: []byte(line[i+2:])})
	}
	return m
}

func bodyMessage(body string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: end}}}
}

func answerMessage(body string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: end}}}
}

// A scene is a server of this package with clients in memory.
type scene struct {
	*testing.T
	filter
	server    *envoy.Server
	transport *throttle.Transport
	limiters  *throttle.Limiters
	rls       ratelimitv3.RateLimitServiceClient
	conn      *grpc.ClientConn
	unfit     []string
}

// begin starts a server. change changes its configuration, and may be nil.
func begin(t *testing.T, store throttle.Store, change func(*envoy.Config), policies ...throttle.Policy) *scene {
	s := &scene{T: t}
	var err error
	s.transport, err = throttle.New(throttle.Config{Store: store, Policies: policies, Base: envoy.NewBase(), Observe: envoy.Observe})
	require.NoError(t, err)
	s.limiters, err = throttle.NewLimiters(throttle.Config{Store: store, Policies: throttle.WithoutAnswers(policies), Observe: envoy.Observe})
	require.NoError(t, err)

	c := envoy.Config{Transport: s.transport, Limiters: s.limiters, MaxWait: 10 * time.Minute, Unfit: func(detail string) { s.unfit = append(s.unfit, detail) }}
	if change != nil {
		change(&c)
	}
	s.server, err = envoy.New(c)
	require.NoError(t, err)

	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(pipe) }()
	s.conn, err = grpc.NewClient("passthrough:///envoy", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		s.conn.Close()
		over, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.server.Shutdown(over)
		require.NoError(t, <-served)
	})

	s.rls = ratelimitv3.NewRateLimitServiceClient(s.conn)
	s.filter = filter{client: extprocv3.NewExternalProcessorClient(s.conn), overrides: true, upstream: says(200)}
	return s
}

// says returns an upstream whose answers are all the same.
func says(status int, chunks ...string) func(*http.Request) answer {
	return func(*http.Request) answer { return answer{status: status, header: make(http.Header), chunks: chunks} }
}

// get sends a request without a body.
func (s *scene) get(target string, headers ...string) outcome {
	return s.do(s.Context(), "GET", target, "", headers...)
}

// status returns the status of the budget of a policy.
func (s *scene) status(policy, key string) throttle.Status {
	l, err := s.limiters.Limiter(policy)
	require.NoError(s, err)
	st, err := l.Status(context.Background(), key)
	require.NoError(s, err)
	return st
}

// requireWindows checks that no interval of length per holds more than n of the times.
func requireWindows(t *testing.T, times []time.Time, n int, per time.Duration) {
	slices.SortFunc(times, time.Time.Compare)
	for i := n; i < len(times); i++ {
		require.Greater(t, times[i].Sub(times[i-n]), per, "%d starts of %d", i, len(times))
	}
}

func policy(name, match string, l throttle.Limit) throttle.Policy {
	return throttle.Policy{Name: name, Match: match, Limit: l}
}
