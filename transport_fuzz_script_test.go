package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
)

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
	duration := func(*http.Response) time.Duration {
		n := time.Duration(s.number())
		if n.Abs() > 1000 {
			return n // centuries
		}
		return n * time.Second
	}
	everything := throttle.Join(throttle.Host, throttle.Path, throttle.Method, throttle.Header("X-Key"),
		throttle.Query("access_token"), throttle.PathValue("x"))
	all := []throttle.Policy{
		{Limit: throttle.PerSecond(2)},
		{Limit: throttle.Concurrency(1)},
		{Limit: throttle.SlidingWindow(1, 3*time.Second), Key: everything},
		{Limit: throttle.LeakyBucket(3, time.Second), Settle: func(*http.Response) int { return s.number() }},
		{Limit: throttle.TokenBucket(1, time.Second, 2), Quota: func(*http.Response) (throttle.Quota, bool) {
			return throttle.Quota{Left: s.number(), Reset: time.Duration(s.number())}, s.next(4) > 0
		}},
		{Limit: throttle.CalendarWindow(5, throttle.Day, nil), Penalty: duration},
		{Match: "*.com/{x}/{rest...}", Limit: throttle.FixedWindow(3, 10*time.Second), Key: everything,
			Cost: func(*http.Request) int { return s.number() }},
		{Limit: throttle.PerMinute(1), Shadow: true, Cost: func(*http.Request) int { return s.number() }},
		{Limit: throttle.PerHour(9), Headroom: map[throttle.Priority]float64{throttle.Normal: 0.9}, Penalty: func(r *http.Response) time.Duration {
			b, _ := throttle.PeekBody(r, 1<<20)
			return time.Duration(len(b)) * time.Millisecond
		}},
		{Limit: throttle.Concurrency(2), Scope: throttle.Node},
		{Limit: throttle.PerHour(1), Key: func(r *http.Request) string { panic(r.URL.String()) }},
	}
	chosen := s.next(256) | s.next(256)<<8
	if chosen == 0 {
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
