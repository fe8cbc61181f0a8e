package throttle_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// lowLeaves is the Headroom that keeps low requests from a share of the limit.
func lowLeaves(share float64) map[throttle.Priority]float64 {
	return map[throttle.Priority]float64{throttle.Low: share}
}

// of returns a request of a priority.
func of(t *testing.T, p throttle.Priority) *http.Request {
	r := get(t, home+p.String())
	return r.WithContext(throttle.WithPriority(r.Context(), p))
}

func TestPriorityString(t *testing.T) {
	for p, want := range map[throttle.Priority]string{
		throttle.Low: "low", throttle.Normal: "normal", throttle.High: "high", 2: "priority 2", -2: "priority -2",
	} {
		require.Equal(t, want, p.String())
	}
}

// TestP5_LowRequestsLeaveRoom: others find it at once, and go first among the
// waiters. Low ones are served when there is more than they must leave.
func TestP5_LowRequestsLeaveRoom(t *testing.T) {
	second := time.Second + us
	for _, c := range []struct {
		name  string
		limit throttle.Limit
		low   []time.Duration // of 5 that come first
		high  []time.Duration // of 3 that come then
	}{
		{"sliding", throttle.PerSecond(4), []time.Duration{0, 0, second + 225*ms, 2 * second, 2*second + 225*ms},
			[]time.Duration{0, 0, second}},
		{"fixed", throttle.FixedWindow(4, time.Second),
			[]time.Duration{0, 0, time.Second, 2 * time.Second, 2 * time.Second}, []time.Duration{0, 0, time.Second}},
		{"bucket", throttle.TokenBucket(1, time.Second, 4),
			[]time.Duration{0, 0, 4 * time.Second, 5 * time.Second, 6 * time.Second}, []time.Duration{0, 0, time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				low, high := newStarts(), newStarts()
				tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/low" {
						return low.RoundTrip(r)
					}
					return high.RoundTrip(r)
				}), throttle.Policy{Name: "p", Limit: c.limit, Jitter: -1, Headroom: lowLeaves(0.5)})
				var requests []*http.Request
				for range 5 {
					requests = append(requests, of(t, throttle.Low))
				}
				for range 3 {
					requests = append(requests, of(t, throttle.High))
				}
				inOrder(t, tr, requests)
				require.Equal(t, c.low, low.seen())
				require.Equal(t, c.high, high.seen())
			})
		})
	}
}

// inOrder sends each request when the one before it is held or through, and
// returns when all are through.
func inOrder(t *testing.T, tr http.RoundTripper, requests []*http.Request) {
	t.Helper()
	done := make(chan error, len(requests))
	for _, r := range requests {
		go func() { done <- send(t, tr, r) }()
		synctest.Wait()
	}
	for range requests {
		require.NoError(t, <-done)
	}
}

// TestP5_LowRequestsLeaveRoomInFlight: one that must leave more free than there
// is lets others pass, and goes when they have ended.
func TestP5_LowRequestsLeaveRoomInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		var order []string
		then := slowly(s, time.Second).then
		s.then = func(r *http.Request) (*http.Response, error) {
			s.mu.Lock()
			order = append(order, r.URL.Path)
			s.mu.Unlock()
			return then(r)
		}
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.Concurrency(2), Headroom: lowLeaves(0.5)})
		inOrder(t, tr, []*http.Request{
			of(t, throttle.Low), of(t, throttle.Low), of(t, throttle.High), of(t, throttle.High), of(t, throttle.Low),
		})
		require.Equal(t, []string{"/low", "/high", "/high", "/low", "/low"}, order)
		require.Equal(t, []time.Duration{0, 0, 1 * time.Second, 2 * time.Second, 3 * time.Second}, s.seen())
	})
}

func TestHeadroomOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerHour(10), Headroom: lowLeaves(0.3)})
		low := throttle.WithPriority(t.Context(), throttle.Low)
		require.NoError(t, acquired(l.TryAcquire(low, "", 7)))
		require.ErrorIs(t, acquired(l.TryAcquire(low, "", 1)), throttle.ErrLimited)
		require.EqualError(t, acquired(l.TryAcquire(low, "", 8)), `throttle: policy "p" (10/h): a cost of 8 can never fit`)
		require.NoError(t, acquired(l.TryAcquire(t.Context(), "", 3)))
		require.ErrorIs(t, acquired(l.TryAcquire(t.Context(), "", 1)), throttle.ErrLimited)
	})
}

// TestHeadroomThatChanges: waiters look at it again.
func TestHeadroomThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		p := throttle.Policy{Name: "p", Limit: throttle.PerMinute(2), Jitter: -1, Headroom: lowLeaves(0.5)}
		tr := newTransport(t, s, p)
		done := make(chan error, 2)
		for range 2 {
			r := of(t, throttle.Low)
			go func() { done <- send(t, tr, r) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		p.Headroom = nil
		require.NoError(t, tr.SetPolicies([]throttle.Policy{p}))
		for range 2 {
			require.NoError(t, <-done)
		}
		require.Equal(t, []time.Duration{0, time.Second}, s.seen())
	})
}
