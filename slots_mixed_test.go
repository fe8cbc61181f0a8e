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

// slowly is a base whose answers take d, during which the request is in flight.
func slowly(s *starts, d time.Duration) *starts {
	s.then = func(r *http.Request) (*http.Response, error) {
		time.Sleep(d)
		return answer(200, "")(r)
	}
	return s
}

// crowd sends n requests, each when the one before it is held or through, and
// does not wait for them.
func crowd(t *testing.T, tr http.RoundTripper, n int) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		r := get(t, home)
		all.Go(func() {
			if err := send(t, tr, r); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	return &all
}

// last returns the latest event.
func (e *events) last() throttle.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[len(e.all)-1]
}

// TestP5_AStartIsKeptWhenWhatIsInFlightIsTaken: the store's answers take time.
// A caller that comes to its start a moment late, and acquires its slots there, must
// not lose the start to those behind it.
func TestP5_AStartIsKeptWhenWhatIsInFlightIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newSpy(), slowly(newStarts(), 10*ms)
		store.slow = 5 * ms
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{
			onePerSecond, {Name: "running", Limit: throttle.Concurrency(1)},
		}}))
		begin := time.Now()
		crowd(t, tr, 5).Wait()
		const came = 5 * ms // the first booking's answer
		require.Equal(t, []time.Duration{
			came, came + spanOfOne + came, came + 2*spanOfOne + came, came + 3*spanOfOne + came, came + 4*spanOfOne + came,
		}, s.seen())
		require.Equal(t, s.seen()[4]+10*ms, time.Since(begin))
		require.Len(t, store.booked(), 1+3*4, "a place in line, a start and what is in flight for each that waits")
		require.Zero(t, store.cancelled())
		require.Equal(t, 5, store.released())
	})
}

// TestP6_NoRoomInFlightAtTheStart: the start is given up for a place in line,
// and nothing of it is spent.
func TestP6_NoRoomInFlightAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s, seen := newSpy(), slowly(newStarts(), 3500*ms), &events{}
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Observe: seen.observe, Policies: []throttle.Policy{
			{Name: "starts", Limit: throttle.PerSecond(1), Jitter: -1}, {Name: "running", Limit: throttle.Concurrency(1)},
		}}))
		all := crowd(t, tr, 2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, throttle.Status{Limit: throttle.PerSecond(1)}, status(t, store, tr, get(t, home)),
			"the start that could not be used is free again")
		e := seen.last()
		require.Equal(t, throttle.Waiting, e.Kind)
		require.Equal(t, "running", e.Policy)
		require.Zero(t, e.Duration, "nobody knows")
		all.Wait()
		require.Equal(t, []time.Duration{0, 3500 * ms}, s.seen())
		require.Len(t, store.booked(), 1+3+1, "one; a place in line, a start and no room in flight; and when room came")
	})
}

// TestP6_NoRoomOnTheNodeAtTheStart: a store may keep the two apart, so a place in
// line is only ever for all.
func TestP6_NoRoomOnTheNodeAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newSpy(), slowly(newStarts(), 3500*ms)
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{
			{Name: "starts", Limit: throttle.PerSecond(1), Jitter: -1},
			{Name: "running", Limit: throttle.Concurrency(1), Scope: throttle.Node},
		}}))
		crowd(t, tr, 2).Wait()
		require.Equal(t, []time.Duration{0, 3500 * ms}, s.seen())
		all := store.booked()
		require.Len(t, all, 6)
		require.Len(t, all[3].Charges, 1, "at the start, what is in flight")
		require.Zero(t, all[3].MaxWait)
		for _, b := range all[4:] {
			require.Len(t, b.Charges, 2, "for both, a place in line and then the start")
			require.NotZero(t, b.Instead)
		}
		require.Equal(t, 2, store.released())
		require.Zero(t, store.cancelled())
	})
}

// TestP5_NeitherKindBlocksTheOther: a queue for starts takes nothing that is in
// flight, and a line for room in flight takes no starts.
func TestP5_NeitherKindBlocksTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		narrow, wide := slowly(newStarts(), time.Second), slowly(newStarts(), time.Second)
		s := base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/narrow" {
				return narrow.RoundTrip(r)
			}
			return wide.RoundTrip(r)
		})
		tr := newTransport(t, s,
			throttle.Policy{Name: "narrow", Match: "/narrow", Limit: throttle.PerMinute(1), Jitter: -1},
			throttle.Policy{Name: "running", Limit: throttle.Concurrency(1)})
		var queue sync.WaitGroup
		queue.Go(func() { line(t, tr, 3, home+"narrow") })
		time.Sleep(time.Second) // virtual: two are queued for the next minutes
		line(t, tr, 4, home+"wide")
		require.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}, wide.seen())
		queue.Wait()
		require.Equal(t, []time.Duration{0, time.Minute + us, 2*time.Minute + 2*us}, narrow.seen())
	})
}

func TestP11_APenaltyBetweenTheBookingAndTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memstore.New(), newStarts()
		running := atOnce(1)
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{
			{Name: "starts", Limit: throttle.PerSecond(1), Jitter: -1}, running,
		}}))
		all := crowd(t, tr, 2)
		require.NoError(t, newLimiter(t, store, running).Pause(t.Context(), "", time.Minute))
		all.Wait()
		require.Equal(t, []time.Duration{0, time.Minute}, s.seen())
		require.Zero(t, status(t, store, tr, get(t, home)).Waiting)
	})
}

// TestP2_AStaleGrantThatHoldsIsTakenAnew: with all that it holds.
func TestP2_AStaleGrantThatHoldsIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(200*ms))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "running", Limit: throttle.Concurrency(1)}, {Name: "starts", Limit: throttle.PerMinute(5)},
		}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Len(t, store.booked(), 2)
		require.Equal(t, 1, store.cancelled())
		require.Equal(t, 1, store.released())
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
		starts, err := store.Status(t.Context(), tr.Explain(get(t, home))[1])
		require.NoError(t, err)
		require.Equal(t, 1, starts.Used)
	})
}

// TestP6_AConnectionAfterTheEnd: when the caller has left, what was in flight has
// ended, and nothing of it may be given back a second time.
func TestP6_AConnectionAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{atOnce(2), onePerHour},
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

func TestWhatIsInFlightDoesNotAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(time.Minute))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{atOnce(1)}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Len(t, store.booked(), 1, "what is in flight is held however long the dial takes")
	})
}

// TestP2_AnEarlyConnectionIsNotInFlight: a request that dials while it waits for
// its start holds nothing until then.
func TestP2_AnEarlyConnectionIsNotInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(200*ms))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "running", Limit: throttle.Concurrency(1)}, onePerSecond,
		}}))
		line(t, tr, 1, home)
		all := crowd(t, tr, 1)
		time.Sleep(spanOfOne - 100*ms)
		require.Len(t, d.handed.seen(), 2, "it is dialling")
		require.Zero(t, status(t, store, tr, get(t, home)).Used)
		all.Wait()
		require.Equal(t, 200*ms+spanOfOne, d.written.seen()[1])
		require.Equal(t, 2, store.released())
	})
}

func TestNewPoliciesForThoseInLine(t *testing.T) {
	for _, c := range []struct {
		name  string
		next  throttle.Policy
		start time.Duration
	}{
		{"the same", atOnce(1), 10 * time.Second},
		{"more room", atOnce(2), time.Second},
		{"no such limit", throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)}, time.Second},
		{"no policy for it", throttle.Policy{Name: "p", Match: "example.org/", Limit: throttle.Concurrency(1)}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), slowly(newStarts(), 10*time.Second)
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{atOnce(1)}}))
				all := crowd(t, tr, 2)
				time.Sleep(time.Second)
				require.NoError(t, tr.SetPolicies([]throttle.Policy{c.next}))
				all.Wait()
				require.Equal(t, []time.Duration{0, c.start}, s.seen())
				st, err := newLimiter(t, store, atOnce(1)).Status(t.Context(), "")
				require.NoError(t, err)
				require.Zero(t, st.Used+st.Waiting)
			})
		})
	}
}
