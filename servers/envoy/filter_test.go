package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
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

// A tape is a stream whose messages are known, and which ends behind them.
type tape struct {
	grpc.ServerStream
	ctx     context.Context
	in      []*extprocv3.ProcessingRequest
	replies []*extprocv3.ProcessingResponse
}

func (t *tape) Context() context.Context { return t.ctx }

func (t *tape) Recv() (*extprocv3.ProcessingRequest, error) {
	if len(t.in) == 0 {
		return nil, io.EOF
	}
	m := t.in[0]
	t.in = t.in[1:]
	return m, nil
}

func (t *tape) Send(m *extprocv3.ProcessingResponse) error {
	t.replies = append(t.replies, m)
	return nil
}

// newServer returns a server for calls without a connection.
func newServer(t *testing.T, policies ...throttle.Policy) (*envoy.Server, *throttle.Limiters) {
	store := memstore.New()
	transport, err := throttle.New(throttle.Config{Store: store, Policies: policies, Base: envoy.NewBase()})
	require.NoError(t, err)
	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Policies: throttle.WithoutAnswers(policies)})
	require.NoError(t, err)
	s, err := envoy.New(envoy.Config{Transport: transport, Limiters: limiters, MaxWait: throttle.NoWait})
	require.NoError(t, err)
	return s, limiters
}

// FuzzProcess: whatever messages come, each has at most one reply, and no slot stays taken.
func FuzzProcess(f *testing.F) {
	marshal := func(m *extprocv3.ProcessingRequest) []byte {
		text, err := proto.Marshal(m)
		require.NoError(f, err)
		return text
	}
	first := marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		Headers: headerMap(":method: POST", ":scheme: https", ":authority: api.example.com", ":path: /v1?x", "content-type: application/json"),
	}}})
	answered := marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(":status: 429", "retry-after: 9")}}})
	f.Add(first, marshal(bodyMessage(`{"model":"m"}`, true)), answered, marshal(answerMessage("x", true)))
	f.Add(first, answered, []byte{}, []byte{})
	f.Add([]byte{}, first, first, first)
	f.Fuzz(func(t *testing.T, one, two, three, four []byte) {
		in := new(tape)
		for _, text := range [][]byte{one, two, three, four} {
			m := new(extprocv3.ProcessingRequest)
			if proto.Unmarshal(text, m) == nil {
				in.in = append(in.in, m)
			}
		}
		count := len(in.in)

		keyed := policy("keyed", "/", throttle.PerHour(9))
		keyed.Key = throttle.BodyMember("model")
		keyed.Meter = func(*http.Response) throttle.Meter { return new(length) }
		s, limiters := newServer(t, keyed, policy("slots", "/", throttle.Concurrency(1)))
		ctx, cancel := context.WithCancel(t.Context())
		in.ctx = ctx
		_ = s.Process(in) // an error is an answer, too
		cancel()
		require.LessOrEqual(t, len(in.replies), count)

		slots, err := limiters.Limiter("slots")
		require.NoError(t, err)
		st, err := slots.Status(t.Context(), "")
		require.NoError(t, err)
		require.Zero(t, st.Used)
	})
}

// FuzzDescriptors: a call is answered with a status for each descriptor, or fails, and what is taken is its cost.
func FuzzDescriptors(f *testing.F) {
	f.Add("p", "policy", "p", uint32(1), uint64(0), false)
	f.Add("p", "key", "k", uint32(math.MaxUint32), uint64(math.MaxUint64), true)
	f.Add("", "share", "s", uint32(0), uint64(3), true)
	f.Fuzz(func(t *testing.T, domain, key, value string, hits uint32, own uint64, hasOwn bool) {
		s, limiters := newServer(t, policy("p", "/", throttle.PerHour(9)))
		d := describe(key, value)
		if hasOwn {
			d.HitsAddend = wrapperspb.UInt64(own)
		}
		answer, err := s.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: []*descriptorv3.RateLimitDescriptor{d}})

		cost := uint64(max(1, hits))
		if hasOwn {
			cost = own
		}
		if err != nil || answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
			cost = 0
		}
		if err == nil {
			require.Len(t, answer.GetStatuses(), 1)
		}
		p, failed := limiters.Limiter("p")
		require.NoError(t, failed)
		st, failed := p.Status(t.Context(), "")
		require.NoError(t, failed)
		require.EqualValues(t, cost, st.Used)
	})
}
