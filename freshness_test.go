package throttle_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// onePerSecond has the default jitter: two starts are spanOfOne apart.
var onePerSecond = throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)}

const spanOfOne = time.Second + throttle.DefaultJitter + us

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

// TestP2_AnAgedGrantIsTakenAnew: the store's answer was on the way for longer
// than a grant may be used.
func TestP2_AnAgedGrantIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s, seen := newSpy(), newStarts(), &events{}
		ages := []time.Duration{10 * ms, 10*ms + 1, 0}
		store.change = func(g *throttle.Grant) { g.Age, ages = ages[0], ages[1:] }
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Observe: seen.observe,
			Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(10)}}}))

		require.NoError(t, send(t, tr, get(t, home)))
		require.Len(t, store.booked(), 1, "10 ms are two sevenths of 35 ms")

		require.NoError(t, send(t, tr, get(t, home)))
		require.Len(t, store.booked(), 3, "a nanosecond more is too old")
		require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Stale, throttle.Started}, seen.kinds())
		time.Sleep(10 * ms) // until the room behind the last start is over
		require.Equal(t, 2, status(t, store, tr, get(t, home)).Used, "the old grant was given back")
	})
}

// TestP2_AnAgedGrantOfALimiterIsTakenAnew: nothing looks at it later.
func TestP2_AnAgedGrantOfALimiterIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		ages := []time.Duration{2 * ms, 2*ms + 1, 0}
		store.change = func(g *throttle.Grant) { g.Age, ages = ages[0], ages[1:] }
		l := must(throttle.NewLimiter(store, throttle.Policy{Name: "p", Limit: throttle.PerSecond(10), Jitter: 7 * ms}))
		for _, want := range []int{1, 3} {
			_, err := l.Acquire(t.Context(), "", 1)
			require.NoError(t, err)
			require.Len(t, store.booked(), want)
		}
	})
}

// TestP2_ASleepThatIsTooLong: the program was stopped between the grant and its
// use, which an observer that takes its time stands for.
func TestP2_ASleepThatIsTooLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		stop  time.Duration // beyond the start
		stale bool
	}{
		{"within Jitter", 10 * ms, false},
		{"too long", 10*ms + us, true},
		{"for an hour", time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s, seen := newSpy(), newStarts(), &events{}
				stop := c.stop
				observe := func(ctx context.Context, e throttle.Event) {
					seen.observe(ctx, e)
					if e.Kind == throttle.Waiting {
						time.Sleep(e.Duration + stop)
						stop = 0
					}
				}
				const span = 500*ms + throttle.DefaultJitter + us // no farther than a start is booked
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Observe: observe,
					Policies: []throttle.Policy{{Name: "p", Limit: throttle.SlidingWindow(1, 500*ms)}}}))
				line(t, tr, 2, home)
				require.Equal(t, []time.Duration{0, span + c.stop}, s.seen())
				if !c.stale {
					require.Len(t, store.booked(), 2)
					return
				}
				require.Len(t, store.booked(), 3)
				require.Equal(t, c.stop, seen.first(t, throttle.Stale).Duration)

				line(t, tr, 1, home)
				require.Equal(t, span+c.stop+span, s.seen()[2], "counted where it was taken anew")
			})
		})
	}
}

func TestP2_WithoutJitterAGrantNeverAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(time.Minute))
		store.change = func(g *throttle.Grant) { g.Age = time.Hour }
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1},
		}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []time.Duration{time.Minute}, d.written.seen())
		require.Len(t, store.booked(), 1)
		require.Zero(t, store.booked()[0].Spread)
	})
}

// TestP2_ALateConnectionTakesAnotherStart: the connection is there long after
// the grant, and what is free by then is taken by somebody else. So the request
// waits on, connected, for its new start.
func TestP2_ALateConnectionTakesAnotherStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, d := true, newDialer(nil)
		d.dial = func(*http.Request) time.Duration {
			defer func() { first = false }()
			if first {
				return 100 * ms
			}
			return 0
		}
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{onePerSecond}}))
		elsewhere(t, store, tr, 50*ms) // while the first dials
		line(t, tr, 2, home)
		require.Equal(t, []time.Duration{0, 3 * spanOfOne}, d.handed.seen())
		require.Equal(t, []time.Duration{2 * spanOfOne, 3 * spanOfOne}, d.written.seen())
	})
}

// TestP2_TheLastLookLeavesRoomForTheWay: when it is written, a grant is at most
// two sevenths of 35 ms old. The time that the store's answer was on its way counts.
func TestP2_TheLastLookLeavesRoomForTheWay(t *testing.T) {
	for _, c := range []struct {
		dial, age time.Duration
		books     int
	}{{10 * ms, 0, 1}, {10*ms + us, 0, 2}, {2 * ms, 8 * ms, 1}, {2*ms + us, 8 * ms, 2}} {
		synctest.Test(t, func(t *testing.T) {
			store, d := newSpy(), newDialer(always(c.dial))
			store.change = func(g *throttle.Grant) { g.Age = c.age }
			tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{onePerSecond}}))
			require.NoError(t, send(t, tr, get(t, home)))
			require.Len(t, store.booked(), c.books, "%+v", c)
			require.Equal(t, []time.Duration{c.dial}, d.written.seen())
			require.Equal(t, 1, status(t, store, tr, get(t, home)).Used)
		})
	}
}

// retried connects a second time, before or after it has written.
func retried(d *dialer, write bool) base {
	return func(r *http.Request) (*http.Response, error) {
		if err := d.connect(r); err != nil {
			return nil, err
		}
		if write {
			_, _ = d.write(r) // no answer comes
		}
		return d.RoundTrip(r)
	}
}

func TestP2_WhatMayHaveArrivedIsCharged(t *testing.T) {
	for _, c := range []struct {
		name  string
		write bool
		want  []time.Duration
		books int
	}{
		{"written on the first connection", true, []time.Duration{0, spanOfOne}, 3}, // it stands in line for the second
		{"not written", false, []time.Duration{0}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, d := newSpy(), newDialer(always(0))
				tr := must(throttle.New(throttle.Config{Store: store, Base: retried(d, c.write), Policies: []throttle.Policy{onePerSecond}}))
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, c.want, d.written.seen())
				require.Len(t, store.booked(), c.books)
				require.Zero(t, store.cancelled())
			})
		})
	}
}

// TestP2_RefusedAtTheLastLook: the connection came late, and the start that is
// left lies further away than the caller waits.
func TestP2_RefusedAtTheLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d, seen := memstore.New(), newDialer(always(100*ms)), &events{}
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, MaxWait: -1, Observe: seen.observe,
			Policies: []throttle.Policy{onePerSecond}}))
		charges := tr.Explain(get(t, home))
		time.AfterFunc(50*ms, func() {
			_, _ = store.Book(context.Background(), &throttle.Booking{Charges: charges, MaxWait: -1})
		})
		body := &responseBody{t: t}
		r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, body))
		resp, err := tr.RoundTrip(r)
		require.Nil(t, resp)
		require.EqualError(t, err, `throttle: policy "p" (1/s): would wait 1.97s, but may not wait at all`)
		require.Empty(t, d.written.seen(), "nothing is sent")
		require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Stale, throttle.Refused}, seen.kinds())
		require.Equal(t, err, seen.first(t, throttle.Refused).Err)
		st := status(t, store, tr, get(t, home))
		require.Zero(t, st.Used, "nothing is spent")
		require.Equal(t, 1, st.Waiting, "of the other caller")
	})
}

func TestP2_TheContextEndsAtTheLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d, seen := memstore.New(), newDialer(always(100*ms)), &events{}
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Observe: seen.observe, Policies: []throttle.Policy{onePerSecond}}))
		charges := tr.Explain(get(t, home))
		time.AfterFunc(50*ms, func() {
			_, _ = store.Book(context.Background(), &throttle.Booking{Charges: charges, MaxWait: -1})
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*ms, cancel)
		begin := time.Now()
		err := send(t, tr, get(t, home).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, `throttle: the caller gave up after waiting 500ms for policy "p": context canceled`)
		require.Equal(t, 500*ms, time.Since(begin))
		require.Empty(t, d.written.seen())
		require.Equal(t, throttle.GaveUp, seen.kinds()[len(seen.kinds())-1])
		require.Equal(t, 1, status(t, store, tr, get(t, home)).Waiting, "its place is given back")
	})
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
