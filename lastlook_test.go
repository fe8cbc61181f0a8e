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

// TestP11_APenaltyWhileAConnectionIsDialled: what has its grant, but is not written
// yet, stays unwritten. The penalty comes 300 ms after the request.
func TestP11_APenaltyWhileAConnectionIsDialled(t *testing.T) {
	for name, p := range map[string]throttle.Policy{
		"grants age":       {Name: "p", Limit: throttle.PerSecond(9)},
		"grants never age": {Name: "p", Limit: throttle.PerSecond(9), Jitter: -1},
		"in flight":        {Name: "p", Limit: throttle.Concurrency(9)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, d := memstore.New(), newDialer(always(time.Second))
				tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{p}}))
				asleep := fallAsleep(t, tr, 1, patiently(t))
				time.Sleep(300 * ms)
				require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Minute))
				asleep.all.Wait()
				require.NoError(t, asleep.left[0].err)
				require.Equal(t, []time.Duration{0, 59300 * ms}, d.handed.seen())
				require.Equal(t, []time.Duration{60300 * ms}, d.written.seen())
				st := status(t, store, tr, get(t, home))
				require.Zero(t, st.Waiting)
				if p.Limit.Kind() == throttle.KindConcurrency {
					require.Zero(t, st.Used)
				}
			})
		})
	}
}

// TestP11_APenaltyWhileItDialsAheadOfTheStart: dialling is known to take long, so
// the request was handed on before its start.
func TestP11_APenaltyWhileItDialsAheadOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newWatchSpy(), newDialer(always(time.Second))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.LeakyBucket(1, 5*time.Second), Jitter: -1}}}))
		line(t, tr, 1, home) // after which a dial is known to take a second
		asleep := fallAsleep(t, tr, 1, patiently(t))
		time.Sleep(3500 * ms) // it is being dialled for since half a second
		require.Len(t, d.handed.seen(), 2)
		require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Minute))
		asleep.all.Wait()
		require.Equal(t, []time.Duration{time.Second, 64500 * ms}, d.written.seen())
		store.allStopped(t)
	})
}

// TestP11_ALongDialWithoutAPenalty is no reason for another start.
func TestP11_ALongDialWithoutAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newWatchSpy(), newDialer(always(time.Minute))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.PerHour(1), Jitter: -1}}}))
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{time.Minute}, d.written.seen())
		require.Len(t, store.booked(), 1)
		store.allStopped(t)
	})
}

// TestP11_ABaseThatTellsNothing is handed requests at their starts, never before,
// and never when a penalty has come.
func TestP11_ABaseThatTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		s.then = func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * ms) // so that answers come between starts
			if len(s.seen()) == 2 {
				return answer(429, "", "Retry-After", "60")(r)
			}
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, twoPerSecond)
		fallAsleep(t, tr, 4, patiently(t)).all.Wait()
		require.Equal(t, []time.Duration{0, 500 * ms, 60700 * ms, 61200 * ms}, s.seen())
	})
}
