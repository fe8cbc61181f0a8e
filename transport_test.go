package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
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

var onePerHour = throttle.Policy{Name: "hourly", Limit: throttle.PerHour(1)}

func TestP13_RequestIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed *http.Request
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			passed = r
			return answer(200, "")(r)
		}), throttle.Policy{
			Name: "shop", Match: "{shop}.example.com/{id}", Key: throttle.PathValue("shop"),
			Limit: throttle.PerSecond(1),
		})
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example.com/7?q=1", strings.NewReader("x")))
		r.Header.Set("X-App", "a")
		before := r.Clone(r.Context())
		body := r.Body

		resp, err := tr.RoundTrip(r)
		require.NoError(t, err)
		require.Same(t, r, resp.Request, "the answer names the caller's request")
		require.NoError(t, resp.Body.Close())

		require.Equal(t, before.URL, r.URL)
		require.Equal(t, before.Header, r.Header)
		require.Equal(t, before.Method, r.Method)
		require.Empty(t, r.PathValue("shop"), "path values are for Key alone")
		require.Same(t, t.Context(), r.Context())
		require.Equal(t, body, r.Body)
		require.Equal(t, body, passed.Body, "the body is handed on as it is")
	})
}

func TestP13_ClientTimeoutIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &http.Client{Timeout: 10 * time.Second, Transport: newTransport(t, answer(200, ""), onePerHour)}
		resp, err := c.Do(get(t, "http://example.com/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		begin := time.Now()
		_, err = c.Do(get(t, "http://example.com/"))
		require.Zero(t, time.Since(begin), "a wait that cannot fit is not begun")
		require.ErrorIs(t, err, throttle.ErrLimited)
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.False(t, u.Timeout(), "nothing timed out: it was refused")
	})
}

// closeCounter is a base that counts CloseIdleConnections.
type closeCounter struct {
	base
	n int
}

func (c *closeCounter) CloseIdleConnections() { c.n++ }

func TestP13_CloseIdleConnectionsIsPassedOn(t *testing.T) {
	b := &closeCounter{base: answer(200, "")}
	tr := newTransport(t, b, onePerHour)
	(&http.Client{Transport: tr}).CloseIdleConnections()
	require.Equal(t, 1, b.n)
	require.Same(t, b, tr.Unwrap())
	require.NotPanics(t, newTransport(t, answer(200, "")).CloseIdleConnections)
}

func TestP13_StreamingBodiesKeepWorking(t *testing.T) {
	more := make(chan string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for s := range more {
			io.WriteString(w, s)
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	tr := newTransport(t, &http.Transport{}, onePerHour)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(get(t, srv.URL))
	require.NoError(t, err)
	for _, want := range []string{"one", "two"} {
		more <- want
		got := make([]byte, 3)
		_, err := io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	close(more)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.NoError(t, resp.Body.Close())
}

func TestP13_NeverAnAnswerAndAnError(t *testing.T) {
	tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
		resp, _ := answer(500, "x")(r)
		return resp, net.ErrClosed
	}), onePerHour)
	resp, err := tr.RoundTrip(get(t, "http://example.com/"))
	require.Nil(t, resp)
	require.ErrorIs(t, err, net.ErrClosed)
}

// A brokenStore fails always, and is asked for nothing else.
type brokenStore struct {
	throttle.Store
	err error
}

func (b brokenStore) Traits() store.Traits { return store.Traits{} }

func (b brokenStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, b.err
}

func (b brokenStore) Pause(context.Context, store.Charge, time.Duration) error { return b.err }

func (b brokenStore) Status(context.Context, store.Charge) (throttle.Status, error) {
	return throttle.Status{}, b.err
}

// TestP13_TheBaseSeesTheCallersContext: its values, its deadline and its end, with
// the cause; and so does code that derives a context from it.
func TestP13_TheBaseSeesTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		reason := errors.New("called off")
		root, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		ctx, stop := context.WithTimeout(root, time.Hour)
		defer stop()
		end := time.Now().Add(time.Hour)
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			seen := r.Context()
			before := inBubble()
			derived, stop := context.WithCancel(seen)
			defer stop()
			require.LessOrEqual(t, inBubble(), before, "the standard library knows it as one of its own")
			for _, c := range []context.Context{seen, derived} {
				require.Equal(t, "value", c.Value(key{}))
				deadline, ok := c.Deadline()
				require.True(t, ok)
				require.Equal(t, end, deadline)
				require.NoError(t, c.Err())
			}
			cancel(reason)
			for _, c := range []context.Context{seen, derived} {
				<-c.Done()
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.Equal(t, reason, context.Cause(c))
			}
			return nil, seen.Err()
		}), onePerHour)
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
	})
}

// TestP13_TheCallersHooksAreCalled: those of its own trace, on the way to the connection
// and on it.
func TestP13_TheCallersHooksAreCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(http.ResponseWriter, *http.Request) {}, onePerHour)
		var mu sync.Mutex
		called := make(map[string]int)
		hook := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			called[name]++
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			ConnectStart: func(string, string) { hook("ConnectStart") },
			GotConn:      func(httptrace.GotConnInfo) { hook("GotConn") },
			WroteHeaders: func() { hook("WroteHeaders") },
			WroteRequest: func(httptrace.WroteRequestInfo) { hook("WroteRequest") },
		})
		resp, err := u.RoundTrip(get(t, u.url).WithContext(ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string]int{"ConnectStart": 1, "GotConn": 1, "WroteHeaders": 1, "WroteRequest": 1}, called)
	})
}

// TestP15_AContextThatIsLookedAtLate: after the answer is over, and by many at once.
func TestP15_AContextThatIsLookedAtLate(t *testing.T) {
	var kept context.Context
	tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
		kept = r.Context()
		return answer(200, "some")(r)
	}), throttle.Policy{Name: "p", Limit: throttle.PerHour(100)})
	resp, err := tr.RoundTrip(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			<-kept.Done()
			if !errors.Is(kept.Err(), context.Canceled) {
				t.Error(kept.Err())
			}
		})
	}
	all.Wait()
}

// A slowContext has ended, and has not yet told those that were made of it.
type slowContext struct {
	context.Context
	ended bool
}

func (c *slowContext) Done() <-chan struct{} { return nil }

func (c *slowContext) Err() error {
	if c.ended {
		return context.DeadlineExceeded
	}
	return nil
}

// TestP13_TheEndIsTheCallersOwn: a request whose deadline passes fails with that,
// also if what it has in flight ends before its context is told.
func TestP13_TheEndIsTheCallersOwn(t *testing.T) {
	for _, c := range []struct {
		name         string
		asked, ended bool
		want         error
	}{
		{"the caller's context has ended", false, true, context.DeadlineExceeded},
		{"it has not", false, false, context.Canceled},
		{"it has ended and not told yet", true, true, nil}, // it has the word
		{"it has not, and the base waits for it", true, false, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := &slowContext{Context: t.Context()}
			var sent context.Context
			tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
				if sent = r.Context(); c.asked {
					require.NotNil(t, sent.Done())
				}
				return answer(200, "some")(r)
			}), onePerHour)
			resp, err := tr.RoundTrip(get(t, home).WithContext(parent))
			require.NoError(t, err)
			parent.ended = c.ended
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, sent.Err())
		})
	}
}

const (
	ms = time.Millisecond
	us = time.Microsecond

	home = "https://example.com/"
)

// TestLimitErrorThroughTheClient: http.Client wraps every error in a *url.Error.
func TestLimitErrorThroughTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, answer(200, ""), onePerHour)
		require.NoError(t, send(t, tr, get(t, home)))
		r := get(t, home)
		_, err := (&http.Client{Transport: tr}).Do(r.WithContext(throttle.WithMaxWait(r.Context(), -1)))
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.ErrorIs(t, err, throttle.ErrLimited)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, "hourly", limited.Policy)
		require.Equal(t, throttle.PerHour(1), limited.Limit)
		require.Equal(t, time.Hour+35*ms+us, limited.RetryAfter)
		require.False(t, limited.Paused)
	})
}

// TestUnmatched: a request that no policy matches is told each time, and refused if the program wants that. The error and the
// event name the host and nothing else of the URL.
func TestUnmatched(t *testing.T) {
	for _, c := range []struct {
		mode throttle.Unmatched
		err  string
	}{
		{throttle.UnmatchedPass, ""},
		{throttle.UnmatchedRefuse, `throttle: no policy matches a POST request to "api.example.org": correct the policy's Match, or add a policy for these requests`},
	} {
		var seen events
		sent, closed := newStarts(), new(responseBody)
		config := throttle.Config{
			Store: memstore.New(), Unmatched: c.mode, Observe: seen.observe, Base: sent,
			Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(5)}},
		}
		r := must(http.NewRequest(http.MethodPost, "https://API.example.org:443/v1/secret?token=secret", closed))
		_, err := must(throttle.New(config)).RoundTrip(r)
		_, errOfLimiters := must(throttle.NewLimiters(withoutBase(config))).AcquireRequest(r)

		for _, err := range []error{err, errOfLimiters} {
			if c.err == "" {
				require.NoError(t, err)
				continue
			}
			require.EqualError(t, err, c.err)
			require.ErrorAs(t, err, new(*throttle.UnmatchedError))
		}
		require.Len(t, sent.seen(), map[throttle.Unmatched]int{throttle.UnmatchedPass: 1}[c.mode])
		e := seen.first(t, throttle.EventUnmatched)
		require.Equal(t, "api.example.org", e.Host)
		require.Equal(t, "unmatched", e.Kind.String())
		require.Equal(t, c.err != "", e.Err != nil)
	}

	_, err := throttle.New(throttle.Config{Store: memstore.New(), Unmatched: 2})
	require.EqualError(t, err, "throttle: Unmatched: 2 is unknown: use UnmatchedPass or UnmatchedRefuse")
	_, err = throttle.New(throttle.Config{Unmatched: 2})
	require.ErrorContains(t, err, "throttle: Unmatched: 2 is unknown")
	require.ErrorContains(t, err, "throttle: Store: is required", "all mistakes at once")
}

// withoutBase returns a configuration for limiters.
func withoutBase(c throttle.Config) throttle.Config {
	c.Base = nil
	return c
}
