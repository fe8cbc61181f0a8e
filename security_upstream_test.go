package throttle_test

import (
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

// A hostile upstream is one that says whatever makes a fleet stand still, read
// without end, or do without what has nothing to do with it. SECURITY.md says what
// it can do all the same.

// lies are fields of an answer that would stop a fleet if they were believed.
var lies = []http.Header{
	{"Retry-After": {"3153600000"}}, // a century
	{"Retry-After": {strings.Repeat("9", 4000)}},
	{"Retry-After": {strings.Repeat("9", 400) + "." + strings.Repeat("9", 400)}},
	{"Retry-After": {"1e300"}}, {"Retry-After": {"Inf"}}, {"Retry-After": {"NaN"}}, {"Retry-After": {"0x7fffffffffffffff"}},
	{"Retry-After": {"-1"}}, {"Retry-After": {"-99999999999999999999"}}, {"Retry-After": {""}}, {"Retry-After": {"\x00"}},
	{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
	{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}, "Date": {"Mon, 01 Jan 0001 00:00:00 GMT"}},
	{"Retry-After": {"Thu, 01 Jan 1970 00:00:00 GMT"}, "Date": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
	{"Retry-After": {"1", "3153600000"}}, {"Retry-After": {"3153600000", "1"}}, {"Retry-After": {"1, 3153600000"}},
	{"Ratelimit": {`"a";r=0;t=3153600000`}, "Ratelimit-Policy": {`"a";q=9999999999;w=1`}},
	{"Ratelimit": {`"a";r=-1;t=-1`}}, {"Ratelimit": {strings.Repeat(`"a";r=0;t=999999999999999,`, 999) + `"b"`}},
	{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9999999999999"}},
	{"X-Ratelimit-Remaining": {"-1"}, "X-Ratelimit-Reset": {"1"}},
	{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"Fri, 31 Dec 9999 23:59:59 GMT"}},
}

// TestP11_NoLieLastsLongerThanItsCap sends each lie with each status, to the
// default penalty and to one that believes all it reads.
func TestP11_NoLieLastsLongerThanItsCap(t *testing.T) {
	believes := feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset", Status: []int{200, 302, 400, 403, 429, 500, 503}}
	for _, c := range []struct {
		name   string
		policy throttle.Policy
		most   time.Duration
	}{
		{"default", throttle.Policy{}, time.Hour},
		{"headers", throttle.Policy{Answer: believes.Answer}, throttle.MaxPenalty},
		{"rate limit", throttle.Policy{Answer: feedback.RateLimit{}.Answer}, throttle.MaxPenalty},
		{"a century", throttle.Policy{Answer: feedback.For(100 * 365 * 24 * time.Hour)}, throttle.MaxPenalty},
		{"forever", throttle.Policy{
			Answer: func(*http.Response) throttle.Answer {
				return throttle.Refused(math.MaxInt64).WithLeft(throttle.Quota{Left: math.MinInt, Reset: math.MaxInt64})
			},
		}, throttle.MaxPenalty},
		{"negative", throttle.Policy{
			Answer: func(*http.Response) throttle.Answer {
				return throttle.Refused(math.MinInt64).WithCost(math.MinInt).WithLeft(throttle.Quota{Left: math.MaxInt, Reset: math.MinInt64})
			},
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, lie := range lies {
					for _, code := range []int{200, 302, 400, 403, 429, 500, 503} {
						store := memstore.New()
						p := c.policy
						p.Name, p.Limit = "one", throttle.PerSecond(9)
						tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(p), Base: lying(code, lie)}))
						require.NoError(t, send(t, tr, get(t, home)))
						st := status(t, store, tr, get(t, home))
						require.LessOrEqual(t, st.Paused, c.most, "%d %v", code, lie)
						require.LessOrEqual(t, st.Wait, c.most+time.Second, "%d %v", code, lie)
						if code == 200 && c.name == "default" {
							require.Zero(t, st.Paused, "a success closes nothing")
						}
					}
				}
			})
		})
	}
}

// lying answers with that header.
func lying(code int, h http.Header) base {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: h.Clone(), Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, nil
	}
}

// A counting body has no end, and counts how much of it was read.
type countingBody struct {
	read  atomic.Int64
	delay time.Duration // before each read
}

func (b *countingBody) Read(p []byte) (int, error) {
	time.Sleep(b.delay)
	b.read.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (b *countingBody) Close() error { return nil }

// TestP11_NoBodyIsReadWithoutEnd: a body that never ends is looked at so far, and
// one that comes slowly for so long.
func TestP11_NoBodyIsReadWithoutEnd(t *testing.T) {
	code := feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"88": time.Minute}}
	for _, c := range []struct {
		name string
		body *countingBody
		most time.Duration
	}{
		{"endless", &countingBody{}, 0},
		{"slow", &countingBody{delay: 300 * ms}, time.Second},
		{"stalled", &countingBody{delay: time.Hour}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
					h := http.Header{"Content-Type": {"application/json"}}
					return &http.Response{StatusCode: 200, Header: h, Body: c.body, ContentLength: -1, Request: r}, nil
				}), throttle.Policy{Name: "one", Limit: throttle.PerSecond(9), Answer: code.Answer})
				began := time.Now()
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), c.most)
				require.NoError(t, resp.Body.Close())
				time.Sleep(2 * time.Hour) // a read that is on its way cannot be called off
				require.LessOrEqual(t, c.body.read.Load(), int64(64<<10+4<<10))
			})
		})
	}
}

// TestP11_GzipBombs: what the base unpacks by itself, and what it leaves packed, is
// looked at so far and no further.
func TestP11_GzipBombs(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		bomb := gzip.NewWriter(w)
		zeros := make([]byte, 1<<20)
		for range 4 {
			if _, err := bomb.Write(zeros); err != nil {
				return // nobody reads any more
			}
		}
		_ = bomb.Close() // nor need anybody
	}))
	defer upstream.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for _, coding := range []string{"", "gzip"} {
		seen := -1
		tr := newTransport(t, base, throttle.Policy{Name: "one", Limit: throttle.PerSecond(9), Answer: func(resp *http.Response) throttle.Answer {
			b, err := feedback.PeekBody(resp, 64<<10)
			require.NoError(t, err)
			seen = len(b)
			return throttle.Answer{}
		}})
		r := get(t, upstream.URL)
		if coding != "" {
			r.Header.Set("Accept-Encoding", coding) // so net/http leaves it packed
		}
		require.NoError(t, send(t, tr, r))
		require.Equal(t, 64<<10, seen)
	}
}

// A windowed upstream counts in fixed windows of a minute, says what is left when it
// has counted, and takes long to answer.
type windowed struct {
	mu      sync.Mutex
	n, used int
	window  int64
	slow    time.Duration
	refused int
}

func (u *windowed) take() (left int, reset time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if w := now.Unix() / 60; w != u.window {
		u.window, u.used = w, 0
	}
	u.used++
	return u.n - u.used, time.Duration(60-now.Unix()%60) * time.Second
}

func (u *windowed) RoundTrip(r *http.Request) (*http.Response, error) {
	left, reset := u.take()
	status := http.StatusOK
	if left < 0 {
		status = http.StatusTooManyRequests
		u.mu.Lock()
		u.refused++
		u.mu.Unlock()
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	time.Sleep(u.slow)
	return answer(status, "", "Date", date, "X-RateLimit-Remaining", strconv.Itoa(max(0, left)),
		"X-RateLimit-Reset", strconv.Itoa(int(reset/time.Second)))(r)
}

// TestP11_WhatIsLeftOfSlowAnswers has another program use half of a limit whose
// answers take five seconds. What it used in the last five seconds nobody knows; if
// our own starts of that time counted as known to the upstream, it would refuse five
// times as many.
func TestP11_WhatIsLeftOfSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &windowed{n: 600, slow: 5 * time.Second}
		p := throttle.Policy{Name: "p", Limit: throttle.PerMinute(600),
			Answer: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Left}
		tr := newTransport(t, up, p)
		end := time.Now().Add(10 * time.Minute)
		var all sync.WaitGroup
		for range 80 {
			all.Go(func() {
				for time.Now().Before(end) {
					if err := send(t, tr, get(t, home)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Go(func() { // a program that was not told of throttle
			for time.Now().Before(end) {
				time.Sleep(200 * time.Millisecond)
				up.take()
			}
		})
		all.Wait()

		// Unseen in each window is what the other program sends while an answer is on its way, and within the part of the window
		// in which starts are not told apart.
		unseen := (up.slow + time.Minute/128) / (200 * time.Millisecond)
		require.LessOrEqual(t, up.refused, 10*int(unseen))
	})
}
