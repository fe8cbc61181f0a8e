package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
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

func TestPauseNoteText(t *testing.T) {
	require.Equal(t, "paused", store.PauseNote{}.String())
	require.Equal(t, `paused by a\nb`, store.PauseNote{By: "a\nb"}.String())
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
