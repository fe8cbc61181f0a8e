package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

const (
	ms = time.Millisecond
	us = time.Microsecond

	home = "https://example.com/"
)

func TestP1_StartsAreExact(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  throttle.Limit
		jitter time.Duration
		want   []time.Duration
	}{
		{"sliding", throttle.PerSecond(2), -1, []time.Duration{
			0, 0, 1000*ms + us, 1450*ms + us, 2000*ms + 2*us, 2450*ms + 2*us,
		}},
		{"sliding with jitter", throttle.PerSecond(2), 0, []time.Duration{
			0, 0, 1035*ms + us, 1485*ms + us, 2070*ms + 2*us, 2520*ms + 2*us,
		}},
		{"sliding with much jitter", throttle.PerSecond(2), 500 * ms, []time.Duration{
			0, 0, 1500*ms + us, 1950*ms + us, 3000*ms + 2*us, 3450*ms + 2*us,
		}},
		{"fixed", throttle.FixedWindow(2, time.Second), -1, []time.Duration{
			0, 0, 1000 * ms, 1000 * ms, 2000 * ms, 2000 * ms,
		}},
		{"paced", throttle.LeakyBucket(4, time.Second), -1, []time.Duration{
			0, 250 * ms, 500 * ms, 750 * ms, 1000 * ms,
		}},
		{"paced with jitter", throttle.LeakyBucket(4, time.Second), 0, []time.Duration{
			0, 258750 * us, 517500 * us, 776250 * us, 1035 * ms,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts()
				tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: c.limit, Jitter: c.jitter})
				line(t, tr, len(c.want), home)
				require.Equal(t, c.want, s.seen())
			})
		})
	}
}

func TestP1_NoWindowHoldsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Jitter: -1})
		line(t, tr, 400, home)
		require.Len(t, s.seen(), 400)
		require.Equal(t, 40, most(s.seen(), time.Second))
	})
}

// TestP4_OneBookingForEachGrant, and one for each place in line, however long the wait.
func TestP4_OneBookingForEachGrant(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit throttle.Limit
		last  time.Duration
		books int
	}{
		{"near", throttle.LeakyBucket(200, time.Second), 245 * ms, 50},
		{"the last one waits for two days", throttle.LeakyBucket(1, time.Hour), 49 * time.Hour, 50 + 49},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), newStarts()
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{exactly(c.limit)}}))
				line(t, tr, 50, home)
				require.Equal(t, c.last, s.seen()[49])
				require.Len(t, store.booked(), c.books)
				require.Zero(t, store.cancelled())
			})
		})
	}
}

func TestP5_FirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.URL.Path)
			return answer(200, "")(r)
		}), onePerHour)
		want := []string{"/a", "/b", "/c", "/d", "/e"}
		var all sync.WaitGroup
		for _, path := range want {
			r := get(t, "https://example.com"+path)
			all.Go(func() {
				if err := send(t, tr, r); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, want, order)
	})
}

func TestP5_AQueueOnOneKeyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, other := newStarts(), newStarts()
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				return slow.RoundTrip(r)
			}
			return other.RoundTrip(r)
		}),
			throttle.Policy{Name: "wide", Limit: throttle.PerSecond(5), Jitter: -1},
			throttle.Policy{Name: "narrow", Limit: throttle.PerSecond(1), Jitter: -1, Key: throttle.Path})
		var queue sync.WaitGroup
		queue.Go(func() { line(t, tr, 11, "https://example.com/slow") })
		time.Sleep(ms) // virtual: the whole queue is booked
		line(t, tr, 1, "https://example.com/other")
		queue.Wait()
		require.Equal(t, 10*(time.Second+us), slow.seen()[10], "a queue of ten seconds")
		require.Equal(t, []time.Duration{ms}, other.seen())
	})
}

func TestP6_BooksAllBudgetsAtOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newSpy(), newStarts()
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{
			{Name: "second", Limit: throttle.PerSecond(2), Jitter: -1},
			{Name: "minute", Limit: throttle.PerMinute(3), Jitter: -1},
		}}))
		line(t, tr, 4, home)
		require.Equal(t, []time.Duration{0, 0, time.Second + us, time.Minute + us}, s.seen())
		require.Len(t, store.booked(), 4+2, "one step for both budgets, and a place in line for two")
	})
}

func TestP6_ARefusalSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), MaxWait: -1, Policies: []throttle.Policy{
			{Name: "wide", Limit: throttle.PerSecond(10)},
			{Name: "narrow", Match: "/narrow", Limit: throttle.PerSecond(1)},
		}}))
		require.NoError(t, send(t, tr, get(t, home+"narrow")))
		for range 100 {
			err := send(t, tr, get(t, home+"narrow"))
			var limited *throttle.LimitError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, "narrow", limited.Policy)
		}
		require.Equal(t, 1, status(t, store, tr, get(t, home)).Used, "of the wide budget")
		line(t, tr, 9, home)
		require.ErrorIs(t, send(t, tr, get(t, home)), throttle.ErrLimited)
	})
}

func TestP7_CancelledWaitersGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1})
		require.NoError(t, send(t, tr, get(t, home)))
		ctx, cancel := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		for range 1000 {
			gone.Go(func() {
				if err := send(t, tr, get(t, home).WithContext(ctx)); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the context's error", err)
				}
			})
		}
		time.Sleep(500 * ms)
		cancel()
		gone.Wait()
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, time.Second + us}, s.seen(), "as if nobody had come between")
	})
}

func TestP7_TheOthersKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 6 {
			r := get(t, home)
			if i == 2 {
				r = r.WithContext(ctx)
			}
			all.Go(func() { _ = send(t, tr, r) })
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		all.Go(func() { line(t, tr, 1, home) }) // takes the place that came free
		all.Wait()
		want := []time.Duration{}
		for i := range time.Duration(6) {
			want = append(want, i*(time.Second+us))
		}
		require.Equal(t, want, s.seen())
	})
}

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

func TestCostAboveTheLimitIsRefusedForGood(t *testing.T) {
	store := newSpy()
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{{
		Name: "p", Limit: throttle.PerSecond(2), Cost: func(*http.Request) int { return 3 },
	}}}))
	err := send(t, tr, get(t, home))
	require.EqualError(t, err, `throttle: policy "p" (2/s): a cost of 3 can never fit`)
	require.ErrorIs(t, err, throttle.ErrLimited)
	var limited *throttle.LimitError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, throttle.Never, limited.RetryAfter)
	require.Empty(t, store.booked(), "no store is asked in vain")
}
