package throttle_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// A onceBody can be had only once. It counts how often it is closed.
type onceBody struct {
	io.Reader
	closed atomic.Int32
}

func newOnceBody() *onceBody { return &onceBody{Reader: strings.NewReader("whole")} }

func (b *onceBody) Close() error {
	b.closed.Add(1)
	return nil
}

// post returns a request with a body.
func post(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	return must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, body))
}

// orderly is a dialer that reads each body when it writes, and closes it always.
func orderly(d *dialer, bodies *[]string) base {
	return func(r *http.Request) (*http.Response, error) {
		defer r.Body.Close()
		_, _ = d.handed.RoundTrip(r)
		if err := d.connect(r); err != nil {
			return nil, err
		}
		body, err := io.ReadAll(r.Body)
		if *bodies = append(*bodies, string(body)); err != nil {
			return nil, err
		}
		return d.write(r)
	}
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

// TestP11_ALongBanIsNotWaitedForWithAConnection: the server would close it.
func TestP11_ALongBanIsNotWaitedForWithAConnection(t *testing.T) {
	for _, c := range []struct {
		name   string
		ban    time.Duration
		handed []time.Duration
		kinds  []throttle.EventKind
	}{
		{"a long ban", 4700*ms + us, []time.Duration{0, 4000*ms + us}, []throttle.EventKind{throttle.Started, throttle.Stale, throttle.Closed, throttle.Waiting, throttle.Opened, throttle.Started}},
		{"a short ban", 4700 * ms, []time.Duration{0}, []throttle.EventKind{throttle.Started, throttle.Stale, throttle.Closed, throttle.Waiting, throttle.Opened}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []string
				store, d, seen, body := newWatchSpy(), newDialer(always(time.Second)), &events{}, newOnceBody()
				var gaveUp []time.Duration
				attempt := orderly(d, &bodies)
				tr := must(throttle.New(throttle.Config{Store: store, Observe: seen.observe,
					Base: base(func(r *http.Request) (*http.Response, error) {
						resp, err := attempt(r)
						if err != nil {
							gaveUp = append(gaveUp, time.Since(d.handed.begin))
						}
						return resp, err
					}),
					Policies: []throttle.Policy{ninePerSecond}}))
				_, err := banned(t, store, tr, post(t, home, body), c.ban)
				require.NoError(t, err)
				require.Len(t, gaveUp, len(c.handed)-1)
				for _, at := range gaveUp {
					require.Equal(t, time.Second, at, "at once when it is connected")
				}
				require.Equal(t, c.handed, d.handed.seen())
				require.Equal(t, []time.Duration{300*ms + c.ban}, d.written.seen())
				require.Equal(t, []string{"whole"}, bodies)
				require.EqualValues(t, 1, body.closed.Load())
				require.Equal(t, c.kinds, seen.kinds())
				require.Equal(t, 1, status(t, store, tr, get(t, home)).Used)
				store.allStopped(t)
			})
		})
	}
}

// TestP11_BansOneAfterAnother, each while a connection is dialled.
func TestP11_BansOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		store, d := newWatchSpy(), newDialer(nil)
		tr := must(throttle.New(throttle.Config{Store: store, Base: orderly(d, &bodies), Policies: []throttle.Policy{ninePerSecond}}))
		charge := tr.Explain(get(t, home))[0]
		d.dial = func(*http.Request) time.Duration {
			if len(d.handed.seen()) < 4 {
				require.NoError(t, store.Pause(t.Context(), charge, time.Minute))
			}
			return time.Second
		}
		r := post(t, home, strings.NewReader("whole")) // with GetBody
		require.NoError(t, send(t, tr, r))
		require.Equal(t, []time.Duration{0, 59 * time.Second, 118 * time.Second, 177 * time.Second}, d.handed.seen())
		require.Equal(t, []time.Duration{178 * time.Second}, d.written.seen())
		require.Equal(t, []string{"whole"}, bodies)
		store.allStopped(t)
	})
}

func TestP11_AWaitWithoutAConnectionCanEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		once bool
		wait time.Duration // how long the caller waits
		at   time.Duration
		last throttle.EventKind
		want error
	}{
		{"it cannot fit", true, 30 * time.Second, time.Second, throttle.Refused, throttle.ErrLimited},
		{"it cannot fit, with GetBody", false, 30 * time.Second, time.Second, throttle.Refused, throttle.ErrLimited},
		{"the caller leaves", true, 0, 20 * time.Second, throttle.GaveUp, context.Canceled},
		{"the caller leaves, with GetBody", false, 0, 20 * time.Second, throttle.GaveUp, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []string
				store, d, seen := newWatchSpy(), newDialer(always(time.Second)), &events{}
				tr := must(throttle.New(throttle.Config{Store: store, Base: orderly(d, &bodies), Observe: seen.observe,
					MaxWait: c.wait, Policies: []throttle.Policy{ninePerSecond}}))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(20*time.Second, cancel)
				first, second := newOnceBody(), newOnceBody()
				r := post(t, home, first).WithContext(ctx)
				if !c.once {
					r.GetBody = func() (io.ReadCloser, error) { return second, nil }
				}
				at, err := banned(t, store, tr, r, time.Minute)
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.at, at)
				require.Equal(t, []time.Duration{0}, d.handed.seen())
				require.Empty(t, d.written.seen())
				require.EqualValues(t, 1, first.closed.Load())
				if !c.once && c.last == throttle.GaveUp {
					require.EqualValues(t, 1, second.closed.Load())
				} else {
					require.Zero(t, second.closed.Load(), "nobody got it")
				}
				require.Equal(t, c.last, seen.kinds()[len(seen.kinds())-1])
				require.Zero(t, status(t, store, tr, get(t, home)).Waiting)
			})
		})
	}
}

// TestP11_WhatCannotBeHadAgainWaitsWithItsConnection as a short wait does.
func TestP11_WhatCannotBeHadAgainWaitsWithItsConnection(t *testing.T) {
	for name, prepare := range map[string]func(r *http.Request, d *dialer) error{
		"its body was read":   func(r *http.Request, _ *dialer) error { _, err := r.Body.Read(make([]byte, 1)); return err },
		"its body was closed": func(r *http.Request, _ *dialer) error { return r.Body.Close() },
		"it was written before": func(r *http.Request, d *dialer) error {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GotConn(httptrace.GotConnInfo{})
			trace.WroteHeaders()
			trace.GotConn(httptrace.GotConnInfo{}) // which broke, too
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, d, body := newWatchSpy(), newDialer(always(time.Second)), newOnceBody()
				tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{ninePerSecond},
					Base: base(func(r *http.Request) (*http.Response, error) {
						defer r.Body.Close()
						require.NoError(t, prepare(r, d))
						return d.RoundTrip(r)
					})}))
				_, err := banned(t, store, tr, post(t, home, body), time.Minute)
				require.NoError(t, err)
				require.Equal(t, []time.Duration{0}, d.handed.seen())
				require.Equal(t, []time.Duration{60300 * ms}, d.written.seen())
				require.EqualValues(t, 1, body.closed.Load())
				store.allStopped(t)
			})
		})
	}
}

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
				store, d, body := newWatchSpy(), newDialer(always(time.Second)), newOnceBody()
				tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{ninePerSecond},
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

// TestP1_ABaseThatGoesOnWithoutASlot: a caller that found no slot when it was connected has given up
// its start, and has one again if the request may have arrived.
func TestP1_ABaseThatGoesOnWithoutASlot(t *testing.T) {
	slot := throttle.Policy{Name: "slot", Limit: throttle.Concurrency(1)}
	for name, policies := range map[string][]throttle.Policy{"beside a limit": {ninePerSecond, slot}, "alone": {slot}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := time.Second
				store, d, seen := newWatchSpy(), newDialer(func(*http.Request) time.Duration { return dial }), &events{}
				send := d.RoundTrip
				tr := must(throttle.New(throttle.Config{Store: store, Policies: policies, Observe: seen.observe,
					Base: base(func(r *http.Request) (*http.Response, error) { return send(r) })}))
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err) // and it is known how long a connection takes
				require.NoError(t, resp.Body.Close())

				charges := tr.Explain(get(t, home))
				slots := charges[len(charges)-1]
				require.NoError(t, store.Pause(t.Context(), slots, 10*time.Second))
				time.AfterFunc(10100*ms, func() {
					_, err := store.Book(context.Background(), &throttle.Booking{Charges: []throttle.Charge{slots}})
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
				require.Equal(t, 1, status(t, store, tr, get(t, home)).Used, "what may have arrived is charged")
				require.Empty(t, seen.only(throttle.StoreFailed))
				for _, b := range store.booked() {
					require.NotEmpty(t, b.Charges)
				}
			})
		})
	}
}
