package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A hastyBase calls the hooks of a request in goroutines of its own, and waits for none of them.
type hastyBase struct {
	dials  time.Duration
	writes bool // it answers after the headers; else it waits for the end of the request's context
	early  bool // it answers when it has dialled, whatever the hooks do
	fails  bool // it fails then, whatever the hooks do
}

var errHasty = errors.New("the base has failed")

func (b hastyBase) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	connected := make(chan struct{})
	time.Sleep(b.dials)
	go func() {
		trace.GotConn(httptrace.GotConnInfo{})
		close(connected)
	}()
	switch {
	case b.writes:
		<-connected
		time.Sleep(time.Second)
		go trace.WroteHeaders()
		time.Sleep(ms)
	case b.early:
		time.Sleep(b.dials)
	case b.fails:
		time.Sleep(b.dials)
		return nil, errHasty
	default:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return answer(http.StatusOK, "ok")(r)
}

// TestP6_AnAnswerWaitsForTheCheck has a base answer while the pre-write check waits for another start. What the answer says the request has cost
// is the cost of that start.
func TestP6_AnAnswerWaitsForTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := must(throttle.New(throttle.Config{
			Store: memstore.New(), Base: hastyBase{dials: time.Second, early: true}, MaxWait: throttle.Forever,
			Policies: everywhere(throttle.Policy{
				Name: "p", Limit: throttle.SlidingWindow(5, time.Minute),
				Answer: func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(3) },
			}),
		}))
		limiter := must(tr.Limiter("p"))
		time.AfterFunc(500*ms, func() { require.NoError(t, limiter.Pause(context.WithoutCancel(t.Context()), "", 2*time.Second)) })

		require.NoError(t, send(t, tr, get(t, home)))
		synctest.Wait()
		require.Equal(t, 3, must(limiter.Status(t.Context(), "")).Used)
	})
}

// TestP13_AnObserverWaitsForTheEnd has an observer wait, at an event of a hook, until the request is over. It is over
// though: nothing that the end needs is locked while the observer is called.
func TestP13_AnObserverWaitsForTheEnd(t *testing.T) {
	const ban = 2 * time.Second
	for _, c := range []struct {
		kind    throttle.EventKind
		base    hastyBase
		ban     time.Duration // of the budget, while the base dials
		maxWait time.Duration
		cancel  bool // the caller leaves during the check
		err     error
	}{
		{kind: throttle.EventLate, base: hastyBase{dials: ms, writes: true}},
		{kind: throttle.EventWaiting, base: hastyBase{dials: time.Second}, ban: time.Minute, cancel: true, err: context.Canceled},
		{kind: throttle.EventClosed, base: hastyBase{dials: time.Second}, ban: time.Minute, cancel: true, err: context.Canceled},
		{kind: throttle.EventRefused, base: hastyBase{dials: time.Second}, ban: time.Minute, maxWait: 2 * time.Second, err: throttle.ErrLimited},
		{kind: throttle.EventGaveUp, base: hastyBase{dials: time.Second}, ban: 3 * time.Second, cancel: true, err: context.Canceled},
		{kind: throttle.EventOpened, base: hastyBase{dials: time.Second, early: true}, ban: ban},
		{kind: throttle.EventOpened, base: hastyBase{dials: time.Second, fails: true}, ban: 2 * ban, err: errHasty},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over, seen := make(chan struct{}), make(chan struct{})
				store := memstore.New()
				policy := throttle.Policy{Name: "p", Limit: throttle.PerSecond(5)}
				slots := throttle.Policy{Name: "q", Limit: throttle.Concurrency(1)}
				tr := must(throttle.New(throttle.Config{
					Store: store, Base: c.base, MaxWait: cmp.Or(c.maxWait, throttle.Forever), Policies: everywhere(policy, slots),
					Observe: func(_ context.Context, e throttle.Event) {
						if e.Kind == c.kind {
							<-over
							close(seen)
						}
					},
				}))
				if c.ban > 0 {
					time.AfterFunc(500*ms, func() {
						require.NoError(t, must(tr.Limiter("p")).Pause(context.WithoutCancel(t.Context()), "", c.ban))
					})
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if c.cancel {
					time.AfterFunc(1500*ms, leave)
				}

				err := send(t, tr, get(t, home).WithContext(ctx))
				close(over)
				<-seen

				require.True(t, errors.Is(err, c.err), "%v", err)
				synctest.Wait()
				for _, name := range []string{"p", "q"} {
					st := must(must(tr.Limiter(name)).Status(context.Background(), ""))
					require.Zero(t, st.Waiting+st.Booked, name)
					if name == "q" {
						require.Zero(t, st.Used, "the slot is free")
					}
				}
			})
		})
	}
}

// A waitingMeter waits in Write until the body is closed.
type waitingMeter struct{ written, closed chan struct{} }

func (m *waitingMeter) Write(p []byte) (int, error) {
	close(m.written)
	<-m.closed
	return len(p), nil
}

func (m *waitingMeter) Cost() int { return 3 }

// TestP13_AMeterWaitsForTheEnd: a body can be closed while a meter sees a piece of it, and is settled when the meter has.
func TestP13_AMeterWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &waitingMeter{make(chan struct{}), make(chan struct{})}
		policy := throttle.Policy{Name: "p", Limit: throttle.PerHour(5), Meter: func(*http.Response) throttle.Meter { return m }}
		tr := newTransport(t, answer(http.StatusOK, strings.Repeat("x", 100)), policy)
		resp := must(tr.RoundTrip(get(t, home)))
		go func() { _, _ = resp.Body.Read(make([]byte, 10)) }()
		<-m.written
		require.NoError(t, resp.Body.Close())
		synctest.Wait()
		require.Equal(t, 1, must(must(tr.Limiter("p")).Status(t.Context(), "")).Used, "the meter has not told")

		close(m.closed)
		synctest.Wait()
		require.Equal(t, 3, must(must(tr.Limiter("p")).Status(t.Context(), "")).Used)
	})
}

// TestP1_LateHooksTouchNoOtherRequest: a base may call the hooks of a request when its answer has been returned. They find
// nothing there, and not what the next request has in the same memory.
func TestP1_LateHooksTouchNoOtherRequest(t *testing.T) {
	const requests = 200
	var late sync.WaitGroup
	tr := must(throttle.New(throttle.Config{
		MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(throttle.Policy{Name: "p", Limit: throttle.PerHour(requests), Jitter: -1}),
		Observe: func(context.Context, throttle.Event) {},
		Base: base(func(r *http.Request) (*http.Response, error) {
			hooks := httptrace.ContextClientTrace(r.Context())
			late.Go(func() {
				hooks.GotConn(httptrace.GotConnInfo{Reused: true})
				hooks.WroteHeaders()
			})
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("hi"))}, nil
		}),
	}))

	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for range requests / 4 {
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
		})
	}
	senders.Wait()
	late.Wait()

	st := must(must(tr.Limiter("p")).Status(t.Context(), ""))
	require.Equal(t, requests, st.Used)
}
