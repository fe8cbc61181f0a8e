package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/envoy"
	"github.com/fleetthrottle/throttle/store"
)

const api = "https://api.example.com/v1/send?token=SECRET"

// TestRequestsAreHeld until there is room, and refused with a time if that would take too long.
func TestRequestsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("send", "api.example.com/v1/", throttle.PerSecond(1)))
		first, second := s.get(api), s.get(api)
		require.Equal(t, []int{200, 200}, []int{first.status, second.status})
		require.Greater(t, second.sent.Sub(first.sent), time.Second)
		require.Equal(t, []string{"RequestHeaders", "ResponseHeaders"}, first.messages)

		for _, header := range []string{"accept: */*", "content-type: application/grpc"} {
			refused := s.get(api, "prefer: wait=0", header)
			require.True(t, refused.local)
			require.Equal(t, 429, refused.status)
			require.Equal(t, "2", refused.header.Get("Retry-After"))
			require.Equal(t, "application/problem+json", refused.header.Get("Content-Type"))
			require.Equal(t, "1.1 throttle", refused.header.Get("Via"))
			require.Contains(t, refused.body, `"policy":"send"`)
			require.NotContains(t, refused.body, "SECRET")
			require.Equal(t, header == "content-type: application/grpc", refused.grpc == uint32(codes.ResourceExhausted))
		}

		require.True(t, s.get("https://other.example.com/").sent.Equal(time.Now()), "no policy matches")
		require.EqualValues(t, 2, s.server.Stats().Refused["limit"])
		require.Empty(t, s.unfit)
	})
}

// TestRefusalsHaveATime, unless no wait helps: also where nobody knows when there is room.
func TestRefusalsHaveATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := policy("huge", "huge.example.com/", throttle.PerHour(9))
		huge.Cost = func(*http.Request) int { return 10 }
		broken := policy("broken", "broken.example.com/", throttle.PerHour(9))
		broken.Cost = func(*http.Request) int { return -1 }
		s := begin(t, memstore.New(), nil, huge, broken, policy("slots", "api.example.com/", throttle.Concurrency(1)))
		s.upstream = func(*http.Request) answer {
			refused := s.get(api, "prefer: wait=0")
			require.Equal(t, []any{429, "1"}, []any{refused.status, refused.header.Get("Retry-After")})
			return answer{status: 200}
		}
		require.Equal(t, 200, s.get(api).status)

		never := s.get("https://huge.example.com/")
		require.Equal(t, []any{429, ""}, []any{never.status, never.header.Get("Retry-After")})
		unreadable := s.get("https://broken.example.com/")
		require.Equal(t, 500, unreadable.status)
		require.Contains(t, unreadable.body, `"policy":"broken"`)
	})
}

// TestPriority: an urgent request goes before those that wait.
func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("p", "/", throttle.PerMinute(1)))
		s.get(api)
		started := make(chan string, 5)
		for _, urgency := range []string{"u=7", "u=8", "i, u=3", "U = \"1\"; x", "u=4"} {
			go func() {
				s.get(api, "priority: "+urgency)
				started <- urgency
			}()
			synctest.Wait()
		}
		for _, want := range []string{"U = \"1\"; x", "u=8", "i, u=3", "u=7", "u=4"} {
			require.Equal(t, want, <-started)
		}
	})
}

// TestRequestsAreMatched as a Transport matches them: by host, path, method and headers.
func TestRequestsAreMatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenant := policy("tenant", "api.example.com/", throttle.PerHour(99))
		tenant.Key = throttle.Header("X-Tenant")
		s := begin(t, memstore.New(), nil, tenant, policy("posts", "POST api.example.com/v1/{id}", throttle.PerHour(99)), policy("port", "api.example.com:8443/", throttle.PerHour(99)))

		s.do(t.Context(), "POST", "http://API.example.com/v1/7", "", "x-tenant: a")
		s.get("http://api.example.com:80/v1/%37?q", "x-tenant: a")
		s.get("https://api.example.com:8443/", "x-tenant: b")
		require.Equal(t, []int{2, 1, 1}, []int{s.status("tenant", "a").Used, s.status("posts", "").Used, s.status("port", "").Used})
	})
}

// A length meters a body by its length.
type length struct{ n int }

func (l *length) Write(p []byte) (int, error) { l.n += len(p); return len(p), nil }
func (l *length) Cost() int                   { return l.n }

// TestP11_AnswersTeach: status, headers and body of an answer close budgets, lower them and state costs, and the body is
// asked for only where a policy reads it.
func TestP11_AnswersTeach(t *testing.T) {
	refusedInBody := func(resp *http.Response) throttle.Answer {
		if text, _ := feedback.PeekBody(resp, 1<<10); strings.Contains(string(text), `"errcode":88`) {
			return throttle.Refused(20 * time.Second)
		}
		return throttle.Answer{}
	}
	says := func(a throttle.Answer) func(*http.Response) throttle.Answer {
		return func(*http.Response) throttle.Answer { return a }
	}
	type row struct {
		read   func(*http.Response) throttle.Answer
		meter  func(*http.Response) throttle.Meter
		answer answer
		used   int
		paused time.Duration
		asks   string // messages behind the headers of the answer
	}

	for name, c := range map[string]row{
		"nothing":                {answer: answer{status: 200, chunks: []string{"hello"}}, used: 1},
		"429":                    {answer: answer{status: 429, header: http.Header{"Retry-After": {"30"}}}, used: 1, paused: 30 * time.Second},
		"429 with a body":        {answer: answer{status: 429, header: http.Header{"Retry-After": {"30"}}, chunks: []string{"no"}}, used: 1, paused: 30 * time.Second},
		"a refusal in a body":    {read: refusedInBody, answer: answer{status: 200, chunks: []string{`{"errcode"`, `:88}`}}, used: 1, paused: 20 * time.Second, asks: "ResponseBody ResponseBody"},
		"a body before trailers": {read: refusedInBody, answer: answer{status: 200, chunks: []string{`{"errcode":88}`}, trailers: true}, used: 1, paused: 20 * time.Second, asks: "ResponseBody ResponseTrailers"},
		"no refusal in a body":   {read: refusedInBody, answer: answer{status: 200, chunks: []string{`{"errcode":0}`}}, used: 1, asks: "ResponseBody"},
		"no body to read":        {read: refusedInBody, answer: answer{status: 204}, used: 1},
		"a cost":                 {read: says(throttle.Answer{}.WithCost(7)), answer: answer{status: 200, chunks: []string{"x"}}, used: 7},
		"a quota":                {read: says(throttle.Answer{}.WithLeft(throttle.Quota{Left: 10, Reset: time.Minute})), answer: answer{status: 200}, used: 90},
		"a metered body":         {meter: func(*http.Response) throttle.Meter { return new(length) }, answer: answer{status: 200, chunks: []string{"four", "four", "4"}}, used: 9, asks: "ResponseBody ResponseBody ResponseBody"},
		"a metered body that nobody meters": {
			meter: func(*http.Response) throttle.Meter { return nil }, answer: answer{status: 200, chunks: []string{"four"}}, used: 1, asks: "ResponseBody",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy("p", "api.example.com/", throttle.PerHour(100))
				p.Answer, p.Meter = c.read, c.meter
				s := begin(t, memstore.New(), nil, p)
				s.upstream = func(*http.Request) answer { return c.answer }

				o := s.get(api)
				synctest.Wait()
				require.NoError(t, o.err)
				require.Equal(t, c.answer.status, o.status)
				require.Equal(t, strings.Join(c.answer.chunks, ""), o.body)
				require.Equal(t, strings.TrimSpace("RequestHeaders ResponseHeaders "+c.asks), strings.Join(o.messages, " "))
				require.Equal(t, c.used, s.status("p", "").Used)
				require.Equal(t, c.paused, s.status("p", "").Paused)
			})
		})
	}
}

// TestBodiesOfRequests: a body is asked for where a policy reads it, and the request is held with its body. A filter that
// does not allow that is told.
func TestBodiesOfRequests(t *testing.T) {
	model := policy("model", "api.example.com/v1/", throttle.PerSecond(1))
	model.Key = throttle.BodyMember("model")
	plain := policy("plain", "other.example.com/", throttle.PerSecond(1))
	inFlight := policy("in flight", "api.example.com/v1/", throttle.Concurrency(1))
	inFlight.Key = throttle.BodyMember("model")
	buffered := &filterv3.ProcessingMode{RequestBodyMode: filterv3.ProcessingMode_BUFFERED}

	for name, c := range map[string]struct {
		target    string
		body      string
		mode      *filterv3.ProcessingMode
		overrides bool
		messages  string
		held      bool
		unfit     string
	}{
		"a body that is read":              {api, `{"model":"m"}`, nil, true, "RequestHeaders RequestBody ResponseHeaders", true, ""},
		"a body that nobody reads":         {"https://other.example.com/", `{"model":"m"}`, nil, true, "RequestHeaders ResponseHeaders", true, ""},
		"a request without a body":         {api, "", nil, true, "RequestHeaders ResponseHeaders", true, ""},
		"BUFFERED by configuration":        {api, `{"model":"m"}`, buffered, false, "RequestHeaders RequestBody ResponseHeaders", true, ""},
		"BUFFERED, and nobody reads":       {"https://other.example.com/", "x", buffered, false, "RequestHeaders RequestBody ResponseHeaders", true, ""},
		"trailers without a body":          {api, "", nil, true, "RequestHeaders RequestTrailers ResponseHeaders", true, ""},
		"a filter that allows no override": {api, `{"model":"m"}`, nil, false, "RequestHeaders ResponseHeaders", false, "allow_mode_override"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, memstore.New(), nil, model, plain, inFlight)
				s.mode, s.overrides, s.trailing = c.mode, c.overrides, name == "trailers without a body"
				first := s.do(t.Context(), "POST", c.target, c.body, "content-type: application/json")
				second := s.do(t.Context(), "POST", c.target, c.body, "content-type: application/json")
				require.Equal(t, c.messages, strings.Join(second.messages, " "))
				require.NoError(t, second.err)
				require.Equal(t, c.held, second.sent.Sub(first.sent) > time.Second)
				require.Equal(t, c.unfit != "", len(s.unfit) > 0)
				require.Contains(t, strings.Join(s.unfit, ""), c.unfit)
				require.EqualValues(t, 200, second.status)
			})
		})
	}
}

// TestP6_InFlight: a slot is taken until the answer is over, and comes back however the stream ends.
func TestP6_InFlight(t *testing.T) {
	for name, c := range map[string]struct {
		answer  answer
		trailer filterv3.ProcessingMode_HeaderSendMode
		allows  bool // allow_mode_override
		during  int  // slots while the body of the answer flows
		cut     bool // the caller leaves meanwhile
	}{
		"a body":                      {answer: answer{status: 200, chunks: []string{"a", "b"}}, allows: true, during: 1},
		"trailers":                    {answer: answer{status: 200, chunks: []string{"a"}, trailers: true}, allows: true, during: 1},
		"no body":                     {answer: answer{status: 204}, allows: true},
		"a caller that leaves":        {answer: answer{status: 200, chunks: []string{"a"}}, allows: true, during: 1, cut: true},
		"trailers by configuration":   {answer: answer{status: 200, chunks: []string{"a"}}, trailer: filterv3.ProcessingMode_SEND, during: 1},
		"a filter that shows headers": {answer: answer{status: 200, chunks: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, memstore.New(), nil, policy("p", "api.example.com/", throttle.Concurrency(3)))
				s.mode, s.overrides = &filterv3.ProcessingMode{ResponseTrailerMode: c.trailer}, c.allows
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.upstream = func(*http.Request) answer {
					require.Equal(t, 1, s.status("p", "").Used)
					a := c.answer
					a.flows = func() {
						synctest.Wait()
						require.Equal(t, c.during, s.status("p", "").Used)
						if c.cut {
							cancel()
						}
					}
					return a
				}
				s.do(ctx, "GET", api, "")
				synctest.Wait()
				require.Zero(t, s.status("p", "").Used)
				require.Zero(t, s.server.Stats().Streams)
			})
		})
	}
}

// TestP7_CutCalls: a caller that leaves gives its place and its slot back, in whatever state its request is, and those
// behind it move up.
func TestP7_CutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("rate", "api.example.com/", throttle.PerSecond(1)), policy("slots", "api.example.com/", throttle.Concurrency(2)))
		require.Equal(t, 200, s.get(api).status)

		leaving, leave := context.WithCancel(t.Context())
		var left sync.WaitGroup
		for range 100 {
			left.Go(func() { require.Error(t, s.do(leaving, "GET", api, "").err) })
		}
		synctest.Wait()
		require.Equal(t, 100, s.server.Stats().Held)

		last := make(chan outcome, 1)
		began := time.Now()
		go func() { last <- s.get(api) }()
		synctest.Wait()
		leave()
		left.Wait()
		o := <-last
		require.Equal(t, 200, o.status)
		require.Less(t, o.sent.Sub(began), 3*time.Second)
		synctest.Wait()

		stats := s.server.Stats()
		require.Equal(t, []any{0, int64(0), int64(100)}, []any{stats.Held, stats.Streams, stats.Left})
		require.Zero(t, s.status("slots", "").Used)
		require.Zero(t, s.status("rate", "").Waiting)

		// A stream whose client says that no message follows has ended, too.
		half, err := s.client.Process(t.Context())
		require.NoError(t, err)
		require.NoError(t, half.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(":method: GET", ":authority: api.example.com", ":path: /"), EndOfStream: true},
		}}))
		synctest.Wait()
		require.Equal(t, 1, s.server.Stats().Held)
		require.NoError(t, half.CloseSend())
		_, err = half.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Zero(t, s.server.Stats().Held)

		// A stream that is cut after the start has used its start, and gives its slot back.
		ctx, cancel := context.WithCancel(t.Context())
		s.upstream = func(*http.Request) answer { cancel(); return answer{status: 200} }
		s.do(ctx, "GET", api, "")
		synctest.Wait()
		require.Zero(t, s.status("slots", "").Used)
		require.Equal(t, 1, s.status("rate", "").Used)
	})
}

// TestP5_AThousandWait on one connection, and start in order of arrival.
func TestP5_AThousandWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), func(c *envoy.Config) { c.HeldPerBudget = 1024 }, policy("p", "api.example.com/", throttle.PerSecond(50)))
		var order []string
		var mu sync.Mutex
		s.upstream = func(r *http.Request) answer {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Header.Get("X-Number"))
			return answer{status: 200}
		}

		var times []time.Time
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				o := s.get(api, fmt.Sprintf("x-number: %04d", i))
				require.Equal(t, 200, o.status)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, o.sent)
			})
			synctest.Wait() // the next comes later
		}
		require.GreaterOrEqual(t, s.server.Stats().Held, 900)
		all.Wait()

		requireWindows(t, times, 50, time.Second)
		require.True(t, slices.IsSorted(order))
		require.Zero(t, s.server.Stats().Held)
	})
}

// TestP1_TwentyAtOnce: twenty servers with clients of their own keep a limit together.
func TestP1_TwentyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		common := memstore.New()
		var times []time.Time
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			s := begin(t, common, nil, policy("p", "api.example.com/", throttle.SlidingWindow(40, time.Second)))
			for range 10 {
				all.Go(func() {
					for range 3 {
						o := s.get(api)
						mu.Lock()
						times = append(times, o.sent)
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		require.Len(t, times, 600)
		requireWindows(t, times, 40, time.Second)
	})
}

// TestHostileMessages: a stream out of order fails, a request that no policy could match is refused, and nothing is
// spent, held or left behind.
func TestHostileMessages(t *testing.T) {
	first := func(lines ...string) *extprocv3.ProcessingRequest {
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(lines...), EndOfStream: true}}}
	}
	good := []string{":method: GET", ":authority: api.example.com", ":path: /"}
	mode := func(c *extprocv3.ProtocolConfiguration) *extprocv3.ProcessingRequest {
		m := first(good...)
		m.ProtocolConfig = c
		return m
	}
	observed := first(good...)
	observed.ObservabilityMode = true

	for name, c := range map[string]struct {
		first *extprocv3.ProcessingRequest
		code  codes.Code // of the stream
		http  int        // of an immediate response
	}{
		"nothing in it":           {new(extprocv3.ProcessingRequest), codes.InvalidArgument, 0},
		"a body first":            {bodyMessage("x", true), codes.InvalidArgument, 0},
		"an answer first":         {answerMessage("x", true), codes.InvalidArgument, 0},
		"no headers":              {first(), codes.OK, 400},
		"no method":               {first(good[1:]...), codes.OK, 400},
		"no authority":            {first(good[0], good[2]), codes.OK, 400},
		"no path":                 {first(good[:2]...), codes.OK, 400},
		"two authorities":         {first(append(good, ":authority: other.example.com")...), codes.OK, 400},
		"two paths":               {first(append(good, ":path: /x")...), codes.OK, 400},
		"a path that is a URL":    {first(good[0], good[1], ":path: https://other.example.com/"), codes.OK, 400},
		"a path with a wrong %":   {first(good[0], good[1], ":path: /%zz"), codes.OK, 400},
		"headers above the bound": {first(append(good, "x-long: "+strings.Repeat("x", 3<<20))...), codes.ResourceExhausted, 0},
		"observability mode":      {observed, codes.InvalidArgument, 0},
		"STREAMED bodies":         {mode(&extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_STREAMED}), codes.InvalidArgument, 0},
		"duplex bodies":           {mode(&extprocv3.ProtocolConfiguration{ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED}), codes.InvalidArgument, 0},
		"silence":                 {nil, codes.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, memstore.New(), nil, policy("p", "/", throttle.PerHour(9)))
				stream, err := s.client.Process(t.Context())
				require.NoError(t, err)
				if c.first != nil {
					_ = stream.Send(c.first) // a stream that has failed says so when it is read
				}
				reply, err := stream.Recv()
				require.Equal(t, c.code, status.Code(err), err)
				require.EqualValues(t, c.http, reply.GetImmediateResponse().GetStatus().GetCode())
				if c.code == codes.OK {
					_, err = stream.Recv()
					require.ErrorIs(t, err, io.EOF)
				}
				require.Zero(t, s.status("p", "").Used)
				synctest.Wait()
				require.Zero(t, s.server.Stats().Streams)
			})
		})
	}
}

// TestOutOfOrderAfterTheStart: the stream ends without an error, so that the caller gets the answer, and gives its slot
// back.
func TestOutOfOrderAfterTheStart(t *testing.T) {
	for name, second := range map[string]*extprocv3.ProcessingRequest{
		"a body before its headers": answerMessage("x", false),
		"the headers again":         {Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}},
		"nothing in it":             {},
		"an answer without status":  {Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(":status: x")}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, memstore.New(), nil, policy("p", "/", throttle.Concurrency(1)))
				stream, err := s.client.Process(t.Context())
				require.NoError(t, err)
				require.NoError(t, stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
					RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(":method: GET", ":authority: a.example.com", ":path: /"), EndOfStream: true},
				}}))
				reply, err := stream.Recv()
				require.NoError(t, err)
				require.NotNil(t, reply.GetRequestHeaders())
				require.NoError(t, stream.Send(second))
				for err == nil {
					_, err = stream.Recv()
				}
				require.ErrorIs(t, err, io.EOF)
				synctest.Wait()
				require.Zero(t, s.status("p", "").Used)
			})
		})
	}
}

// A deadStore cannot be asked.
type deadStore struct{ throttle.Store }

func (deadStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, errors.New("redis is away")
}

// TestP12_TheStoreIsAway: requests are refused with 503, and not let through.
func TestP12_TheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, deadStore{memstore.New()}, nil, policy("p", "/", throttle.PerSecond(1)))
		o := s.get(api)
		require.True(t, o.local, "%v", o.err)
		require.Equal(t, []any{503, "1"}, []any{o.status, o.header.Get("Retry-After")})
		require.EqualValues(t, 1, s.server.Stats().Refused["store"])
	})
}

// TestPlacesAreBounded: too many requests that wait, in all or for one budget, are refused.
func TestPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keyed := policy("p", "/", throttle.PerHour(1))
		keyed.Key = throttle.Header("X-Key")
		s := begin(t, memstore.New(), func(c *envoy.Config) { c.Held, c.HeldPerBudget, c.MaxWait = 3, 2, throttle.Forever }, keyed)
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"a", "b"} {
			require.Equal(t, 200, s.get(api, "x-key: "+key).status)
		}
		for _, key := range []string{"a", "a", "b"} {
			go s.do(ctx, "GET", api, "", "x-key: "+key)
			synctest.Wait()
			if key == "a" && s.server.Stats().Held == 2 {
				full := s.get(api, "x-key: a")
				require.Equal(t, 503, full.status)
				require.Contains(t, full.body, "same budget")
				require.Contains(t, full.body, `"policy":"p"`)
			}
		}
		full := s.get(api, "x-key: c")
		require.Equal(t, []any{503, "1"}, []any{full.status, full.header.Get("Retry-After")})
		require.Contains(t, full.body, "too many requests wait")
		cancel()
		synctest.Wait()
		require.Equal(t, 200, s.get(api, "x-key: c").status)
		require.EqualValues(t, 2, s.server.Stats().Refused["held"])
	})
}

// TestStop: new requests are refused, requests that start in time start, others are refused at once, and answers in
// progress continue until Shutdown cuts their streams, without an error.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("rate", "api.example.com/", throttle.PerSecond(1)), policy("slots", "slow.example.com/", throttle.Concurrency(1)))
		s.get(api)
		outcomes := make(chan outcome, 4)
		for range 4 {
			go func() { outcomes <- s.get(api) }()
			synctest.Wait()
		}

		flows := make(chan struct{})
		slow := s.filter
		slow.upstream = func(*http.Request) answer {
			return answer{status: 200, chunks: []string{"x"}, trailers: true, flows: func() { <-flows }}
		}
		streamed := make(chan outcome, 1)
		go func() { streamed <- slow.do(t.Context(), "GET", "https://slow.example.com/", "") }()
		synctest.Wait()
		require.Equal(t, 1, s.status("slots", "").Used)

		s.server.Stop(2500 * time.Millisecond)
		over, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.server.Shutdown(over) }()
		synctest.Wait()
		require.Error(t, s.get(api).err, "no new connection is accepted")

		var statuses []int
		for range 4 {
			statuses = append(statuses, (<-outcomes).status)
		}
		require.Equal(t, []int{503, 503, 200, 200}, statuses, "those that cannot start in time are refused at once")

		require.Equal(t, 1, s.status("slots", "").Used)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.Zero(t, s.status("slots", "").Used)
		close(flows)
		o := <-streamed
		require.NoError(t, o.err)
		require.Equal(t, "x", o.body)
	})
}

// TestStopRefusesLateStarts: a request that hears of a start behind the deadline while the server stops is refused at once.
func TestStopRefusesLateStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, lateStore{memstore.New()}, nil, policy("rate", "api.example.com/", throttle.PerSecond(1)))
		l, err := s.limiters.Limiter("rate")
		require.NoError(t, err)
		require.NoError(t, l.Pause(t.Context(), "", 5*time.Minute))
		outcomes := make(chan outcome, 1)
		begun := time.Now()
		go func() { outcomes <- s.get(api) }()
		synctest.Wait()

		s.server.Stop(time.Minute)
		o := <-outcomes
		require.Equal(t, 503, o.status)
		require.Less(t, time.Since(begun), 2*time.Second, "not at the deadline")
	})
}

// A lateStore answers after a second.
type lateStore struct{ throttle.Store }

func (s lateStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	time.Sleep(time.Second)
	return s.Store.Book(ctx, b)
}

// TestStopRefuses new requests while the connections are open.
func TestStopRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("p", "/", throttle.PerHour(9)))
		s.server.Stop(time.Minute)
		o := s.get(api)
		require.Equal(t, []any{503, "1", true}, []any{o.status, o.header.Get("Retry-After"), o.local})
		health, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, health.GetStatus())
		require.Zero(t, s.status("p", "").Used)
	})
}

// TestToken: a call without the token fails, and with it passes.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), func(c *envoy.Config) { c.Token = "0123456789abcdefghijkl" }, policy("p", "/", throttle.PerHour(9)))
		for _, value := range []string{"", "Bearer", "Bearer x", "Basic 0123456789abcdefghijkl"} {
			o := s.do(metadata.AppendToOutgoingContext(t.Context(), "authorization", value), "GET", api, "")
			require.Equal(t, codes.Unauthenticated, status.Code(o.err))
		}
		require.Equal(t, 200, s.do(metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer 0123456789abcdefghijkl"), "GET", api, "").status)
		require.EqualValues(t, 4, s.server.Stats().Refused["token"])
		require.Equal(t, 1, s.status("p", "").Used)
	})
}

// TestShutdownEndsWatches: a client that watches the server's health does not hold the server up, and hears that the server stops.
func TestShutdownEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("rate", "api.example.com/", throttle.PerMinute(1)))
		w, err := healthpb.NewHealthClient(s.conn).Watch(t.Context(), new(healthpb.HealthCheckRequest))
		require.NoError(t, err)
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
			r, err := w.Recv()
			require.NoError(t, err)
			require.Equal(t, want, r.Status)
			s.server.Stop(time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, s.server.Shutdown(ctx))
	})
}

// TestMessageTimeout: a filter whose message_timeout is shorter than a wait fails the request, and its place is given
// back.
func TestMessageTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, memstore.New(), nil, policy("p", "/", throttle.PerMinute(1)))
		s.timeout = 200 * time.Millisecond
		require.Equal(t, 200, s.get(api).status)
		require.Equal(t, 504, s.get(api).status)
		synctest.Wait()
		require.Zero(t, s.server.Stats().Held)
	})
}

// A slowStore takes a second to hear of a penalty.
type slowStore struct{ throttle.Store }

func (s slowStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	time.Sleep(time.Second)
	return s.Store.Refuse(ctx, c, r)
}

// TestASlowStoreHoldsNoAnswer for longer than the default message_timeout allows.
func TestASlowStoreHoldsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, slowStore{memstore.New()}, nil, policy("p", "/", throttle.PerHour(9)))
		s.timeout = 200 * time.Millisecond
		s.upstream = func(*http.Request) answer { return answer{status: 429, header: http.Header{"Retry-After": {"30"}}} }
		o := s.get(api)
		require.NoError(t, o.err)
		require.Equal(t, 429, o.status)
		time.Sleep(2 * time.Second)
		require.NotZero(t, s.status("p", "").Paused)
	})
}

// TestPanics: a policy whose function ends its handler ends one call.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy("p", "/", throttle.PerHour(9))
		p.Key = func(*http.Request) string { panic(http.ErrAbortHandler) }
		s := begin(t, memstore.New(), nil, p)
		o := s.get(api)
		require.Equal(t, codes.Internal, status.Code(o.err))
		require.NotContains(t, strings.Join(s.unfit, ""), "SECRET")
		require.Len(t, s.unfit, 1)
	})
}

// TestConfigMistakes are reported at once.
func TestConfigMistakes(t *testing.T) {
	_, err := envoy.New(envoy.Config{Held: -1, HeldPerBudget: -1})
	for _, field := range []string{"Transport", "Held", "HeldPerBudget"} {
		require.ErrorContains(t, err, "Config."+field+" is")
	}
	direct, err := throttle.New(throttle.Config{Store: memstore.New()})
	require.NoError(t, err)
	_, err = envoy.New(envoy.Config{Transport: direct})
	require.ErrorContains(t, err, "NewBase")

	alone, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{policy("p", "/", throttle.PerHour(9))}, Base: envoy.NewBase()})
	require.NoError(t, err)
	_, err = (&http.Client{Transport: alone}).Get("https://api.example.com/") //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "for requests of Envoy")
}
