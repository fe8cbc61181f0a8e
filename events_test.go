package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// watched returns a transport, the events that it causes, and what an event
// about the policy "p" says of its budget.
func watched(t *testing.T, c throttle.Config) (*throttle.Transport, *events, throttle.Event) {
	t.Helper()
	seen := &events{}
	c.Observe = seen.observe
	if c.Store == nil {
		c.Store = memstore.New()
	}
	c.Policies = []throttle.Policy{onePerSecond}
	tr := must(throttle.New(c))
	return tr, seen, throttle.Event{
		Policy: "p", Budget: tr.Explain(get(t, home))[0].Budget.String(), Limit: throttle.PerSecond(1),
	}
}

// event completes what events about one budget have in common.
func event(about throttle.Event, k throttle.EventKind, wait time.Duration, err error) throttle.Event {
	if about.Kind, about.Duration, about.Err = k, wait, err; k == throttle.Waiting {
		about.Callers = 1
	}
	return about
}

func TestEventsOfARequestThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, seen, _ := watched(t, throttle.Config{Base: answer(200, "")})
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []throttle.Event{{Kind: throttle.Started}}, seen.all, "no policy held it")
	})
}

func TestEventsOfARequestThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, seen, about := watched(t, throttle.Config{Base: answer(200, "")})
		line(t, tr, 2, home)
		require.Equal(t, []throttle.Event{
			{Kind: throttle.Started},
			event(about, throttle.Waiting, spanOfOne, nil),
			event(about, throttle.Started, spanOfOne, nil),
		}, seen.all)
	})
}

// TestEventsComeInTime: a wait is reported when it begins, so that a silence
// can be explained while it lasts.
func TestEventsComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		tr := must(throttle.New(throttle.Config{
			Store: memstore.New(), Base: answer(200, ""), Policies: []throttle.Policy{onePerSecond},
			Observe: func(context.Context, throttle.Event) { at = append(at, time.Since(begin)) },
		}))
		line(t, tr, 2, home)
		require.Equal(t, []time.Duration{0, 0, spanOfOne}, at)
	})
}

func TestEventsOfARefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, seen, about := watched(t, throttle.Config{Base: answer(200, ""), MaxWait: -1})
		require.NoError(t, send(t, tr, get(t, home)))
		err := send(t, tr, get(t, home))
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Equal(t, []throttle.Event{{Kind: throttle.Started}, event(about, throttle.Refused, 0, err)}, seen.all)
	})
}

func TestEventsOfARequestThatCanNeverFit(t *testing.T) {
	seen := &events{}
	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Observe: seen.observe,
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(1), Cost: cost}}}))
	err := send(t, tr, get(t, home+"?cost=2"))
	require.Equal(t, []throttle.Event{
		{Kind: throttle.Refused, Policy: "p", Limit: throttle.PerSecond(1), Err: err},
	}, seen.all)
}

func TestEventsOfACallerThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, seen, about := watched(t, throttle.Config{Base: answer(200, "")})
		require.NoError(t, send(t, tr, get(t, home)))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel)
		waited := send(t, tr, get(t, home).WithContext(ctx))
		require.EqualError(t, waited, `throttle: the caller gave up after waiting 300ms for policy "p": context canceled`)
		never := send(t, tr, get(t, home).WithContext(ctx))
		require.EqualError(t, never, `throttle: the caller gave up after 0s: context canceled`)
		require.Equal(t, []throttle.Event{
			{Kind: throttle.Started},
			event(about, throttle.Waiting, spanOfOne, nil),
			event(about, throttle.GaveUp, 300*ms, waited),
			{Kind: throttle.GaveUp, Err: never},
		}, seen.all)
	})
}

func TestEventsOfAStoreThatCannotBeAsked(t *testing.T) {
	down := errors.New("throttle: redis is away")
	tr, seen, _ := watched(t, throttle.Config{Store: brokenStore{down}, Base: answer(200, "")})
	err := send(t, tr, get(t, home))
	require.ErrorIs(t, err, down)
	require.NotErrorIs(t, err, throttle.ErrLimited)
	var failed *throttle.StoreError
	require.ErrorAs(t, err, &failed)
	require.EqualError(t, err, "throttle: the store could not be asked: redis is away")
	require.Len(t, seen.all, 1)
	require.Equal(t, throttle.Refused, seen.all[0].Kind)
	require.Equal(t, err, seen.all[0].Err)
}

func TestEventsOfAGrantThatIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		tr, seen, about := watched(t, throttle.Config{Store: store, Base: newDialer(always(100 * ms))})
		elsewhere(t, store, tr, 50*ms) // what is free before the first is connected
		line(t, tr, 2, home)
		require.Equal(t, []throttle.EventKind{
			throttle.Started, throttle.Waiting, // the first has its grant, the second stands in line
			throttle.Stale, throttle.Waiting, throttle.Started, // the first waits, connected; the second is handed on
			throttle.Stale, // its connection is late as well, but nobody took its start
		}, seen.kinds())
		require.Equal(t, throttle.Event{Kind: throttle.Stale, Duration: 100 * ms}, seen.first(t, throttle.Stale))
		waiting := event(about, throttle.Waiting, 2*spanOfOne-100*ms, nil)
		waiting.Callers = 2
		require.Equal(t, waiting, seen.all[3])
	})
}

// TestP2_LateSendsAreCounted: between the pre-write check and the first byte nothing
// can be helped any more, but it can be told.
func TestP2_LateSendsAreCounted(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want []throttle.EventKind
	}{
		{throttle.DefaultJitter, []throttle.EventKind{throttle.Started}},
		{50 * ms, []throttle.EventKind{throttle.Started, throttle.Late}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, seen, _ := watched(t, throttle.Config{Base: base(func(r *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(r.Context())
				trace.GotConn(httptrace.GotConnInfo{})
				time.Sleep(c.took)
				trace.WroteHeaders()
				return answer(200, "")(r)
			})})
			require.NoError(t, send(t, tr, get(t, home)))
			require.Equal(t, c.want, seen.kinds())
			if len(c.want) > 1 {
				require.Equal(t, 15*ms, seen.first(t, throttle.Late).Duration)
			}
		})
	}
}

func TestEventKindString(t *testing.T) {
	for k, want := range map[throttle.EventKind]string{
		0: "unknown", throttle.Waiting: "waiting", throttle.Started: "started", throttle.Refused: "refused",
		throttle.GaveUp: "gave up", throttle.Stale: "stale", throttle.Late: "late", throttle.Penalized: "penalized",
		throttle.Shadowed: "shadowed", throttle.StoreFailed: "store failed", throttle.FunctionFailed: "function failed",
		throttle.Illegible: "illegible", throttle.Lowered: "lowered", throttle.StillWaiting: "still waiting",
		throttle.Closed: "closed", throttle.Opened: "opened", 16: "unknown", 255: "unknown",
	} {
		require.Equal(t, want, k.String())
	}
}
