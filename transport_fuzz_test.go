package throttle_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// FuzzTransport sends a few odd requests, at odd moments, through odd policies to
// a base that does odd things, all in virtual time. Nothing panics but what the
// base panics with; each body is closed once; the request stays as it was; an
// error names its policy or is not ours; and nothing is left behind.
func FuzzTransport(f *testing.F) {
	for _, target := range []string{
		"https://user:" + secretToken + "@example.com:8443/a/b?access_token=" + secretToken, "*", "", "//example.com", "/only/a/path",
		"http://[fe80::1%25eth0]:80/%2e%2e//x;y/", "http://xn--bcher-kva.example/%zz", "http://bücher.example./a%2Fb/", "mailto:a@b",
		"http://a..b/", "https://EXAMPLE.com:/", "http://:80/", "http://[::1/", "http://example.com/\x00", "http://example.com:99999999/",
	} {
		f.Add(target, "GET", "1", []byte{})
		f.Add(target, "", "", []byte(target))
	}
	f.Add("http://example.com/x", "BREW\r\n", "Fri, 31 Dec 9999 23:59:59 GMT", []byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	for policy := range fuzzNames { // each alone, and always the same decision
		for decision := range byte(12) {
			mask := binary.LittleEndian.AppendUint16(nil, 1<<policy)
			f.Add("http://a.example.com/x", "GET", "1", append(mask, bytes.Repeat([]byte{decision}, 60)...))
		}
	}
	f.Fuzz(func(t *testing.T, target, method, field string, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			playTransport(t, &fuzzScript{field: field, rest: script}, target, method)
		})
	})
}

// playTransport plays one script.
func playTransport(t *testing.T, s *fuzzScript, target, method string) {
	backend, seen := memstore.New(), &events{}
	tr, err := throttle.New(throttle.Config{
		Store: backend, Policies: everywhere(s.policies()...), Base: &fuzzBase{script: s}, Observe: seen.observe,
		MaxWait: []time.Duration{0, 0, -1, time.Second}[s.next(4)],
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	var sent []*fuzzRequest
	for range 1 + s.next(4) {
		r := s.request(t, target, method)
		sent = append(sent, r)
		all.Go(func() { r.send(t, tr) })
		time.Sleep(s.moment())
	}
	if s.next(8) == 0 {
		require.NoError(t, tr.SetPolicies(everywhere(s.policies()...)))
	}
	all.Wait()
	time.Sleep(time.Second) // a base that tells of connections only now and then is given requests too early
	synctest.Wait()

	for _, r := range sent {
		r.check(t)
		for _, c := range tr.Explain(r.req) {
			st, err := backend.Status(t.Context(), c)
			require.NoError(t, err)
			if c.Limit.Kind() != store.KindLeakyBucket { // what a start costs there is yet to come
				require.Zero(t, st.Waiting, "P7: %s", c.Budget.Policy)
			}
			require.LessOrEqual(t, st.Paused, throttle.MaxPenalty)
			if c.Limit.Kind() == store.KindConcurrency {
				require.Zero(t, st.Used, "P13: in flight")
			}
		}
	}
	var told recording
	for _, e := range seen.all {
		told.see(e.Kind, e.Policy, e.Budget, e.Err)
		require.GreaterOrEqual(t, e.Duration, time.Duration(0))
		require.True(t, e.Kind != throttle.EventPenalized || e.Duration <= throttle.MaxPenalty)
	}
	require.NotContains(t, told.String(), secretToken)
}

// send sends the request, once at most.
func (r *fuzzRequest) send(t *testing.T, tr *throttle.Transport) {
	defer r.cancel()
	defer func() {
		if v := recover(); v != nil && v != errFuzzPanic {
			t.Errorf("P12: panicked with %v", v)
		}
	}()
	resp, err := tr.RoundTrip(r.req)
	r.err = err
	if err != nil && !errors.Is(err, errFuzzBase) {
		require.Nil(t, resp)
	}
	if resp == nil || err != nil {
		return // as the base has it
	}
	time.Sleep(r.reads)
	if resp.Body == nil || r.forgets {
		return // the context ends what is in flight
	}
	defer resp.Body.Close()
	if r.reads > 0 {
		_, _ = resp.Body.Read(make([]byte, 100))
	}
}

// check holds a request that is over against what is promised.
func (r *fuzzRequest) check(t *testing.T) {
	if r.body != nil {
		require.EqualValues(t, 1, r.body.closed.Load(), "P13: the body is closed once")
	}
	require.Equal(t, r.was, lookOf(r.req), "P13: the request is not changed")
	if r.err == nil || errors.Is(r.err, errFuzzBase) {
		return
	}
	var told recording
	told.see(r.err)
	require.NotContains(t, told.String(), secretToken)
	var limited *throttle.LimitError
	var wrong *throttle.ConfigError
	switch {
	case errors.As(r.err, &limited):
		require.Contains(t, fuzzNames, limited.Policy)
		require.ErrorContains(t, r.err, `"`+limited.Policy+`"`)
	case errors.As(r.err, &wrong):
		require.Contains(t, fuzzNames, wrong.Policy)
		require.ErrorContains(t, r.err, `"`+wrong.Policy+`"`)
	default:
		require.True(t, errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded), "%v", r.err)
	}
}

// A fuzzScript decides what happens: each byte is one decision, and when there are
// none left all is as usual.
type fuzzScript struct {
	mu    sync.Mutex
	rest  []byte
	field string // what headers hold
}

// next returns a number below n.
func (s *fuzzScript) next(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return int(b) % n
}

// moment is a short time, or a long one. It is never 0: in a bubble, goroutines that
// receive at once from timers that are over break the race detector (go.dev/issue/78156).
func (s *fuzzScript) moment() time.Duration {
	return []time.Duration{1, time.Microsecond, 7 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second, time.Hour}[s.next(6)]
}

// number is what a function makes of an answer that it does not understand.
func (s *fuzzScript) number() int {
	i := s.next(8)
	if i == 7 {
		panic(secretToken)
	}
	return []int{1, 0, 2, -1, 1000, math.MaxInt, math.MinInt}[i]
}

// fuzzNames are the names of all policies.
var fuzzNames = []string{"second", "flight", "keyed", "paced", "bucket", "day", "hosts", "shadow", "body", "node", "panics"}

// policies returns some of them.
func (s *fuzzScript) policies() (some []throttle.Policy) {
	verdict := func(*http.Response) throttle.Answer {
		a := throttle.Answer{Verdict: throttle.Verdict(s.next(6)), Close: time.Duration(s.number())}
		if a.Close.Abs() <= 1000 { // others are centuries
			a.Close *= time.Second
		}
		return a
	}
	everything := throttle.Join(throttle.Host, throttle.RawPath, throttle.Method, throttle.Header("X-Key"),
		throttle.Query("access_token"), func(r *http.Request) string { return r.PathValue("x") })
	all := []throttle.Policy{
		{Limit: throttle.PerSecond(2)},
		{Limit: throttle.Concurrency(1)},
		{Limit: throttle.SlidingWindow(1, 3*time.Second), Key: everything},
		{Limit: throttle.LeakyBucket(3, time.Second), Answer: func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(s.number()) }},
		{Limit: throttle.TokenBucket(1, time.Second, 2), Answer: func(*http.Response) (a throttle.Answer) {
			if q := (throttle.Quota{Left: s.number(), Reset: time.Duration(s.number())}); s.next(4) > 0 {
				a = a.WithLeft(q)
			}
			return a
		}},
		{Limit: throttle.CalendarWindow(5, throttle.Day, nil), Answer: verdict},
		{Match: "*.com/{x}/{rest...}", Limit: throttle.FixedWindow(3, 10*time.Second), Key: everything,
			Cost: func(*http.Request) int { return s.number() }},
		{Limit: throttle.PerMinute(1), Shadow: true, Cost: func(*http.Request) int { return s.number() }},
		{Limit: throttle.PerHour(9), Headroom: map[throttle.Priority]float64{throttle.PriorityNormal: 0.9}, Answer: func(r *http.Response) throttle.Answer {
			b, _ := feedback.PeekBody(r, 1<<20)
			return throttle.Refused(time.Duration(len(b)) * time.Millisecond)
		}},
		{Limit: throttle.Concurrency(2), Scope: throttle.ScopeNode},
		{Limit: throttle.PerHour(1), Key: func(r *http.Request) string { panic(r.URL.String()) }},
	}
	chosen := (s.next(256) | s.next(256)<<8) & (1<<len(all) - 1)
	if chosen == 0 { // without policies nothing is sent
		chosen = 1<<10 - 1
	}
	for i := range all {
		if all[i].Name = fuzzNames[i]; chosen>>i&1 == 1 {
			some = append(some, all[i])
		}
	}
	return some
}

// A fuzzRequest is one request, and what became of it.
type fuzzRequest struct {
	req     *http.Request
	was     string
	body    *responseBody // nil: none
	cancel  context.CancelFunc
	reads   time.Duration // after which the answer is read
	forgets bool          // the answer is never closed
	err     error
}

// request makes one of the target.
func (s *fuzzScript) request(t *testing.T, target, method string) *fuzzRequest {
	lasts := []time.Duration{time.Hour, 0, time.Millisecond, time.Second, 30 * time.Second, 3 * time.Hour}[s.next(6)]
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	if s.next(4) == 3 {
		time.AfterFunc(s.moment(), cancel)
	}
	r := &fuzzRequest{cancel: cancel, reads: s.moment(), forgets: s.next(4) == 3}
	r.req = (&http.Request{Method: method, URL: s.url(target)}).WithContext(ctx)
	switch s.next(4) {
	case 0:
		r.req.Header = http.Header{"X-Key": {s.field}, "Authorization": {"Bearer " + secretToken}}
	case 1:
		r.req.Header = http.Header{"X-Key": {strings.Repeat(s.field, 1000), secretToken}, "": {"\n"}, "\xff": nil}
	case 2:
		r.req.Header = http.Header{}
	}
	switch s.next(4) {
	case 1:
		r.req.Body = http.NoBody
	case 2:
		r.body = &responseBody{t: t}
		r.req.Body, r.req.ContentLength = r.body, -1
	case 3:
		r.body = &responseBody{t: t}
		r.req.Body, r.req.ContentLength = r.body, 5
		r.req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("not again") }
	}
	r.was = lookOf(r.req)
	return r
}

// url makes a URL of the target, also one that nobody could parse.
func (s *fuzzScript) url(target string) *url.URL {
	u, err := url.Parse(target)
	switch i := s.next(6); {
	case i == 0 && err == nil:
		return u
	case i == 1:
		return &url.URL{Scheme: "http", Opaque: target, RawQuery: target}
	case i == 2:
		return &url.URL{Path: target, RawPath: target, Fragment: target}
	case i == 3:
		return nil
	}
	return &url.URL{Scheme: "https", Host: target, Path: "/a//../" + target, RawQuery: "access_token=" + secretToken, User: url.UserPassword(target, secretToken)}
}

// lookOf is all that can be seen of a request.
func lookOf(r *http.Request) string {
	u := "none"
	if r.URL != nil {
		u = fmt.Sprintf("%#v %v", *r.URL, r.URL.User)
	}
	h := maps.Clone(r.Header)
	return fmt.Sprintf("%q %s %v %p %v %d %v %q %v", r.Method, u, h, r.Body, r.GetBody == nil, r.ContentLength, r.Close, r.Host, r.Pattern)
}

var (
	errFuzzBase  = errors.New("the base fails")
	errFuzzPanic = errors.New("the base panics")
)

// A fuzzAnswer is the body of an answer. A Read ends with the request's context and
// when the body is closed, as net/http has it.
type fuzzAnswer struct {
	script *fuzzScript
	ctx    context.Context
	close  context.CancelFunc
}

// Read implements io.Reader.
func (a *fuzzAnswer) Read(p []byte) (int, error) {
	select {
	case <-time.After(a.script.moment()):
	case <-a.ctx.Done():
		return 0, errFuzzBase
	}
	switch a.script.next(6) {
	case 1:
		return 0, errFuzzBase
	case 2:
		return 0, nil
	case 3:
		return copy(p, a.script.field), nil
	case 4:
		panic(errFuzzPanic)
	case 5:
		return len(p), io.EOF
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (a *fuzzAnswer) Close() error {
	a.close()
	return nil
}

// A fuzzBase is a base that keeps to the contract of http.RoundTripper where that
// says something, and to nothing else.
type fuzzBase struct{ script *fuzzScript }

func (b *fuzzBase) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	s := b.script
	if s.next(2) == 1 && !b.connect(r) {
		return nil, errFuzzBase
	}
	select {
	case <-time.After(s.moment()):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	switch s.next(12) {
	case 1:
		return nil, errFuzzBase
	case 2:
		return nil, nil
	case 3:
		panic(errFuzzPanic)
	case 4:
		return b.answer(r), errFuzzBase
	}
	return b.answer(r), nil
}

// connect tells of connections, more than one if the first is lost, and reports
// whether the request was written.
func (b *fuzzBase) connect(r *http.Request) bool {
	trace := httptrace.ContextClientTrace(r.Context())
	for range 1 + b.script.next(3) {
		time.Sleep(b.script.moment())
		if trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		if r.Context().Err() != nil || r.URL != nil && r.URL.Opaque == "\x7f" {
			return false
		}
		if trace != nil && trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
	}
	return true
}

// answer returns an answer of any status, with any body.
func (b *fuzzBase) answer(r *http.Request) *http.Response {
	s := b.script
	resp := &http.Response{Request: r, StatusCode: []int{200, 429, 503, 101, 0, -1, 999, 204}[s.next(8)]}
	if s.next(4) > 0 {
		resp.Header = http.Header{"Retry-After": {s.field}, "Date": {s.field}, "Content-Encoding": {[]string{"", "gzip"}[s.next(2)]}}
	}
	ctx, end := context.WithCancel(r.Context())
	body := &fuzzAnswer{s, ctx, end}
	switch s.next(5) {
	case 0:
		resp.Body = http.NoBody
	case 1:
		resp.Body = nil
	case 2:
		resp.Body = struct {
			io.ReadCloser
			io.Writer
		}{body, io.Discard}
	default:
		resp.Body = body
	}
	return resp
}
