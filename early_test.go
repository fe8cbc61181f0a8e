package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// elsewhere books the next start of the budget that a request to home has, after d,
// for somebody whose wait is not looked at. It takes room that a stale start leaves.
func elsewhere(t *testing.T, store throttle.Store, tr *throttle.Transport, d time.Duration) {
	t.Helper()
	charges := tr.Explain(get(t, home))
	time.AfterFunc(d, func() {
		_, _ = store.Book(context.Background(), &throttle.Booking{Charges: charges, MaxWait: -1})
	})
}

// TestP2_DiallingIsDoneByTheStart: where connections take long, a request that
// waits anyway dials while it waits.
func TestP2_DiallingIsDoneByTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(200*ms))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{onePerSecond}}))
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{200 * ms}, d.written.seen(), "nothing was known yet: its grant is taken anew")
		require.Len(t, store.booked(), 2)

		line(t, tr, 2, home)
		first := 200*ms + spanOfOne
		require.Equal(t, []time.Duration{0, first - 200*ms, first + spanOfOne - 200*ms}, d.handed.seen())
		require.Equal(t, []time.Duration{200 * ms, first, first + spanOfOne}, d.written.seen(), "exactly at their starts")
		require.Len(t, store.booked(), 2+2*2, "a place in line and then a start for each")
	})
}

// TestP2_AConnectionInUseIsNoDial: a request that waited for a connection of others had
// nothing to dial. If the next ones were handed on early for that, they would only keep
// connections from each other.
func TestP2_AConnectionInUseIsNoDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(200*ms))
		d.reused = true
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{onePerSecond}}))
		line(t, tr, 1, home)
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 200*ms + spanOfOne}, d.handed.seen(), "at its start, and not before")
	})
}

func TestP2_AnEarlyConnectionWaitsForItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := []time.Duration{200 * ms, 0}
		d := newDialer(func(*http.Request) time.Duration {
			next := dials[0]
			dials = dials[1:]
			return next
		})
		tr := newTransport(t, d, onePerSecond)
		line(t, tr, 1, home)
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, spanOfOne}, d.handed.seen())
		require.Equal(t, []time.Duration{200 * ms, 200*ms + spanOfOne}, d.written.seen())
	})
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

// TestP2_NoRequestIsHandedOnMoreThanASecondEarly but for those that came too late
// so: they would again each time. The first does, because somebody else has the
// next start.
func TestP2_NoRequestIsHandedOnMoreThanASecondEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := memstore.New(), newDialer(always(20*time.Second))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.PerMinute(1)}}}))
		elsewhere(t, store, tr, time.Second)
		line(t, tr, 1, home)
		line(t, tr, 1, home)
		const span, dial = time.Minute + throttle.DefaultJitter + us, 20 * time.Second
		require.Equal(t, []time.Duration{2 * span, 3*span - time.Second + dial}, d.written.seen())
		require.Equal(t, []time.Duration{0, 2*span - dial, 3*span - time.Second}, d.handed.seen())
	})
}

func TestP2_ASilentBaseIsNeverHandedARequestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		s.then = func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * ms)
			return answer(200, "")(r)
		}
		line(t, newTransport(t, s, onePerSecond), 4, home)
		require.Equal(t, []time.Duration{0, spanOfOne, 2 * spanOfOne, 3 * spanOfOne}, s.seen())
	})
}

// TestP2_ABaseThatFallsSilent: nothing stops what it sends early, so after one
// such answer it gets every request at its start.
func TestP2_ABaseThatFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, silent := newDialer(always(200*ms)), newStarts()
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/silent" {
				return silent.RoundTrip(r)
			}
			return d.RoundTrip(r)
		}), onePerSecond)
		line(t, tr, 1, home)
		time.Sleep(time.Minute)
		line(t, tr, 3, home+"silent")
		begin := time.Minute + 200*ms
		require.Equal(t, []time.Duration{begin, begin + spanOfOne, begin + 2*spanOfOne}, silent.seen())
	})
}

// TestP2_ASlowStoreIsGivenRoom: where every answer of the store alone uses up
// what a grant may age, the bookings ask for more room, so that requests are
// sent all the same and no window holds more.
func TestP2_ASlowStoreIsGivenRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newSpy(), newStarts()
		store.slow = 25 * ms
		store.change = func(g *throttle.Grant) { g.Age = 25 * ms }
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{onePerSecond}}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		require.Equal(t, []time.Duration{125 * ms}, s.seen(), "the fifth booking")

		// 5/4 of what the answers took on average, less 5 of the 10 ms that
		// a grant may age.
		var spreads []time.Duration
		for _, b := range store.booked() {
			spreads = append(spreads, b.Spread.Truncate(us))
		}
		require.Equal(t, []time.Duration{0, 2812 * us, 8671 * us, 13066 * us, 16362 * us}, spreads)
		require.Equal(t, 4, store.cancelled())

		line(t, tr, 10, home)
		require.Len(t, s.seen(), 11)
		require.Equal(t, 1, most(s.seen(), time.Second))
		require.Len(t, store.booked(), 5+2*10, "a place in line and then a start for each from now on")
		time.Sleep(100 * ms) // until the room behind the last start is over
		require.Equal(t, 1, status(t, store, tr, get(t, home)).Used, "no booking is left behind")
	})
}
