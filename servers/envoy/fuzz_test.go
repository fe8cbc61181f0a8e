package envoy_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"testing"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/envoy"
)

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
