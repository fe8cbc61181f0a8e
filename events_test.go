package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

func TestEventKindString(t *testing.T) {
	for k, want := range map[throttle.EventKind]string{
		0: "unknown", throttle.EventWaiting: "waiting", throttle.EventStarted: "started", throttle.EventRefused: "refused",
		throttle.EventGaveUp: "gave up", throttle.EventStale: "stale", throttle.EventLate: "late", throttle.EventPenalized: "penalized",
		throttle.EventShadowed: "shadowed", throttle.EventStoreFailed: "store failed", throttle.EventFunctionFailed: "function failed",
		throttle.EventIllegible: "illegible", throttle.EventLowered: "lowered", throttle.EventStillWaiting: "still waiting",
		throttle.EventClosed: "closed", throttle.EventOpened: "opened", throttle.EventUnmatched: "unmatched", throttle.EventDropped: "dropped",
		throttle.EventOff: "off", 19: "unknown", 255: "unknown",
	} {
		require.Equal(t, want, k.String())
	}
}

// only leaves out the events of other kinds.
func (e *events) only(kinds ...throttle.EventKind) (all []throttle.Event) {
	for _, ev := range e.told() {
		for _, k := range kinds {
			if ev.Kind == k {
				all = append(all, ev)
			}
		}
	}
	return all
}

// TestEventsOfManyClosedBudgets: what is known of them is bounded.
func TestEventsOfManyClosedBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, MaxWait: -1, Policies: []throttle.Policy{withKeys(exact("p", throttle.PerSecond(5)))}}))
		one := must(l.Limiter("p"))
		for i := range 1100 {
			key := fmt.Sprint(i)
			require.NoError(t, one.Pause(t.Context(), key, time.Minute))
			require.ErrorIs(t, acquired(one.Acquire(t.Context(), key, 1)), throttle.ErrLimited)
		}
		require.Len(t, seen.only(throttle.EventClosed), 1024)
		time.Sleep(2 * time.Minute)
		require.NoError(t, one.Pause(t.Context(), "next", time.Minute))
		require.ErrorIs(t, acquired(one.Acquire(t.Context(), "next", 1)), throttle.ErrLimited)
		require.Len(t, seen.only(throttle.EventClosed), 1025, "those that are over make room")
	})
}

// TestEventClosedHasTheContextOfTheCaller: the bound on the question when the budget opens is not the observer's.
func TestEventClosedHasTheContextOfTheCaller(t *testing.T) {
	told := 0
	observe := func(ctx context.Context, e throttle.Event) {
		if e.Kind == throttle.EventClosed {
			_, bounded := ctx.Deadline()
			require.False(t, bounded)
			told++
		}
	}
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: observe, MaxWait: throttle.NoWait, Policies: []throttle.Policy{exact("p", throttle.PerSecond(5))}}))
	one := must(l.Limiter("p"))
	require.NoError(t, one.Pause(t.Context(), "", time.Minute))
	require.ErrorIs(t, acquired(one.Acquire(t.Context(), "", 1)), throttle.ErrLimited)
	require.Equal(t, 1, told)
}

func TestPauseNoteText(t *testing.T) {
	require.Equal(t, "paused", store.PauseNote{}.String())
	require.Equal(t, `paused by a\nb`, store.PauseNote{By: "a\nb"}.String())
	require.Equal(t, `paused by the \"boss\"`, store.PauseNote{By: `the "boss"`}.String())
	require.Equal(t, `paused: "why"`, store.PauseNote{Reason: "why"}.String())
}

func TestPriorityString(t *testing.T) {
	for p, want := range map[throttle.Priority]string{
		throttle.PriorityLow: "low", throttle.PriorityNormal: "normal", throttle.PriorityHigh: "high", 2: "priority 2", -2: "priority -2",
	} {
		require.Equal(t, want, p.String())
	}
}

// TestObserveDoesNotAllocate: a request that is not held costs an observer no memory.
func TestObserveDoesNotAllocate(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: http.NoBody}
	allocs := func(observe func(context.Context, throttle.Event)) float64 {
		tr := must(throttle.New(throttle.Config{
			Store: memstore.New(), Observe: observe, MaxWait: -1,
			Base:     base(func(*http.Request) (*http.Response, error) { return resp, nil }),
			Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(1 << 30)}},
		}))
		req := get(t, home)
		return testing.AllocsPerRun(1000, func() {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		})
	}
	require.Equal(t, allocs(nil), allocs(func(context.Context, throttle.Event) {}))
}

// TestManyRowsCostOneAllocation: a request under one policy or under many costs one allocation beside its base, the copy of
// the request that the base gets. A start of Limiters costs none if the permit does not leave its function.
func TestManyRowsCostOneAllocation(t *testing.T) {
	soak.WithoutRace(t)
	resp := &http.Response{StatusCode: 200, Body: http.NoBody}
	idle := base(func(*http.Request) (*http.Response, error) { return resp, nil })
	ctx := t.Context()
	for _, rows := range []int{1, 3, 6, 8} {
		var matched, named []throttle.Policy
		var demands []throttle.Demand
		for i := range rows {
			p := throttle.Policy{Name: strconv.Itoa(i), Limit: throttle.PerSecond(1 << 30)}
			named = append(named, p)
			demands = append(demands, throttle.Demand{Policy: p.Name, Cost: 1})
			p.Match, p.Key = "/", throttle.Header("X-Tenant")
			matched = append(matched, p)
		}

		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: idle, Policies: matched}))
		req := get(t, home)
		req.Header.Set("X-Tenant", "a")
		require.EqualValues(t, 1+soak.AllocsOf32Bits, testing.AllocsPerRun(1000, func() {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}), "a request under %d policies", rows)

		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: named}))
		require.EqualValues(t, soak.AllocsOf32Bits, testing.AllocsPerRun(1000, func() {
			p, err := l.Acquire(ctx, demands...)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}), "%d demands", rows)
	}
}

// TestObservedLimitersDoNotAllocate more than others.
func TestObservedLimitersDoNotAllocate(t *testing.T) {
	l := must(must(throttle.NewLimiters(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Observe: func(context.Context, throttle.Event) {},
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(1 << 30)}},
	})).Limiter("p"))
	ctx := t.Context()
	require.EqualValues(t, soak.AllocsOf32Bits, testing.AllocsPerRun(1000, func() {
		p, err := l.Acquire(ctx, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}))
}

// A secretPanic is what careless functions panic with.
type secretPanic struct{ token string }

func (p secretPanic) Error() string { return p.token }

// oneInFlight is a policy whose budget shows what was left behind.
var oneInFlight = throttle.Policy{Name: "flight", Limit: throttle.Concurrency(1)}

// TestP6_AFunctionThatPanicsRefusesTheRequest books nothing, closes the body, and
// says where, but not with what.
func TestP6_AFunctionThatPanicsRefusesTheRequest(t *testing.T) {
	var none []int
	_, file, line, _ := runtime.Caller(0) // each of these stands in a line of its own
	panics := func(*http.Request) string { panic(secretPanic{secretToken}) }
	text := func(*http.Request) int { panic(secretToken) }
	index := func(*http.Request) int { return none[3] }
	null := func(*http.Request) string { panic(nil) }
	at := func(lines int) string { return fmt.Sprintf(" at %s:%d", filepath.Base(file), line+lines) }
	for _, c := range []struct {
		name string
		bad  throttle.Policy
		want string
	}{
		{"key", throttle.Policy{Key: panics}, "Key: panicked with a throttle_test.secretPanic" + at(1)},
		{"cost", throttle.Policy{Cost: text}, "Cost: panicked with a string" + at(2)},
		{"runtime error", throttle.Policy{Cost: index}, "Cost: panicked with a runtime.boundsError" + at(3)},
		{"nil", throttle.Policy{Key: null}, "Key: panicked with a *runtime.PanicNilError" + at(4)},
		{"negative cost", throttle.Policy{Cost: func(*http.Request) int { return -7 }}, "Cost: returned -7: return 0 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.bad.Name, c.bad.Limit = "bad", throttle.PerHour(1)
			seen, store := &events{}, newSpy()
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Observe: seen.observe,
				Base: base(func(*http.Request) (*http.Response, error) {
					t.Error("sent")
					return nil, errors.New("sent")
				}), Policies: everywhere(oneInFlight, c.bad)}))
			body := &responseBody{t: t}
			r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
			_, err := tr.RoundTrip(r)

			var wrong *throttle.ConfigError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, "bad", wrong.Policy)
			require.EqualError(t, err, `throttle: policy "bad": `+c.want)
			require.NotErrorIs(t, err, throttle.ErrLimited)
			require.EqualValues(t, 1, body.closed.Load())
			require.Empty(t, store.booked())
			require.Equal(t, []throttle.EventKind{throttle.EventRefused}, seen.kinds())
			require.Equal(t, "bad", seen.all[0].Policy)

			require.Len(t, tr.Explain(r), 1, "what has a price is explained")
			var told recording
			told.see(err, seen.all[0])
			require.NotContains(t, told.String(), secretToken)
		})
	}
}

// TestP13_AFunctionMayAbortItsHandler lets the panic pass that net/http knows.
func TestP13_AFunctionMayAbortItsHandler(t *testing.T) {
	tr := newTransport(t, answer(200, ""), oneInFlight, throttle.Policy{Name: "bad", Limit: throttle.PerHour(1),
		Key: func(*http.Request) string { panic(http.ErrAbortHandler) }})
	body := &responseBody{t: t}
	r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = tr.RoundTrip(r) })
	require.EqualValues(t, 1, body.closed.Load())
}

// TestP13_ABaseThatPanicsLeavesNothingInFlight, and no watch: its panic is not ours.
func TestP13_ABaseThatPanicsLeavesNothingInFlight(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "base"} {
		synctest.Test(t, func(t *testing.T) {
			store := newSpy()
			paced := throttle.Policy{Name: "paced", Limit: throttle.LeakyBucket(2, time.Second), Jitter: -1}
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(oneInFlight, paced),
				Base: base(func(*http.Request) (*http.Response, error) { panic(value) })}))
			for range 2 {
				require.PanicsWithValue(t, value, func() { _, _ = tr.RoundTrip(get(t, home)) })
				require.Zero(t, status(t, store, tr, get(t, home)).Used)
			}
			require.Empty(t, store.going)
		})
	}
}

// TestP15_AnObserverThatPanics changes nothing, whatever it is told of, and hears
// of it if it listens.
func TestP15_AnObserverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, heard := memstore.New(), &events{}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store,
			Base: answer(429, "", "Retry-After", "1"), Policies: everywhere(oneInFlight, onePerHour),
			Observe: func(ctx context.Context, e throttle.Event) {
				if e.Kind != throttle.EventFunctionFailed {
					panic(secretToken)
				}
				heard.observe(ctx, e)
				panic("again")
			}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, home, nil))
		require.ErrorIs(t, send(t, tr, r), throttle.ErrLimited)

		require.Len(t, heard.all, 4) // Started, twice Penalized, Refused
		for _, e := range heard.all {
			require.ErrorContains(t, e.Err, "Observe: panicked with a string at events_test.go:")
			require.Equal(t, 1, strings.Count(e.Err.Error(), "throttle: "))
		}
	})
}

// TestObservers: each observer gets each event in its turn, whichever of the others panic, and hears of the panic once,
// also where observers are composed of composed ones.
func TestObservers(t *testing.T) {
	var told []string
	named := func(name string) func(context.Context, throttle.Event) {
		return func(_ context.Context, e throttle.Event) { told = append(told, fmt.Sprint(name, " ", e.Kind)) }
	}
	panics := func(context.Context, throttle.Event) { panic(secretToken) }
	both := []string{"a started", "b started"}
	failed := append(slices.Clone(both), "a function failed", "b function failed")

	for name, c := range map[string]struct {
		observe func(context.Context, throttle.Event)
		told    []string
	}{
		"one":               {throttle.Observers(named("a")), both[:1]},
		"two":               {throttle.Observers(named("a"), named("b")), both},
		"nil":               {throttle.Observers(nil, named("a"), nil, nil, named("b")), both},
		"nil with one":      {throttle.Observers(nil, named("a")), both[:1]},
		"the first panics":  {throttle.Observers(panics, named("a"), named("b")), failed},
		"the middle panics": {throttle.Observers(named("a"), panics, named("b")), failed},
		"the last panics":   {throttle.Observers(named("a"), named("b"), panics), failed},
		"several panic":     {throttle.Observers(panics, named("a"), panics, named("b"), panics), failed},
		"all panic":         {throttle.Observers(panics, panics), nil},
		"inner":             {throttle.Observers(throttle.Observers(panics, named("a")), throttle.Observers(nil), named("b")), failed},
		"outer":             {throttle.Observers(throttle.Observers(named("a"), named("b")), panics), failed},
	} {
		told = nil
		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Policies: everywhere(onePerHour), Observe: c.observe}))
		require.NoError(t, send(t, tr, get(t, home)), name)
		require.Equal(t, c.told, told, name)
	}
	require.Nil(t, throttle.Observers())
	require.Nil(t, throttle.Observers(nil, nil))
}

// TestObservers_ThePanic: the event names the line that panicked, and not what it panicked with; whoever calls the function
// without throttle gets the panic.
func TestObservers_ThePanic(t *testing.T) {
	heard := &events{}
	observe := throttle.Observers(func(_ context.Context, e throttle.Event) {
		if e.Kind == throttle.EventStarted {
			panic(secretToken)
		}
	}, heard.observe)
	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Policies: everywhere(onePerHour), Observe: observe}))
	require.NoError(t, send(t, tr, get(t, home)))
	require.Len(t, heard.all, 2)
	require.ErrorContains(t, heard.all[1].Err, "Observe: panicked with a string at events_test.go:")
	require.Equal(t, 1, strings.Count(heard.all[1].Err.Error(), "throttle: "))
	require.Panics(t, func() { observe(t.Context(), throttle.Event{Kind: throttle.EventStarted}) })
	require.NotPanics(t, func() { observe(t.Context(), throttle.Event{Kind: throttle.EventLate}) })
}

// TestPolicies returns what the program wrote, and a copy that it may change and set anew.
func TestPolicies(t *testing.T) {
	table := everywhere(onePerHour, oneInFlight)
	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Policies: table}))
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: table[:1]}))
	for name, c := range map[string]struct {
		get  func() []throttle.Policy
		set  func([]throttle.Policy) error
		want []throttle.Policy
	}{"transport": {tr.Policies, tr.SetPolicies, table}, "limiters": {l.Policies, l.SetPolicies, table[:1]}} {
		got := c.get()
		require.Equal(t, c.want, got, name)
		got[0].Name = "changed"
		require.Equal(t, c.want, c.get(), name)
		require.NoError(t, c.set(got), name)
		require.Equal(t, "changed", c.get()[0].Name, name)
		require.Error(t, c.set([]throttle.Policy{{}}), name)
		require.Equal(t, "changed", c.get()[0].Name, name)
		require.NoError(t, c.set(nil), name)
		require.Empty(t, c.get(), name)
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	ctx := t.Context()
	for _, key := range []string{"", "some key"} {
		l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1 << 30), Keyed: key != ""})
		require.EqualValues(t, soak.AllocsOf32Bits, testing.AllocsPerRun(1000, func() {
			p, err := l.Acquire(ctx, key, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}), "key %q", key)
	}
}

func TestHeader(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.Header("X-App")(r))
	r.Header = http.Header{"X-App": {"a", "b"}, "X-None": {}}
	require.Equal(t, "a", throttle.Header("x-app")(r))
	require.Empty(t, throttle.Header("X-None")(r))
}

func TestQuery(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", ""},
		{"app=1", "1"},
		{"app=1&app=2", "1"},
		{"apps=1", ""},
		{"x=app&app=2", "2"},
		{"app", ""},
		{"&&app=a+b%20c", "a b c"},
		{"%61pp=1", "1"},
		{"app=1;x=2&app=3", "3"},
		{"app=%zz&app=3", "3"},
		{"app==", "="},
	} {
		r := &http.Request{URL: &url.URL{RawQuery: c.query}}
		require.Equal(t, c.want, throttle.Query("app")(r), "%q", c.query)
	}
}

func TestQueryDoesNotReadTheBody(t *testing.T) {
	r := &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{RawQuery: "app=1"},
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   io.NopCloser(iotest.ErrReader(errors.New("read"))),
	}
	require.Equal(t, "1", throttle.Query("app")(r))
	require.Nil(t, r.Form)
}

// TestBodyMember: a member of a JSON body is a key, and the body is sent as it was. A body that is something else, or that
// can be read only once, has none and is left alone.
func TestBodyMember(t *testing.T) {
	for _, c := range []struct{ media, body, want string }{
		{"application/json", `{"model": "m", "n": 1}`, "m"},
		{"Application/JSON; charset=utf-8", `{"messages": [{"model": "x"}], "model": "m"}`, "m"},
		{"application/json", `{"model": 7}`, "7"},
		{"application/json", `{"model": {"name": "m"}}`, ""},
		{"application/json", `{"model": ["m"]}`, ""},
		{"application/json", `{"n": 1}`, ""},
		{"application/json", `[{"model": "m"}]`, ""},
		{"application/json", `no JSON`, ""},
		{"application/json", ``, ""},
		{"text/plain", `{"model": "m"}`, ""},
		{"", `{"model": "m"}`, ""},
	} {
		r := must(http.NewRequest(http.MethodPost, "https://example.com/", strings.NewReader(c.body)))
		r.Header.Set("Content-Type", c.media)
		require.Equal(t, c.want, throttle.BodyMember("model")(r), "%+v", c)
		require.Equal(t, c.body, string(must(io.ReadAll(r.Body))))
	}

	once := must(http.NewRequest(http.MethodPost, "https://example.com/", io.NopCloser(strings.NewReader(`{"model": "m"}`))))
	once.Header.Set("Content-Type", "application/json")
	require.Empty(t, throttle.BodyMember("model")(once))
	require.Equal(t, `{"model": "m"}`, string(must(io.ReadAll(once.Body))))
	require.Empty(t, throttle.BodyMember("model")(&http.Request{}))
}

func TestWildcards(t *testing.T) {
	for pattern, want := range map[string][]string{
		"": nil, "api.example.com/": nil, "{shop}.example.com/admin/{id}/{rest...}": {"shop", "id", "rest"}, "/users/{id}/{$}": {"id"},
	} {
		got, err := throttle.Policy{Match: pattern}.Wildcards()
		require.NoError(t, err)
		require.Equal(t, want, got, pattern)
	}
	_, err := throttle.Policy{Match: "{a}.{a}.example.com/"}.Wildcards()
	require.ErrorContains(t, err, "stands twice")
}

func TestPathValue(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.PathValue("shop")(r))
	r.SetPathValue("shop", "tea")
	require.Equal(t, "tea", throttle.PathValue("shop")(r))
}

func TestHost(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://API.Example.com/", "api.example.com"},
		{"https://api.example.com./", "api.example.com"},
		{"https://api.example.com:443/", "api.example.com"},
		{"https://api.example.com.:443/", "api.example.com"},
		{"https://api.example.com:/", "api.example.com"},
		{"http://api.example.com:80/", "api.example.com"},
		{"http://api.example.com:443/", "api.example.com:443"},
		{"https://api.example.com:80/", "api.example.com:80"},
		{"https://api.example.com.:8443/", "api.example.com:8443"},
		{"https://[2001:DB8::1]:443/", "[2001:db8::1]"},
		{"https://[2001:DB8::1]/", "[2001:db8::1]"},
		{"https://[::1]:8443/", "[::1]:8443"},
		{"/relative", ""},
	} {
		u, err := url.Parse(c.url)
		require.NoError(t, err)
		require.Equal(t, c.want, throttle.Host(&http.Request{URL: u, Host: "other.example.com"}), "%s", c.url)
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"", "/"}, {"/", "/"}, {"//", "/"}, {"*", "/*"},
		{"/b", "/b"}, {"/b/", "/b"}, {"b", "/b"}, {"//b", "/b"},
		{"/a/../b", "/b"}, {"/a/./b", "/a/b"}, {"/../b", "/b"}, {"..", "/"},
		{"/B", "/B"}, {"/a b", "/a b"},
	} {
		require.Equal(t, c.want, throttle.RawPath(&http.Request{URL: &url.URL{Path: c.path}}), "%q", c.path)
	}
}

func TestMethod(t *testing.T) {
	require.Equal(t, "GET", throttle.Method(&http.Request{}))
	require.Equal(t, "POST", throttle.Method(&http.Request{Method: "POST"}))
}

func TestKeysOfARequestWithoutURL(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.Query("app")(r))
	require.Empty(t, throttle.Host(r))
	require.Equal(t, "/", throttle.RawPath(r))
}

func constant(s string) func(*http.Request) string {
	return func(*http.Request) string { return s }
}

// joined is what Join makes of values.
func joined(values ...string) string {
	var fs []func(*http.Request) string
	for _, v := range values {
		fs = append(fs, constant(v))
	}
	return throttle.Join(fs...)(&http.Request{})
}

func TestJoin(t *testing.T) {
	require.Empty(t, joined())
	require.Equal(t, "0:", joined(""))
	require.Equal(t, "3:app", joined("app"))
	require.Equal(t, "3:app5:/path", joined("app", "/path"))
	require.Equal(t, "200:"+strings.Repeat("x", 200), joined(strings.Repeat("x", 200)))
}

func TestJoinIsInjective(t *testing.T) {
	seen := map[string][]string{}
	parts := []string{"", "a", "b", "ab", ":", "1:a", "0:", "0:0:", "a\x00", "\x00", "/", "2:0:"}
	note := func(values ...string) {
		key := joined(values...)
		require.NotContains(t, seen, key, "%q and %q", values, seen[key])
		seen[key] = values
	}
	note()
	for _, a := range parts {
		note(a)
		for _, b := range parts {
			note(a, b)
			for _, c := range parts {
				note(a, b, c)
			}
		}
	}
	require.Len(t, seen, 1+12+12*12+12*12*12)
}

func TestJoinKeepsItsFunctions(t *testing.T) {
	fs := []func(*http.Request) string{constant("a")}
	key := throttle.Join(fs...)
	fs[0] = constant("b")
	require.Equal(t, "1:a", key(&http.Request{}))
}

// FuzzJoin cuts two texts into values at each newline.
func FuzzJoin(f *testing.F) {
	f.Add("a\nb", "ab")
	f.Add("1:a", "a\n")
	f.Add("0:", "\n")
	f.Add("\n\n", "\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		va, vb := strings.Split(a, "\n"), strings.Split(b, "\n")
		require.Equal(t, a == b, joined(va...) == joined(vb...))
	})
}

// FuzzQuery compares with what net/url reads.
func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=2", "b")
	f.Add("%61=%zz&a=2;3&a=+", "a")
	f.Add("=1&&a", "")
	f.Fuzz(func(t *testing.T, query, name string) {
		u := &url.URL{RawQuery: query}
		require.Equal(t, u.Query().Get(name), throttle.Query(name)(&http.Request{URL: u}))
	})
}

func BenchmarkKey(b *testing.B) {
	u, err := url.Parse("https://oapi.dingtalk.com/topapi/user/get?lang=zh_CN&access_token=0123456789abcdef")
	require.NoError(b, err)
	r := &http.Request{URL: u, Header: http.Header{"X-App": {"ding0123456789"}}}
	for name, key := range map[string]func(*http.Request) string{
		"query": throttle.Query("access_token"),
		"host":  throttle.Host,
		"path":  throttle.RawPath,
		"join":  throttle.Join(throttle.Header("X-App"), throttle.RawPath),
	} {
		b.Run(name, func(b *testing.B) {
			require.NotEmpty(b, key(r))
			b.ReportAllocs()
			for b.Loop() {
				key(r)
			}
		})
	}
}

// TestRoute: paths with ids share the key of their route, and what has no route shares one.
func TestRoute(t *testing.T) {
	key := throttle.Route("/users/{id}", "GET /users/{id}/posts", "/files/")
	for path, want := range map[string]string{
		"/users/1": "/users/{id}", "/users/2": "/users/{id}", "/users/1/posts": "GET /users/{id}/posts",
		"/files/a/b": "/files/", "/users/1/likes": "", "/": "", "/users/a/../1": "/users/{id}",
	} {
		require.Equal(t, want, key(&http.Request{URL: &url.URL{Path: path}}), path)
	}
	require.Empty(t, key(&http.Request{Method: "POST", URL: &url.URL{Path: "/users/1/posts"}}))
	require.Empty(t, key(&http.Request{}))
	require.Equal(t, "/{x}/b", throttle.Route("/{x}/b", "/a/{y}")(&http.Request{URL: &url.URL{Path: "/a/b"}}), "the first counts")
}

// TestKeysThatCannotWork: New refuses a key, or a share, that would be the same for every request, or that speaks of what
// Match does not have, however deep it is joined. It calls no function of the program's own.
func TestKeysThatCannotWork(t *testing.T) {
	own := func(*http.Request) string { panic("a function of the program is not called") }
	ends := func(texts ...string) []string { return texts }
	const noWildcard = " reads a wildcard that Match does not have, so it is empty for every request: write {"
	for _, c := range []struct {
		match string
		key   func(*http.Request) string
		wrong []string // what each mistake begins with
	}{
		{"a.com/{id}", throttle.PathValue("id"), nil},
		{"{shop}.a.com/", throttle.Join(throttle.PathValue("shop"), own, throttle.Host), nil},
		{"a.com/{rest...}", throttle.PathValue("rest"), nil},
		{"a.com/", throttle.Join(throttle.Header("X-App"), throttle.Query("a"), throttle.BodyMember("m"), throttle.Route("/a", "/")), nil},
		{"a.com/", own, nil},
		{"a.com/", throttle.PathValue("id"), ends(`PathValue("id")` + noWildcard)},
		{"a.com/{ID}", throttle.PathValue("id"), ends(`PathValue("id")` + noWildcard)},
		{"a.com/{id}", throttle.Join(own, throttle.Join(throttle.PathValue("ID"), throttle.PathValue("id"), throttle.PathValue("x"))),
			ends(`PathValue("ID")`+noWildcard, `PathValue("x")`+noWildcard)},
		{"a.com/", throttle.PathValue(""), ends(`PathValue("") names nothing`)},
		{"a.com/", throttle.Query(""), ends(`Query("") names nothing`)},
		{"a.com/", throttle.BodyMember(""), ends(`BodyMember("") names nothing`)},
		{"a.com/", throttle.Header(""), ends(`Header("") is no name of a header field`)},
		{"a.com/", throttle.Header("X App"), ends(`Header("X App") is no name of a header field`)},
		{"a.com/", throttle.Header("X-Äpp"), ends(`Header("X-Äpp") is no name of a header field`)},
		{"a.com/", throttle.Header("host"), ends(`Header("Host") is always empty`)},
		{"a.com/", throttle.Join(), ends("Join() of nothing is the same key for every request")},
		{"a.com/", throttle.Join(nil, throttle.Header(""), throttle.Join()), ends("Join has a function that is nil", `Header("") is no name`, "Join() of nothing")},
		{"a.com/", throttle.Route(), ends("Route() has no pattern")},
		{"a.com/", throttle.Route("users/{id", "", "/ok", "/{a}/{a}"), ends(`Route: pattern "users/{id": at offset 6: bad wildcard`, `Route: pattern "": is empty`, `Route: pattern "/{a}/{a}": at offset`)},
		{"a.com/", throttle.Join(throttle.Route("/users/{id}", "/users/me", "GET /users/{x}", "/users/")),
			ends(`Route: pattern "/users/me" never counts, because "/users/{id}" stands before it`, `Route: pattern "GET /users/{x}" never counts`)},
		{"a.com/", throttle.Route("/", "/a"), ends(`Route: pattern "/a" never counts, because "/" stands before it`)},
	} {
		for field, p := range map[string]throttle.Policy{
			"Key":   {Name: "a", Match: c.match, Limit: throttle.PerSecond(1), Key: c.key},
			"Share": {Name: "a", Match: c.match, Limit: throttle.PerSecond(1), Share: c.key},
		} {
			_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			_, sameErr := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			require.Equal(t, err, sameErr)
			if c.wrong == nil {
				require.NoError(t, err)
				continue
			}

			all := strings.Split(err.Error(), "\n")
			require.Len(t, all, len(c.wrong), "%v", err)
			for i, begin := range c.wrong {
				require.Truef(t, strings.HasPrefix(all[i], fmt.Sprintf(`throttle: policy "a": %s: %s`, field, begin)), "%s", all[i])
			}
		}
	}
}

// TestAWrongRouteInsideAFunction: where New cannot look, the requests are refused with what is wrong.
func TestAWrongRouteInsideAFunction(t *testing.T) {
	wrong := throttle.Route("users")
	p := throttle.Policy{Name: "a", Match: "/", Limit: throttle.PerSecond(1), Key: func(r *http.Request) string { return wrong(r) }}
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.NoError(t, err)
	_, err = tr.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: "a.invalid", Path: "/"}})
	require.ErrorContains(t, err, `policy "a": Key: Route: pattern "users": at offset 5: no path`)
}
