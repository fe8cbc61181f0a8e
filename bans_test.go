package throttle_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
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
	"github.com/fleetthrottle/throttle/internal/lab/golden"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A banner is an upstream that answers late, and with a ban while it says so.
type banner struct {
	takes time.Duration
	says  string                       // Retry-After of a ban
	bans  func(now time.Duration) bool // whether a request that comes then is refused
	begin time.Time

	mu      sync.Mutex
	refused []time.Duration // when refused requests came
	served  []time.Duration
}

func (u *banner) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	now := time.Since(u.begin)
	banned := u.bans(now)
	if banned {
		u.refused = append(u.refused, now)
	} else {
		u.served = append(u.served, now)
	}
	takes := u.takes
	u.mu.Unlock()
	time.Sleep(takes)
	if banned {
		return answer(429, "", "Retry-After", u.says)(r)
	}
	return answer(200, "")(r)
}

// TestP11_AnswersSlowerThanTheProbe: answers take 300 ms, the upstream bans for 10 s
// longer than it says, and a whole quota waits. One request meets that, and not all.
func TestP11_AnswersSlowerThanTheProbe(t *testing.T) {
	for _, takes := range []time.Duration{0, 300 * ms, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			u := &banner{takes: takes, says: "60", begin: time.Now()}
			u.bans = func(now time.Duration) bool { return now < 70*time.Second }
			tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(3000, time.Minute)})
			line(t, tr, 1, home)
			var all sync.WaitGroup
			for range 3200 {
				r := get(t, home)
				all.Go(func() { require.NoError(t, send(t, tr, r)) })
			}
			all.Wait()
			require.Equal(t, []time.Duration{0, 60*time.Second + takes}, u.refused)
			require.Len(t, u.served, 3199)
		})
	}
}

// TestP11_AProbeThatIsSlow: the refusal of the probe takes longer than the first one
// did. What the slow start lets through is all that is refused besides.
func TestP11_AProbeThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &banner{says: "60", begin: time.Now()}
		u.bans = func(now time.Duration) bool {
			if now > 0 {
				u.takes = time.Second
			}
			return now < 70*time.Second
		}
		tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(3000, time.Minute)})
		line(t, tr, 1, home)
		var all sync.WaitGroup
		for range 3200 {
			r := get(t, home)
			all.Go(func() { require.NoError(t, send(t, tr, r)) })
		}
		all.Wait()
		require.LessOrEqual(t, len(u.refused), 126)
	})
}

// TestP3_OneInAThousandIsRefused: of a limit of 800 in 20 s at least 85 % are used,
// although each thousandth answer closes it for a second.
func TestP3_OneInAThousandIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, n := &banner{takes: 50 * ms, says: "1", begin: time.Now()}, 0
		u.bans = func(time.Duration) bool { n++; return n%1000 == 0 }
		tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(800, 20*time.Second)})
		end := soak.Most[time.Duration](6, 3) * time.Minute
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for time.Since(u.begin) < end {
					require.NoError(t, send(t, tr, get(t, home)))
				}
			})
		}
		all.Wait()
		steady := slices.DeleteFunc(slices.Clone(u.served), func(at time.Duration) bool { return at < time.Minute || at >= end })
		used := float64(len(steady)) / (800.0 / 20 * (end - time.Minute).Seconds())
		t.Logf("%.1f %% used, %d refused", 100*used, len(u.refused))
		require.Greater(t, used, 0.85)
		require.Positive(t, len(u.refused))
	})
}

// TestP11_ABanIsMetAgain: the upstream always says a minute, and bans anew each caller
// that comes within its true ban. The fleet asks as often as the logarithm of that,
// whichever of its nodes does; after a quiet time it believes a minute again.
func TestP11_ABanIsMetAgain(t *testing.T) {
	for long, asks := range map[time.Duration]int{
		90 * time.Second: 2, 3 * time.Minute: 3, 5 * time.Minute: 4, 10 * time.Minute: 5, 20 * time.Minute: 6, 40 * time.Minute: 7,
	} {
		synctest.Test(t, func(t *testing.T) {
			u, until := &banner{takes: 100 * ms, says: "60", begin: time.Now()}, time.Second
			u.bans = func(now time.Duration) bool {
				if now < until {
					until = now + long
					return true
				}
				return false
			}
			store := memstore.New()
			policy := throttle.Policy{Name: "p", Limit: throttle.PerSecond(10)}
			var fleet [2]*throttle.Transport
			for i := range fleet {
				fleet[i] = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: everywhere(policy)}))
			}
			for i := 0; len(u.served) == 0; i++ {
				require.NoError(t, send(t, fleet[i%2], get(t, home)))
			}
			require.Len(t, u.refused, asks, "%v: %v", long, u.refused)
			require.Equal(t, asks-1, status(t, store, fleet[0], get(t, home)).Repeated)

			time.Sleep(20 * time.Second)
			until = time.Since(u.begin) + time.Second
			require.NoError(t, send(t, fleet[0], get(t, home)))
			st := status(t, store, fleet[0], get(t, home))
			require.Equal(t, time.Minute, st.Paused)
			require.Zero(t, st.Repeated)
		})
	}
}

// TestP11_AStormOfSeconds: half of all answers are refusals for a second. None of them closes
// the budget for longer.
func TestP11_AStormOfSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, n := &banner{takes: 20 * ms, says: "1", begin: time.Now()}, 0
		u.bans = func(time.Duration) bool { n++; return n%2 == 0 }
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(10)}}}))
		for range 200 {
			require.NoError(t, send(t, tr, get(t, home)))
			require.LessOrEqual(t, status(t, store, tr, get(t, home)).Paused, time.Second)
		}
	})
}

// TestP11_AStartThatIsNear closes a budget in memory a millisecond after a caller was told to start in three: the
// caller waits for the end. To ask once more costs no round trip there.
func TestP11_AStartThatIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1}))
		begin := time.Now()
		must(l.Acquire(t.Context(), "", 1)).Release()

		time.Sleep(997 * ms)
		time.AfterFunc(ms, func() { require.NoError(t, l.Pause(t.Context(), "", 5*time.Second)) })
		must(l.Acquire(t.Context(), "", 1)).Release()
		require.Equal(t, 5998*ms, time.Since(begin).Truncate(ms))
	})
}

// TestP11_WhichBudgetARefusalCloses: by default a 429 closes the first budget that has a key and holds the request; if
// there is none, all. What a policy reads by itself counts in any case.
func TestP11_WhichBudgetARefusalCloses(t *testing.T) {
	row := func(name string, change func(*throttle.Policy)) throttle.Policy {
		p := throttle.Policy{Name: name, Match: "/", Limit: throttle.PerSecond(100)}
		change(&p)
		return p
	}
	shared := row("shared", func(*throttle.Policy) {})
	other := row("other", func(*throttle.Policy) {})
	keyed := row("keyed", func(p *throttle.Policy) { p.Key = throttle.Host })
	second := row("second", func(p *throttle.Policy) { p.Key = throttle.Method })
	with := func(p throttle.Policy, change func(*throttle.Policy)) throttle.Policy { change(&p); return p }
	shadow := func(p *throttle.Policy) { p.Shadow = true }
	free := func(p *throttle.Policy) { p.Cost = func(*http.Request) int { return 0 } }
	none := func(p *throttle.Policy) { p.Answer = feedback.LeaveOpen }
	reads := func(p *throttle.Policy) { p.Answer = throttle.RetryAfter }
	nobody := func(p *throttle.Policy) { p.Key = constant("") }

	for name, c := range map[string]struct {
		policies []throttle.Policy
		closed   []string
	}{
		"one":                             {[]throttle.Policy{shared}, []string{"shared"}},
		"two without a key":               {[]throttle.Policy{shared, other}, []string{"other", "shared"}},
		"with a key":                      {[]throttle.Policy{keyed, shared}, []string{"keyed"}},
		"with a key behind":               {[]throttle.Policy{shared, keyed}, []string{"keyed"}},
		"two keys":                        {[]throttle.Policy{keyed, second, shared}, []string{"keyed"}},
		"two keys, the other way round":   {[]throttle.Policy{second, keyed}, []string{"second"}},
		"a key that is empty":             {[]throttle.Policy{with(keyed, nobody), shared}, []string{"keyed", "shared"}},
		"a key that only counts":          {[]throttle.Policy{with(keyed, shadow), shared}, []string{"keyed", "shared"}},
		"a row beside that only counts":   {[]throttle.Policy{keyed, with(shared, shadow)}, []string{"keyed", "shared"}},
		"a key that is free":              {[]throttle.Policy{with(keyed, free), shared}, []string{"shared"}}, // and its own, which nobody has used
		"a key that closes nothing":       {[]throttle.Policy{with(keyed, none), shared}, []string{"shared"}},
		"a key that reads by itself":      {[]throttle.Policy{with(keyed, reads), shared}, []string{"keyed"}},
		"a shared row that closes, too":   {[]throttle.Policy{keyed, with(shared, reads)}, []string{"keyed", "shared"}},
		"a second key that closes, too":   {[]throttle.Policy{keyed, with(second, reads)}, []string{"keyed", "second"}},
		"only a shared row closes":        {[]throttle.Policy{with(keyed, none), with(shared, reads), other}, []string{"other", "shared"}},
		"nothing closes":                  {[]throttle.Policy{with(keyed, none), with(shared, none)}, nil},
		"a key and one that closes never": {[]throttle.Policy{with(keyed, none), second, shared}, []string{"second"}},
	} {
		tr := newTransport(t, answer(429, "", "Retry-After", "60"), c.policies...)
		must(tr.Statuses(t.Context())) // from now on the budgets are noted that are used
		require.NoError(t, send(t, tr, get(t, home)), name)
		var closed []string
		for budget, b := range must(tr.Statuses(t.Context())) {
			if b.Paused > 0 {
				closed = append(closed, budget.Policy)
			}
		}
		slices.Sort(closed)
		require.Equal(t, c.closed, closed, name)
	}
}

// refusal makes a response with a status, a Retry-After and a Date; "" leaves a
// field out.
func refusal(status int, retryAfter, date string) *http.Response {
	h := http.Header{}
	for name, value := range map[string]string{"Retry-After": retryAfter, "Date": date} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return &http.Response{StatusCode: status, Header: h}
}

// TestRetryAfter reads the field of a 429 and of a 503, when both clocks are right.
func TestRetryAfter(t *testing.T) {
	field := regexp.MustCompile(`"[^"]*"`)
	golden.Lines(t, "retry-after", func(in string) (out string) {
		f := append(field.FindAllString(in, -1), `""`)
		text, date := must(strconv.Unquote(f[0])), must(strconv.Unquote(f[1]))
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(must(http.ParseTime("Fri, 02 Jan 2026 03:04:05 GMT"))))
			out = fmt.Sprintf("%v, %v", throttle.RetryAfter(refusal(429, text, date)).Close, throttle.RetryAfter(refusal(503, text, date)).Close)
		})
		return out
	})
	for _, huge := range []string{strings.Repeat("9", 400), strings.Repeat("9", 400) + ".5"} {
		require.Equal(t, time.Second, throttle.RetryAfter(refusal(429, huge, "")).Close, "more than a float")
		require.Zero(t, throttle.RetryAfter(refusal(503, huge, "")).Close)
	}
}

func TestRetryAfterWithoutDate(t *testing.T) {
	for _, date := range []string{"", "yesterday"} {
		synctest.Test(t, func(t *testing.T) {
			at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
			require.Equal(t, 31*time.Second, throttle.RetryAfter(refusal(429, at(30*time.Second), date)).Close)
			time.Sleep(300 * time.Millisecond)
			require.Equal(t, 30700*time.Millisecond, throttle.RetryAfter(refusal(429, at(30*time.Second), date)).Close)
			require.Equal(t, 700*time.Millisecond, throttle.RetryAfter(refusal(503, at(0), date)).Close)
			require.Equal(t, time.Second, throttle.RetryAfter(refusal(429, at(-time.Minute), date)).Close)
			require.Zero(t, throttle.RetryAfter(refusal(503, at(-time.Minute), date)).Close)
		})
	}
}

// TestRetryAfterByTwoClocks: the shorter time counts, unless it is over.
func TestRetryAfterByTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(600 * time.Millisecond)
		date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		millis := strconv.FormatInt(time.Now().Add(2*time.Second).UnixMilli(), 10)
		for _, c := range []struct {
			name        string
			field, date string
			want        time.Duration
		}{
			{"both right", millis, date(0), 2 * time.Second},
			{"the upstream's is late", millis, date(-3 * time.Hour), 2 * time.Second},
			{"ours is late", date(3*time.Hour + 2*time.Second), date(3 * time.Hour), 3 * time.Second},
			{"ours is early", date(2*time.Second - 3*time.Hour), date(-3 * time.Hour), 3 * time.Second},
		} {
			require.Equal(t, c.want, throttle.RetryAfter(refusal(429, c.field, c.date)).Close, c.name)
		}
	})
}

func TestRetryAfterOfOtherAnswers(t *testing.T) {
	for _, status := range []int{200, 202, 301, 302, 400, 403, 404, 418, 500, 502, 504, 529} {
		require.Zero(t, throttle.RetryAfter(refusal(status, "120", "")).Close, "%d", status)
	}
	require.Zero(t, throttle.RetryAfter(nil))
	require.Equal(t, time.Second, throttle.RetryAfter(&http.Response{StatusCode: 429}).Close)
}

func TestRetryAfterConstants(t *testing.T) {
}

func FuzzRetryAfter(f *testing.F) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	for _, field := range []string{
		"", "0", "120", "2.0", "1767323075", "99999999999999999999", "-1", "NaN", date,
		"Friday, 02-Jan-26 03:04:35 GMT", "Fri Jan  2 03:04:35 2026", "Fri, 31 Dec 9999 23:59:59 GMT",
	} {
		f.Add(429, field, date)
		f.Add(503, field, "")
	}
	f.Fuzz(func(t *testing.T, status int, field, date string) {
		resp := refusal(status, field, date)
		d := throttle.RetryAfter(resp).Close
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, time.Hour)
		if status != 429 && status != 503 {
			require.Zero(t, d)
		}
		if status == 429 && d == 0 {
			require.Empty(t, strings.Trim(strings.TrimSpace(field), "0."), "only a zero means now")
		}
	})
}

// dated is a base whose answers say when they were made, by a clock that is so much
// ahead of ours, and arrive later by what the request's path says.
func dated(ahead time.Duration, then base) base {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := then(r)
		if resp != nil {
			resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		time.Sleep(must(time.ParseDuration(r.URL.Path[1:])))
		return resp, err
	}
}

// TestSentAt: outside of a Transport, and of an answer that was fast, nobody knows.
func TestSentAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		date := now.Add(-5 * time.Second).UTC().Format(http.TimeFormat)
		require.Equal(t, now, feedback.SentAt(nil))
		require.Equal(t, now, feedback.SentAt(refusal(429, "", date)))
		for _, c := range []struct {
			takes string
			ago   time.Duration
		}{{"900ms", 0}, {"1s", 0}, {"1001ms", 1 * ms}, {"5500ms", 4500 * ms}} {
			var sent time.Time
			p := throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(100), Answer: func(resp *http.Response) throttle.Answer {
				sent = feedback.SentAt(resp)
				return throttle.Answer{}
			}}
			require.NoError(t, send(t, newTransport(t, dated(0, answer(200, "")), p), get(t, home+c.takes)))
			require.Equal(t, c.ago, time.Since(sent), c.takes)
			time.Sleep(time.Until(time.Now().Add(time.Second).Truncate(time.Second))) // so that Date cuts off nothing
		}
	})
}

// TestAnswerOf_ThroughHTTPClient: with a Timeout it wraps the body.
func TestAnswerOf_ThroughHTTPClient(t *testing.T) {
	tr := newTransport(t, answer(429, "", "Retry-After", "7"), throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(9)})
	client := http.Client{Transport: tr, Timeout: time.Minute}
	resp, err := client.Do(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, throttle.Refused(7*time.Second), throttle.AnswerOf(resp))
}

// TestAnswerOf_TheRequestIsTheCallers in all but its context's value.
func TestAnswerOf_TheRequestIsTheCallers(t *testing.T) {
	tr := newTransport(t, answer(429, ""), throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(9)})
	type key struct{}
	r := get(t, home)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "caller's own"))
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "caller's own", resp.Request.Context().Value(key{}))
	require.Equal(t, r, resp.Request.WithContext(r.Context()))
	require.Same(t, r.URL, resp.Request.URL)
}

// TestAnswerOf_IsOfOneAnswer: the request of a refused answer, sent again, does
// not make the next answer a refusal.
func TestAnswerOf_IsOfOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, firstly(answer(429, ""), answer(200, "")), throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(9)})
		first, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, first.Body.Close())
		second, err := tr.RoundTrip(first.Request)
		require.NoError(t, err)
		require.NoError(t, second.Body.Close())
		require.Equal(t, throttle.Refused(time.Second), throttle.AnswerOf(first))
		require.Zero(t, throttle.AnswerOf(second))
	})
}

// TestP11_ABodyThatStallsHidesNothing: what the header says is learned all the same,
// before the caller gets the answer.
func TestP11_ABodyThatStallsHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := base(func(r *http.Request) (*http.Response, error) {
			resp, err := answer(429, "", "Retry-After", "60")(r)
			stalled, w := io.Pipe()
			go w.Write([]byte("first"))
			resp.Body = stalled
			return resp, err
		})
		code := func(resp *http.Response) throttle.Answer {
			if head, err := feedback.PeekBody(resp, 100); err != nil || len(head) != 100 {
				return throttle.RetryAfter(resp)
			}
			return throttle.Refused(time.Hour)
		}
		s := newStarts()
		s.then = firstly(stalls, answer(200, ""))
		tr := newTransport(t, s, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(100), Answer: code})
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 61 * time.Second}, s.seen())
	})
}

// TestIllegibleAnswers: Observe is told once for each policy that wanted to look.
func TestIllegibleAnswers(t *testing.T) {
	looks := func(resp *http.Response) throttle.Answer {
		seen, err := feedback.PeekBody(resp, 100)
		if err != nil || len(seen) > 0 {
			return throttle.Refused(time.Minute)
		}
		return throttle.Answer{}
	}
	for coding, says := range map[string]string{
		"br": "br", " Zstd": "zstd", "gzip, gzip": "an unknown coding", "https://secret": "an unknown coding",
	} {
		t.Run(coding, func(t *testing.T) {
			seen := &events{}
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: answer(200, "packed", "Content-Encoding", coding), Observe: seen.observe,
				Policies: []throttle.Policy{
					{Name: "looks", Match: "/", Limit: throttle.PerSecond(99), Answer: looks},
					{Name: "looks not", Match: "/", Limit: throttle.PerSecond(99)},
				}}))
			for range 3 {
				resp := must(tr.RoundTrip(get(t, home)))
				require.Equal(t, "packed", string(must(io.ReadAll(resp.Body))))
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventIllegible, throttle.EventStarted, throttle.EventStarted}, seen.kinds())
			e := seen.first(t, throttle.EventIllegible)
			require.Equal(t, "looks", e.Policy)
			require.EqualError(t, e.Err, `throttle: policy "looks" cannot read answers in `+says+`: leave Accept-Encoding unset, or set it to gzip`)
		})
	}
}

// firstly is a base that answers its first request in one way and all others in
// another.
func firstly(first, others base) base {
	var n atomic.Int32
	return func(r *http.Request) (*http.Response, error) {
		if n.Add(1) == 1 {
			return first(r)
		}
		return others(r)
	}
}

// TestP11_ABackendThatIsDown: behind a load balancer three answers in ten are a 503,
// and the fleet goes on at nine tenths of its limit or more.
func TestP11_ABackendThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStarts(), 0
		s.then = func(r *http.Request) (*http.Response, error) {
			if n++; n*7%10 < 3 {
				return answer(503, "", "Retry-After", "5")(r)
			}
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(40), Jitter: -1})
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			line(t, tr, 1, home)
		}
		require.Greater(t, len(s.seen()), 2160)
	})
}

// TestP11_TheFleetIsToldAlthoughTheCallerLeft: the context ended with the answer.
func TestP11_TheFleetIsToldAlthoughTheCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.pause = func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(onePerHour), Base: base(
			func(r *http.Request) (*http.Response, error) {
				cancel()
				return answer(429, "")(r)
			})}))
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		synctest.Wait() // the caller did not wait for it
		require.Equal(t, 1, store.paused())
	})
}

// TestP16_AnswersThatSayOneThing: a function that says nothing of a refusal leaves it to the default, and
// LeaveOpen keeps the default away.
func TestP16_AnswersThatSayOneThing(t *testing.T) {
	cost := func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(2) }
	closing := throttle.Answer{Close: 5 * time.Second}
	partly := throttle.Answer{Verdict: throttle.VerdictPartly}
	for name, c := range map[string]struct {
		status  int
		answers []func(*http.Response) throttle.Answer
		want    throttle.Answer
	}{
		"a cost, and a 429":                     {429, readers(cost), throttle.Refused(7 * time.Second)},
		"a cost, and a success":                 {200, readers(cost), throttle.Answer{}},
		"left open":                             {429, readers(feedback.First(cost, feedback.LeaveOpen)), throttle.Refused(0)},
		"left open, and in trouble":             {503, readers(feedback.LeaveOpen), throttle.Answer{}},
		"another row, and no refusal":           {429, readers(feedback.LeaveOpen, feedback.NotRefused), throttle.Answer{Verdict: throttle.VerdictNotRefused}},
		"a closing row, and no refusal":         {429, readers(throttle.RetryAfter, feedback.NotRefused), throttle.Refused(7 * time.Second)},
		"a closing row, and partly done":        {429, readers(throttle.RetryAfter, saying(partly)), throttle.Answer{Verdict: throttle.VerdictPartly, Close: 7 * time.Second}},
		"closed without a verdict":              {200, readers(saying(closing)), closing},
		"a verdict that is none":                {200, readers(saying(throttle.Answer{Verdict: 9})), throttle.Answer{}},
		"a verdict that is none, of a closing":  {200, readers(saying(throttle.Answer{Verdict: 9, Close: 5 * time.Second})), closing},
		"what is left where nothing is counted": {200, readers(saying(throttle.Answer{}.WithLeft(throttle.Quota{Left: 1, Reset: time.Minute}))), throttle.Answer{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var policies []throttle.Policy
				for i, read := range c.answers {
					policies = append(policies, throttle.Policy{Name: strconv.Itoa(i), Limit: throttle.PerHour(100), Answer: read})
				}
				resp := must(newTransport(t, answer(c.status, "", "Retry-After", "7"), policies...).RoundTrip(get(t, home)))
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c.want, throttle.AnswerOf(resp))
			})
		})
	}
}

// TestP16_AnswersToFreeRequests: a policy under which the request is free closes a budget that does not hold the
// request. What it says of a part that was done counts all the same.
func TestP16_AnswersToFreeRequests(t *testing.T) {
	for name, c := range map[string]struct{ says, want throttle.Answer }{
		"refused":     {throttle.Refused(time.Minute), throttle.Answer{}},
		"partly done": {throttle.Answer{Verdict: throttle.VerdictPartly, Close: time.Minute}, throttle.Answer{Verdict: throttle.VerdictPartly}},
		"not refused": {throttle.Answer{Verdict: throttle.VerdictNotRefused}, throttle.Answer{Verdict: throttle.VerdictNotRefused}},
		"closed":      {throttle.Answer{Close: time.Minute}, throttle.Answer{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := func(*http.Request) int { return 0 }
				tr := newTransport(t, answer(200, ""), throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(100), Cost: free, Answer: saying(c.says)})
				resp := must(tr.RoundTrip(get(t, home)))
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c.want, throttle.AnswerOf(resp))
			})
		})
	}
}

func readers(all ...func(*http.Response) throttle.Answer) []func(*http.Response) throttle.Answer {
	return all
}

func saying(a throttle.Answer) func(*http.Response) throttle.Answer {
	return func(*http.Response) throttle.Answer { return a }
}

// TestP16_WhatIsLeftOfNoNumber is told once of a policy, and refused of a permit.
func TestP16_WhatIsLeftOfNoNumber(t *testing.T) {
	left := throttle.Answer{}.WithLeft(throttle.Quota{Left: 1, Reset: time.Minute})
	unlimited := throttle.Policy{Name: "row", Match: "/", Limit: throttle.Unlimited(), Answer: saying(left)}
	seen := &events{}
	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Observe: seen.observe, Policies: []throttle.Policy{unlimited}}))
	for range 3 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
	const says = `throttle: policy "row": Answer: says what is left, but the limit counts no starts, so there is no number that an answer could lower: set a limit with a number`
	require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventFunctionFailed, throttle.EventStarted, throttle.EventStarted}, seen.kinds())
	require.EqualError(t, seen.first(t, throttle.EventFunctionFailed).Err, says)

	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
		{Name: "row", Limit: throttle.Unlimited()}, {Name: "hour", Limit: throttle.PerHour(10)},
	}}))
	permit := must(l.Acquire(t.Context(), throttle.Demand{Policy: "row"}, throttle.Demand{Policy: "hour"}))
	require.EqualError(t, permit.Tell(t.Context(), left, "row"), says)
	require.EqualError(t, permit.Tell(t.Context(), throttle.Refused(time.Second), "other"), `throttle: policy "other": Name: the permit has no policy of this name`)
	require.EqualError(t, permit.TellBudget(t.Context(), "hour", "b", left), `throttle: policy "hour": Key: the permit has no budget of this policy and key`)

	require.NoError(t, permit.Tell(t.Context(), left.WithCost(3)), "only one counts")
	require.Equal(t, 9, must(must(l.Limiter("hour")).Status(t.Context(), "")).Used, "all but what is left")
}
