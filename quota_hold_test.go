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

// TestP11_NothingLeftHoldsForTheReset: an upstream says that nothing is left for
// longer than the limit's own window, or until another time than that ends.
func TestP11_NothingLeftHoldsForTheReset(t *testing.T) {
	const day = 24 * time.Hour
	shanghai := time.FixedZone("Asia/Shanghai", 8*60*60)
	for _, c := range []struct {
		name  string
		limit throttle.Limit
		reset time.Duration
		want  time.Duration // when the next request starts
	}{
		{"a second's limit, for a day", throttle.PerSecond(20), day, day},
		{"a second's limit, for the rest of a longer window", throttle.PerSecond(20), 2900 * ms, 2900 * ms},
		{"a second's limit, for weeks", throttle.PerSecond(20), 20 * day, day},
		{"an hour's limit, for weeks", throttle.PerHour(20), 20 * day, day},
		{"a month, for weeks", throttle.CalendarWindow(20, throttle.Month, shanghai), 20 * day, day},
		{"a day, for an hour", throttle.CalendarWindow(20, throttle.Day, time.UTC), time.Hour, time.Hour},
		{"a minute of another phase, later", throttle.FixedWindow(20, time.Minute), 90 * time.Second, 90 * time.Second},
		{"a minute of another phase, earlier", throttle.FixedWindow(20, time.Minute), 20 * time.Second, 20 * time.Second},
		{"a pace, for an hour", throttle.LeakyBucket(20, time.Second), time.Hour, time.Hour},
		{"the limit's own window", throttle.PerMinute(20), time.Minute, time.Minute},
		{"the phase of ours", throttle.FixedWindow(20, time.Minute), time.Minute, time.Minute},
		{"a bucket knows by itself", throttle.TokenBucket(10, time.Second, 20), time.Hour, 100 * ms},
		{"what is in flight", throttle.Concurrency(20), time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts()
				p := throttle.Policy{Name: "p", Limit: c.limit, Jitter: -1, Penalty: throttle.NoPenalty,
					Quota: func(*http.Response) (throttle.Quota, bool) { return throttle.Quota{Reset: c.reset}, true }}
				tr := newTransport(t, s, p)
				line(t, tr, 2, home)
				require.InDelta(t, c.want, s.seen()[1], float64(ms))
			})
		})
	}
}

// TestP11_NothingLeftIsNoRefusal: the answer is a success, and Observe is told of what
// it has closed.
func TestP11_NothingLeftIsNoRefusal(t *testing.T) {
	seen := &events{}
	p := throttle.Policy{Name: "p", Limit: throttle.PerSecond(20),
		Quota: func(*http.Response) (throttle.Quota, bool) { return throttle.Quota{Reset: time.Hour}, true }}
	tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, ""), Policies: []throttle.Policy{p}, Observe: seen.observe}))
	resp, err := tr.RoundTrip(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Zero(t, throttle.PenaltyOf(resp))
	require.Equal(t, time.Hour, seen.first(t, throttle.Penalized).Duration)
}
