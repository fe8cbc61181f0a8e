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
