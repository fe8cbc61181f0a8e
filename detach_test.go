package throttle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// onePerSecond has the default jitter: two starts are spanOfOne apart.
var onePerSecond = throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)}

const spanOfOne = time.Second + acquire.DefaultJitter + us

// A dialer is a base that tells of its connections, as http.Transport does. It
// notes when it got each request and when it wrote it.
type dialer struct {
	handed, written *starts
	dial            func(*http.Request) time.Duration // how long each connection takes
	reused          bool                              // its connections were used before
}

func newDialer(dial func(*http.Request) time.Duration) *dialer {
	return &dialer{newStarts(), newStarts(), dial, false}
}

// always returns a dial that takes the same time for every request.
func always(d time.Duration) func(*http.Request) time.Duration {
	return func(*http.Request) time.Duration { return d }
}

func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = d.handed.RoundTrip(r)
	if err := d.connect(r); err != nil {
		return nil, err
	}
	return d.write(r)
}

// connect gets a connection and tells of it.
func (d *dialer) connect(r *http.Request) error {
	if takes := d.dial(r); takes > 0 {
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: d.reused})
	return r.Context().Err()
}

// write writes the headers, tells of it and gets the answer.
func (d *dialer) write(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).WroteHeaders()
	return d.written.RoundTrip(r)
}

func TestP2_TheCallersOwnTraceKeepsWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var mu sync.Mutex
		note := func(s string) { mu.Lock(); told = append(told, s); mu.Unlock() }
		r := get(t, home)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn:      func(httptrace.GotConnInfo) { note("connected") },
			WroteHeaders: func() { note("wrote") },
		}))
		require.NoError(t, send(t, newTransport(t, newDialer(always(ms)), onePerSecond), r))
		require.Equal(t, []string{"connected", "wrote"}, told)
	})
}

func TestHorizon(t *testing.T) {
	for _, c := range []struct {
		limit throttle.Limit
		want  time.Duration
	}{
		{throttle.PerSecond(20), 350 * ms},
		{throttle.PerSecond(3), 500 * ms},
		{throttle.PerSecond(1), 750 * ms},
		{throttle.SlidingWindow(1000, 3*time.Second), 750 * ms},
		{throttle.FixedWindow(20, time.Second), 350 * ms},
		{throttle.CalendarWindow(1000, throttle.Day, time.UTC), 750 * ms},
		{throttle.LeakyBucket(600, time.Minute), 350 * ms},
		{throttle.TokenBucket(2, time.Second, 100), 750 * ms},
		{throttle.Concurrency(8), 350 * ms},
		{throttle.Unlimited(), 350 * ms},
	} {
		require.Equal(t, c.want, c.limit.Horizon(), "%v", c.limit)
	}
}

// TestP2_OtherHostsAreNotHandedOnEarly asks for so many hosts that some share a
// place in the memory of what dialling takes.
func TestP2_OtherHostsAreNotHandedOnEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(always(200 * ms))
		tr := newTransport(t, d, onePerSecond)
		line(t, tr, 1, home)
		d.dial = always(0)
		want := []time.Duration{0}
		for i := range 500 {
			line(t, tr, 1, fmt.Sprintf("https://%d.example.org/", i))
			want = append(want, 200*ms+time.Duration(i+1)*spanOfOne)
		}
		require.Equal(t, want, d.handed.seen())
	})
}

// TestP2_WhatIsStoppedAtTheLastLookCannotBeWritten: HTTP/1 hands a request to its
// connection before it looks at the context, so ending that is not enough.
func TestP2_WhatIsStoppedAtTheLastLookCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, late := newSpy(), false
		s.change = func(g *store.Grant) {
			if late {
				*g = store.Grant{Wait: time.Hour}
			}
		}
		tr := must(throttle.New(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   s, Policies: everywhere(onePerHour),
			Base: base(func(r *http.Request) (*http.Response, error) {
				late = true
				time.Sleep(time.Second) // dialling
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				var wire bytes.Buffer
				require.Error(t, r.Write(&wire))
				require.Zero(t, wire.Len(), "not a byte")
				return nil, r.Context().Err()
			}),
		}))
		r := get(t, home)
		require.ErrorIs(t, send(t, tr, r), throttle.ErrLimited)
		require.Equal(t, home, r.URL.String(), "the caller's request is as it was")
	})
}

// TestP8_AStartIsGivenBackOnce: a booking in place of an earlier grant fails, so
// nobody knows whether that was given back. Doing it again could take another's.
func TestP8_AStartIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSpy()
		s.change = func(g *store.Grant) { g.Age = 12 * ms } // too old to be handed on
		broken := failSecond{s, cancel}
		tr := must(throttle.New(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   broken, Policies: everywhere(onePerHour), Base: answer(200, ""),
		}))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
		require.Zero(t, s.cancelled())
	})
}

// failSecond ends the caller's context during every booking that gives back.
type failSecond struct {
	*spyStore
	cancel context.CancelFunc
}

func (s failSecond) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if b.Instead == (store.Handle{}) {
		return s.spyStore.Book(ctx, b)
	}
	s.cancel()
	return store.Grant{}, ctx.Err()
}

// post returns a request with a body.
func post(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	return must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, body))
}

// banned sends r, whose connection takes a second. After 300 ms comes a ban. It
// returns the error, and when that came.
func banned(t *testing.T, store throttle.Store, tr *throttle.Transport, r *http.Request, length time.Duration) (time.Duration, error) {
	t.Helper()
	begin := time.Now()
	charge := tr.Explain(get(t, home))[0]
	time.AfterFunc(300*ms, func() { _ = store.Pause(context.Background(), charge, length) })
	err := send(t, tr, r)
	return time.Since(begin), err
}

var ninePerSecond = throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)}

// TestP11_ABaseThatGoesOn is not handed the request again: it may have arrived.
func TestP11_ABaseThatGoesOn(t *testing.T) {
	for name, goOn := range map[string]base{
		"it writes": func(r *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(r.Context()).WroteHeaders()
			return nil, errors.New("no answer")
		},
		"it answers": answer(200, ""),
		"it panics":  func(*http.Request) (*http.Response, error) { panic("base") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, d, body := newSpy(), newDialer(always(time.Second)), newSceneBody()
				tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(ninePerSecond),
					Base: base(func(r *http.Request) (*http.Response, error) {
						_, _ = d.handed.RoundTrip(r)
						require.ErrorIs(t, d.connect(r), context.Canceled)
						return goOn(r)
					})}))
				func() {
					defer func() { _ = recover() }()
					_, err := banned(t, store, tr, post(t, home, body), time.Minute)
					require.EqualError(t, err, "throttle: the request may have been written though it was stopped")
				}()
				require.Equal(t, []time.Duration{0}, d.handed.seen())
				require.EqualValues(t, 1, body.closed.Load())
				require.Equal(t, 1, status(t, store, tr, get(t, home)).Waiting, "what may have arrived is charged")
			})
		})
	}
}

// TestP1_ABaseThatGoesOnWhenRefused: a request that is refused when it was connected has given up its
// start, and has one again if it may have arrived. A retrier must not take it for unsent.
func TestP1_ABaseThatGoesOnWhenRefused(t *testing.T) {
	for name, trip := range map[string]func(*throttle.Transport, *http.Request) (*http.Response, error){
		"alone": (*throttle.Transport).RoundTrip,
		"a variant": func(tr *throttle.Transport, r *http.Request) (*http.Response, error) {
			return tr.RoundTripFirst(r, 2, func(int) (*http.Request, error) { return r.Clone(r.Context()), nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, leaves := range []bool{false, true} {
					s, d := newSpy(), newDialer(always(time.Second))
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					tr := must(throttle.New(throttle.Config{MaxWait: time.Second, Store: s, Policies: everywhere(ninePerSecond),
						Base: base(func(r *http.Request) (*http.Response, error) {
							require.ErrorIs(t, d.connect(r), context.Canceled)
							if leaves {
								leave()
							}
							return answer(200, "")(r)
						})}))
					time.AfterFunc(300*ms, func() { _ = s.Pause(context.Background(), tr.Explain(get(t, home))[0], time.Minute) })
					_, err := trip(tr, get(t, home).WithContext(ctx))
					require.EqualError(t, err, "throttle: the request may have been written though it was stopped", "the caller leaves: %v", leaves)
					require.Equal(t, 1, status(t, s, tr, get(t, home)).Waiting, "what may have arrived is charged")
				}
			})
		})
	}
}

// TestP1_ABaseThatGoesOnWithoutASlot: a caller that found no slot when it was connected has given up
// its start, and has one again if the request may have arrived.
func TestP1_ABaseThatGoesOnWithoutASlot(t *testing.T) {
	slot := throttle.Policy{Name: "slot", Limit: throttle.Concurrency(1)}
	for name, policies := range map[string][]throttle.Policy{"beside a limit": {ninePerSecond, slot}, "alone": {slot}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := time.Second
				s, d, seen := newSpy(), newDialer(func(*http.Request) time.Duration { return dial }), &events{}
				send := d.RoundTrip
				tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: everywhere(policies...), Observe: seen.observe,
					Base: base(func(r *http.Request) (*http.Response, error) { return send(r) })}))
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err) // and it is known how long a connection takes
				require.NoError(t, resp.Body.Close())

				charges := tr.Explain(get(t, home))
				slots := charges[len(charges)-1]
				require.NoError(t, s.Pause(t.Context(), slots, 10*time.Second))
				time.AfterFunc(10100*ms, func() {
					_, err := s.Book(context.Background(), &store.Booking{Charges: []store.Charge{slots}})
					require.NoError(t, err)
				})
				dial = 1500 * ms
				send = func(r *http.Request) (*http.Response, error) {
					require.ErrorIs(t, d.connect(r), context.Canceled)
					httptrace.ContextClientTrace(r.Context()).WroteHeaders()
					return nil, errors.New("no answer")
				}
				_, err = tr.RoundTrip(get(t, home))
				require.EqualError(t, err, "throttle: the request may have been written though it was stopped")
				require.Equal(t, 1, status(t, s, tr, get(t, home)).Used, "what may have arrived is charged")
				require.Empty(t, seen.only(throttle.EventStoreFailed))
				for _, b := range s.booked() {
					require.NotEmpty(t, b.Charges)
				}
			})
		})
	}
}

// TestP13_ABaseThatClosesLate closes what it got of the attempt that was given up
// while the next one is being made.
func TestP13_ABaseThatClosesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d, body := newSpy(), newDialer(always(time.Second)), newSceneBody()
		bodies := []string{}
		var late io.ReadCloser
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(ninePerSecond),
			Base: base(func(r *http.Request) (*http.Response, error) {
				_, _ = d.handed.RoundTrip(r)
				if err := d.connect(r); err != nil {
					late = r.Body
					return nil, err
				}
				require.NoError(t, late.Close())
				_, err := late.Read(make([]byte, 1))
				require.Error(t, err)
				bodies = append(bodies, string(must(io.ReadAll(r.Body))))
				go func() { _ = r.Body.Close() }()
				return d.write(r)
			})}))
		_, err := banned(t, store, tr, post(t, home, body), time.Minute)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, d.handed.seen(), 2)
		require.Equal(t, []string{"whole"}, bodies)
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestP6_AConnectionAfterTheEnd: when the caller has left, what was in flight has
// ended, and nothing of it may be given back a second time.
func TestP6_AConnectionAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(atOnce(2), onePerHour),
			Base: base(func(r *http.Request) (*http.Response, error) {
				cancel()
				time.Sleep(time.Minute) // the grant would be stale
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				return nil, r.Context().Err()
			})}))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
		require.Equal(t, 1, store.released())
		require.Zero(t, store.cancelled())
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
	})
}
