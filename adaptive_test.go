package throttle_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A run is what came of the use of an upstream.
type run struct {
	used  float64 // the part of what was allowed, after a while
	first int     // refusals until then
	most  int     // refusals in one minute later
	mean  float64
	falls []throttle.Event
}

// measure uses an upstream for half an hour, or five minutes if windows are short, or less with -short, and
// leaves out what it takes to learn.
func measure(t *testing.T, u *strict, p throttle.Policy) (r run) {
	length, warm := soak.Most[time.Duration](5, 3)*time.Minute, time.Minute
	if p.Limit.Per() > time.Second {
		length, warm = soak.Most[time.Duration](30, 10)*time.Minute, 5*time.Minute
	}
	var mu sync.Mutex
	u.use(t, memstore.New(), p, 4, 12, length, func(_ context.Context, e throttle.Event) {
		if e.Kind == throttle.EventLowered {
			mu.Lock()
			r.falls = append(r.falls, e)
			mu.Unlock()
		}
	})
	r.used = float64(between(u.accepted, warm, length)) / float64(u.n) / (float64(length-warm) / float64(u.per))
	r.first, r.mean = between(u.refused, 0, warm), float64(between(u.refused, warm, length))/(length-warm).Minutes()
	for m := warm; m < length; m += time.Minute {
		r.most = max(r.most, between(u.refused, m, m+time.Minute))
	}
	t.Logf("used %.1f %%, refused %.1f a minute and at most %d, %d before; the ceiling fell %d times", 100*r.used, r.mean, r.most, r.first, len(r.falls))
	return r
}

// TestAdaptive_LessThanTheLimit: an upstream that enforces less than the table says
// refuses few requests, and nearly all that it allows is used.
func TestAdaptive_LessThanTheLimit(t *testing.T) {
	soak.WithoutRace(t)
	for i, c := range []struct {
		limit         throttle.Limit
		n             int
		fixed, polite bool
	}{
		{throttle.PerSecond(40), 20, false, false},
		{throttle.PerSecond(40), 20, false, true},
		{throttle.PerSecond(40), 20, true, true},
		{throttle.PerSecond(40), 36, false, false},
		{throttle.PerSecond(40), 4, false, false},
		{throttle.PerSecond(400), 200, false, false},
		{throttle.PerSecond(400), 200, false, true},
		{throttle.PerSecond(2), 1, false, true},
		{throttle.FixedWindow(40, time.Second), 20, true, true},
		{throttle.FixedWindow(600, time.Minute), 300, true, true},
		{throttle.FixedWindow(600, time.Minute), 300, true, false},
		{throttle.PerMinute(600), 300, false, false},
		{throttle.PerMinute(600), 300, false, true},
		{throttle.PerMinute(600), 300, true, true},
		{throttle.PerMinute(60), 30, false, true},
		{throttle.PerMinute(60), 30, false, false},
		{throttle.TokenBucket(40, time.Second, 10), 20, false, true},
		{throttle.LeakyBucket(40, time.Second), 20, false, false},
	} {
		if i%soak.Most(1, 4) > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%v, true %d, fixed %v, polite %v", c.limit, c.n, c.fixed, c.polite), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newStrict(c.n, c.limit.Per())
				u.fixed, u.polite = c.fixed, c.polite
				r := measure(t, u, throttle.Policy{Name: "p", Limit: c.limit, Adaptive: true})
				require.GreaterOrEqual(t, r.used, 0.85)
				require.LessOrEqual(t, r.most, 10)
			})
		})
	}
}

// TestAdaptive_TheRightLimit: where nothing is refused nothing is learned, and nothing lost.
func TestAdaptive_TheRightLimit(t *testing.T) {
	soak.WithoutRace(t)
	limits := []throttle.Limit{throttle.PerSecond(40), throttle.FixedWindow(600, time.Minute), throttle.PerMinute(600), throttle.PerSecond(400)}
	for _, l := range limits[:soak.Most(len(limits), 2)] {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newStrict(l.N(), l.Per())
				u.fixed = l.Kind() == store.KindFixedWindow
				r := measure(t, u, throttle.Policy{Name: "p", Limit: l, Adaptive: true})
				possible := float64(l.Per()) / float64(l.Per()+acquire.DefaultJitter) // see P3
				require.GreaterOrEqual(t, r.used, 0.99*possible)
				require.Empty(t, r.falls)
				require.Empty(t, u.refused)
			})
		})
	}
}

// TestAdaptive_Strays shows what it costs if a right limit is not all that is refused for.
func TestAdaptive_Strays(t *testing.T) {
	soak.Only(t)
	soak.WithoutRace(t)
	for _, part := range []float64{0.0001, 0.001, 0.01} {
		for _, adaptive := range []bool{false, true} {
			t.Run(fmt.Sprint(part, adaptive), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u := newStrict(40, time.Second)
					u.stray = part
					r := measure(t, u, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Adaptive: adaptive})
					require.Equal(t, adaptive && len(u.refused) > 0, len(r.falls) > 0)
					require.Greater(t, r.used, 0.02)
				})
			})
		}
	}
}

// TestAdaptive_WithoutIt is what a table that promises twice as much costs as it is.
func TestAdaptive_WithoutIt(t *testing.T) {
	for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.PerMinute(600)} {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := measure(t, newStrict(l.N()/2, l.Per()), throttle.Policy{Name: "p", Limit: l})
				require.Greater(t, r.mean, 20.0)
				require.Empty(t, r.falls)
			})
		})
	}
}

// TestAdaptive_MoreAgain: an upstream that allows all of the limit again is used again.
func TestAdaptive_MoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newStrict(20, time.Second)
		time.AfterFunc(100*time.Second, func() {
			u.mu.Lock()
			u.n = 40
			u.mu.Unlock()
		})
		store := memstore.New()
		u.use(t, store, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Adaptive: true}, 2, 20, 5*time.Minute, nil)
		last := between(u.accepted, 295*time.Second, 299*time.Second)
		require.Greater(t, last, 4*36)
	})
}

// TestAdaptive_OnlyForStarts: a limit that no refusal can lower is a mistake.
func TestAdaptive_OnlyForStarts(t *testing.T) {
	for _, l := range []throttle.Limit{throttle.Concurrency(3), throttle.Unlimited()} {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: l, Adaptive: true}}})
		var wrong *throttle.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, "Adaptive", wrong.Field)
	}
}

// TestAdaptive_TwoWindows: of a table with a limit per second and one per hour, all of which
// a refusal closes, the one that is too high is lowered, and the other never.
func TestAdaptive_TwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, warm = 5 * time.Minute, time.Minute
		u, store := newStrict(20, time.Second), memstore.New()
		var mu sync.Mutex
		falls := make(map[string]int)
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var all sync.WaitGroup
		for range 4 {
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: []throttle.Policy{
				{Name: "hour", Match: "/", Limit: throttle.PerHour(100_000), Adaptive: true},
				{Name: "second", Match: "/", Limit: throttle.PerSecond(40), Adaptive: true},
			}, Observe: func(_ context.Context, e throttle.Event) {
				if e.Kind == throttle.EventLowered {
					mu.Lock()
					falls[e.Policy]++
					mu.Unlock()
				}
			}}))
			for range 12 {
				all.Go(func() {
					for ctx.Err() == nil {
						resp, err := tr.RoundTrip(get(t, home).WithContext(ctx))
						if err != nil {
							return
						}
						resp.Body.Close()
					}
				})
			}
		}
		all.Wait()
		used := float64(between(u.accepted, warm, length)) / 20 / (length - warm).Seconds()
		t.Logf("used %.1f %%, refused %d, falls %v", 100*used, between(u.refused, warm, length), falls)
		require.GreaterOrEqual(t, used, 0.85)
		require.LessOrEqual(t, between(u.refused, warm, length), 40)
		require.Zero(t, falls["hour"])
		require.Positive(t, falls["second"])
	})
}

// A strict upstream allows what it likes: n in any interval of length per, or in each
// window if it is fixed. It refuses with a 429, which says for how long if it is polite.
type strict struct {
	n        int
	per      time.Duration
	fixed    bool
	polite   bool
	stray    float64       // the part of requests that it refuses for another reason
	travel   time.Duration // there and back, at the most
	mu       sync.Mutex
	dice     *rand.Rand
	begin    time.Time
	accepted []time.Duration // when, since begin
	refused  []time.Duration
}

func (u *strict) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	there, back := u.dice.Int64N(int64(u.travel/4)), int64(u.travel/4)+u.dice.Int64N(int64(u.travel/2))
	u.mu.Unlock()
	time.Sleep(time.Duration(there))
	wait, ok := u.decide()
	time.Sleep(time.Duration(back))
	if ok {
		return answer(200, "")(r)
	}
	if u.polite {
		return answer(429, "", "Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))(r)
	}
	return answer(429, "")(r)
}

// decide counts a request, or says in how long there will be room.
func (u *strict) decide() (wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Since(u.begin)
	since := now - u.per
	if u.fixed {
		since = now.Truncate(u.per) - 1
	}
	k := len(u.accepted)
	for k > 0 && u.accepted[k-1] > since {
		k--
	}
	if len(u.accepted)-k >= u.n {
		u.refused = append(u.refused, now)
		if u.fixed {
			return since + 1 + u.per - now, false
		}
		return u.accepted[len(u.accepted)-u.n] + u.per - now, false
	}
	if u.dice.Float64() < u.stray {
		u.refused = append(u.refused, now)
		return time.Second, false
	}
	u.accepted = append(u.accepted, now)
	return 0, true
}

// between counts what lies in [from, to).
func between(times []time.Duration, from, to time.Duration) (n int) {
	for _, t := range times {
		if from <= t && t < to {
			n++
		}
	}
	return n
}

// use has a fleet of programs with so many callers each send what they can for a while.
func (u *strict) use(t *testing.T, store throttle.Store, p throttle.Policy, programs, callers int, d time.Duration, observe func(context.Context, throttle.Event)) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var all sync.WaitGroup
	for range programs {
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(p), Base: u, Observe: observe}))
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					req := get(t, home).WithContext(ctx)
					resp, err := tr.RoundTrip(req)
					if err != nil {
						return // it cannot be sent in what is left of the time
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
}

func newStrict(n int, per time.Duration) *strict {
	return &strict{n: n, per: per, travel: 60 * ms, dice: rand.New(rand.NewPCG(1, 2)), begin: time.Now()}
}

// A tally is a meter that notes what it sees: the number behind the last "=" is the cost.
type tally struct {
	text   bytes.Buffer
	asked  int
	writes int
	err    error // of Write
}

func (m *tally) Write(p []byte) (int, error) {
	m.writes++
	m.text.Write(p)
	return len(p), m.err
}

func (m *tally) Cost() int {
	m.asked++
	all := m.text.String()
	n, err := strconv.Atoi(strings.TrimSpace(all[strings.LastIndex(all, "=")+1:]))
	if err != nil {
		return -1
	}
	return n
}

// metered is a policy of 100 an hour whose requests cost 10 until the meter says what they did cost.
func metered(m throttle.Meter) throttle.Policy {
	return throttle.Policy{
		Name: "p", Limit: throttle.PerHour(100), Cost: func(*http.Request) int { return 10 },
		Meter: func(*http.Response) throttle.Meter { return m },
	}
}

// streaming is a base whose answer has the body.
func streaming(body io.ReadCloser, header ...string) base {
	return func(r *http.Request) (*http.Response, error) {
		resp := must(answer(200, "", header...)(r))
		resp.Body, resp.ContentLength = body, -1
		return resp, nil
	}
}

// meter sends a request and has read do what a caller does with the body. It returns what the store
// was told of the cost.
func meter(t *testing.T, b base, read func(io.ReadCloser), policies ...throttle.Policy) (settled [][]int, seen *events) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		seen = &events{}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(policies...), Base: b, Observe: seen.observe}))
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		read(resp.Body)
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		settled = store.settled
	})
	return settled, seen
}

// readAll reads a body to its end, and closes it.
func readAll(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
}

// TestMeterPassesBytesOn: the caller has each byte before the upstream writes the next.
func TestMeterPassesBytesOn(t *testing.T) {
	var w *io.PipeWriter
	m := &tally{}
	const text = "data: a\r\n\r\ndata: cost=42"
	piped := base(func(req *http.Request) (*http.Response, error) { // in the bubble
		var r *io.PipeReader
		r, w = io.Pipe()
		return streaming(r)(req)
	})
	settled, _ := meter(t, piped, func(body io.ReadCloser) {
		go func() {
			for i := range len(text) {
				_, _ = w.Write([]byte{text[i]})
				time.Sleep(time.Hour)
			}
			_ = w.Close()
		}()
		begin, p := time.Now(), make([]byte, 100)
		for i := range len(text) {
			n, err := body.Read(p)
			require.NoError(t, err)
			require.Equal(t, text[i:i+1], string(p[:n]))
			require.Equal(t, time.Duration(i)*time.Hour, time.Since(begin))
		}
		n, err := body.Read(p)
		require.Zero(t, n)
		require.Equal(t, io.EOF, err)
		require.NoError(t, body.Close())
	}, metered(m))
	require.Equal(t, [][]int{{42}}, settled)
	require.Equal(t, 1, m.asked)
	require.Equal(t, text, m.text.String())
}

// TestMeterOfBodiesThatAreCut: whoever cuts a body, and wherever, the meter says once what it knows.
func TestMeterOfBodiesThatAreCut(t *testing.T) {
	const text = "..=42"
	broken := errors.New("the connection is gone")
	for at := range len(text) + 1 {
		want := map[int][][]int{4: {{4}}, 5: {{42}}}[at] // a tally takes a number that is cut for a number
		for name, c := range map[string]struct {
			body io.Reader
			read func(io.ReadCloser)
		}{
			"by the upstream": {io.MultiReader(strings.NewReader(text[:at]), errReader{broken}), readAll},
			"by the caller": {strings.NewReader(text), func(body io.ReadCloser) {
				_, err := io.ReadFull(body, make([]byte, at))
				require.NoError(t, err)
				require.NoError(t, body.Close())
				require.NoError(t, body.Close())
			}},
			"by both": {io.MultiReader(strings.NewReader(text[:at]), errReader{broken}), func(body io.ReadCloser) {
				readAll(body)
				readAll(body)
			}},
		} {
			m := &tally{}
			settled, _ := meter(t, streaming(io.NopCloser(c.body)), c.read, metered(m))
			require.Equal(t, want, settled, "%s at %d", name, at)
			require.Equal(t, 1, m.asked)
		}
	}
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }

// TestMeterOfAForgottenBody: a body that nobody reads keeps its estimate, and no goroutine.
func TestMeterOfAForgottenBody(t *testing.T) {
	m := &tally{}
	settled, _ := meter(t, answer(200, "=42"), func(io.ReadCloser) {}, metered(m))
	require.Empty(t, settled)
	require.Zero(t, m.asked)
}

// TestMeterFreesSlots: a caller that closes early frees what is in flight.
func TestMeterFreesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metered(nil)
		p.Meter = func(*http.Response) throttle.Meter { return &tally{} }
		tr := newTransport(t, answer(200, "=42"), p, throttle.Policy{Name: "at once", Limit: throttle.Concurrency(1)})
		for range 3 {
			resp := must(tr.RoundTrip(get(t, home)))
			require.NoError(t, resp.Body.Close())
		}
	})
}

// TestMeterBesideAnswer: a meter is for rows of which the answer itself does not know the cost.
// Costs that are settled at two times do not undo each other.
func TestMeterBesideAnswer(t *testing.T) {
	first, second := metered(&tally{}), metered(&tally{})
	first.Name, first.Answer = "first", func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(3) }
	first.Meter = func(*http.Response) throttle.Meter { panic("asked") }
	second.Name, second.Answer = "second", func(*http.Response) throttle.Answer { return throttle.Answer{} }
	settled, seen := meter(t, answer(200, "=42"), readAll, first, second)
	require.Len(t, settled, 2, "the store hears of the answer and of the body, in any order")
	require.Equal(t, []int{3, 42}, settled[1])
	require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())

	synctest.Test(t, func(t *testing.T) { // the store has it as it was told
		tr := newTransport(t, answer(200, "=42"), first, second)
		readAll(must(tr.RoundTrip(get(t, home))).Body)
		synctest.Wait()
		require.Equal(t, 3, countedBy(t, tr, "first"))
		require.Equal(t, 42, countedBy(t, tr, "second"))
	})
}

// countedBy is what a budget without a key has counted.
func countedBy(t *testing.T, tr *throttle.Transport, policy string) int {
	t.Helper()
	return must(must(tr.Limiter(policy)).Status(t.Context(), "")).Used
}

// TestMeterIsNotAsked: there is no body, no cost to be settled, or the policy wants no meter.
func TestMeterIsNotAsked(t *testing.T) {
	never := func(*http.Response) throttle.Meter { t.Error("asked"); return nil }
	free, unlimited := metered(nil), metered(nil)
	free.Cost = func(*http.Request) int { return 0 }
	free.Name, unlimited.Name = "free", "unlimited"
	free.Meter, unlimited.Meter = never, never
	unlimited.Limit = throttle.Unlimited()
	settled, _ := meter(t, answer(200, "=42"), readAll, free, unlimited)
	require.Empty(t, settled)

	empty := metered(nil)
	empty.Meter = never
	settled, _ = meter(t, streaming(http.NoBody), readAll, empty)
	require.Empty(t, settled)

	settled, _ = meter(t, answer(200, "=42"), func(body io.ReadCloser) {
		require.Equal(t, "=42", string(must(io.ReadAll(body))))
	}, metered(nil))
	require.Empty(t, settled)
}

// TestMeterOfCodedBodies: a meter sees the text of a body that the base did not decode, and the
// caller sees the body as it came.
func TestMeterOfCodedBodies(t *testing.T) {
	pack := func(w io.WriteCloser, packed *bytes.Buffer, text string) string {
		must(io.WriteString(w, text))
		require.NoError(t, w.Close())
		return packed.String()
	}
	zipped := func(text string) string { var b bytes.Buffer; return pack(gzip.NewWriter(&b), &b, text) }
	var b bytes.Buffer
	deflated := pack(zlib.NewWriter(&b), &b, "a=42")
	for _, c := range []struct {
		name, coding, body string
		want               [][]int
	}{
		{"gzip", "gzip", zipped("a=42"), [][]int{{42}}},
		{"gzip without its end", "GZIP", zipped("a=42 ")[:20], [][]int{{42}}},
		{"no gzip", "gzip", "a=42", nil},
		{"nothing", "gzip", "", nil},
		{"deflate", "deflate", deflated, [][]int{{42}}},
		{"too long", "gzip", strings.Repeat(zipped("a=42 "), 40_000), nil},
		{"a bomb", "gzip", zipped("=42" + strings.Repeat(" ", 16<<20-3) + "1"), [][]int{{42}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			settled, seen := meter(t, answer(200, c.body, "Content-Encoding", c.coding), func(body io.ReadCloser) {
				require.Equal(t, c.body, string(must(io.ReadAll(body))))
				require.NoError(t, body.Close())
			}, metered(&tally{}))
			require.Equal(t, c.want, settled)
			require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())
		})
	}
	settled, seen := meter(t, answer(200, "=42", "Content-Encoding", "br"), readAll, metered(&tally{}))
	require.Empty(t, settled)
	require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventIllegible}, seen.kinds())
}

// TestMeterThatHasSeenEnough: an error of Write is no failure.
func TestMeterThatHasSeenEnough(t *testing.T) {
	m := &tally{err: io.ErrShortWrite}
	body := io.NopCloser(io.MultiReader(strings.NewReader("=4"), strings.NewReader("2")))
	settled, seen := meter(t, streaming(body), readAll, metered(m))
	require.Equal(t, [][]int{{4}}, settled)
	require.Equal(t, 1, m.writes)
	require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())
}

// A badMeter panics.
type badMeter struct{ writes, costs bool }

func (m badMeter) Write(p []byte) (int, error) {
	if m.writes {
		panic(secretToken)
	}
	return len(p), nil
}

func (m badMeter) Cost() int {
	if m.costs {
		panic(secretToken)
	}
	return 42
}

// TestMeterThatPanics: the caller gets the body, the estimate stays, and Observe is told.
func TestMeterThatPanics(t *testing.T) {
	bad := metered(nil)
	bad.Meter = func(*http.Response) throttle.Meter { panic(secretToken) }
	for name, p := range map[string]throttle.Policy{"Meter": bad, "Write": metered(badMeter{writes: true}), "Cost": metered(badMeter{costs: true})} {
		t.Run(name, func(t *testing.T) {
			settled, seen := meter(t, answer(200, "=42"), func(body io.ReadCloser) {
				require.Equal(t, "=42", string(must(io.ReadAll(body))))
			}, p)
			require.Empty(t, settled)
			e := seen.first(t, throttle.EventFunctionFailed)
			require.ErrorContains(t, e.Err, `policy "p": Meter: panicked with a string at adaptive_test.go:`)
			require.NotContains(t, e.Err.Error(), secretToken)
		})
	}
}

// TestMeterWhileTheCallerCloses: a body may be closed while it is read.
func TestMeterWhileTheCallerCloses(t *testing.T) {
	for range 50 {
		m := &tally{}
		settled, _ := meter(t, answer(200, strings.Repeat(".", 1000)+"=42"), func(body io.ReadCloser) {
			var all sync.WaitGroup
			all.Go(func() { _, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 10)) })
			all.Go(func() { _ = body.Close() })
			all.Wait()
		}, metered(m))
		require.LessOrEqual(t, len(settled), 1)
		require.Equal(t, 1, m.asked)
	}
}

// TestMeterAndAStoreThatIsAway: nobody waits for the store, and what was asked of it ends.
func TestMeterAndAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := newSpy(), &events{}
		store.settle = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(metered(&tally{})), Base: answer(200, "=42"), Observe: seen.observe}))
		begin := time.Now()
		readAll(must(tr.RoundTrip(get(t, home))).Body)
		require.Zero(t, time.Since(begin))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventStoreFailed}, seen.kinds())
	})
}
