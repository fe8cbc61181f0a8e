package throttle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// roomAfter returns how much room the next booking asks for when the store took
// so long for its answers, one after the other.
func roomAfter(t *testing.T, took ...time.Duration) time.Duration {
	store := newSpy()
	answers := append(took, 0)
	store.slow = answers[0]
	store.change = func(g *throttle.Grant) {
		g.Age = store.slow
		if answers = answers[1:]; len(answers) > 0 {
			store.slow = answers[0]
		}
	}
	tr := must(throttle.New(throttle.Config{Store: store, Base: newStarts(), Policies: []throttle.Policy{
		{Name: "p", Limit: throttle.PerSecond(1000)},
	}}))
	for len(answers) > 0 { // what is too old is taken anew at once
		require.NoError(t, send(t, tr, get(t, home)))
	}
	booked := store.booked()
	require.Len(t, booked, len(took)+1)
	return booked[len(took)].Spread
}

// TestP3_RoomForASlowStore: room is asked for when all answers take long. A
// hiccup is no reason, and the first fast answer ends it.
func TestP3_RoomForASlowStore(t *testing.T) {
	const slow, fast = 1500 * ms, ms
	const little = 5 * throttle.DefaultJitter / 4 // never less than that is believed of a mean
	for _, c := range []struct {
		name        string
		took        []time.Duration
		least, most time.Duration
	}{
		{"fast", slices.Repeat([]time.Duration{fast}, 9), 0, 0},
		{"far away", slices.Repeat([]time.Duration{100 * ms}, 40), 119 * ms, 120 * ms},
		{"now near, now not so near", slices.Repeat([]time.Duration{10 * ms, 35 * ms, 20 * ms}, 9), 20 * ms, 25 * ms},
		{"slow from the beginning", slices.Repeat([]time.Duration{slow}, 6), slow, 5 * slow / 4},
		{"a hiccup", []time.Duration{fast, fast, slow}, 0, little},
		{"forgotten", append([]time.Duration{fast, fast, slow}, slices.Repeat([]time.Duration{fast}, 9)...), 0, 0},
		{"five hiccups", append(slices.Repeat([]time.Duration{fast}, 9), slices.Repeat([]time.Duration{slow}, 5)...), 0, little},
		{"six are none", append(slices.Repeat([]time.Duration{fast}, 9), slices.Repeat([]time.Duration{slow}, 6)...), slow, 5 * slow / 4},
		{"fast again", append(slices.Repeat([]time.Duration{slow}, 40), fast), 0, little},
		{"fast again and far again", append(slices.Repeat([]time.Duration{slow}, 40), fast, 40*ms), 0, little},
		{"once fast, then slow for long", append([]time.Duration{fast}, slices.Repeat([]time.Duration{slow}, 40)...), slow, 5 * slow / 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := roomAfter(t, c.took...)
				require.GreaterOrEqual(t, room, c.least)
				require.LessOrEqual(t, room, c.most)
			})
		})
	}
}

// TestP3_CallersShareAHiccup: what many callers hear at once is one answer.
func TestP3_CallersShareAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 20
		store := newSpy()
		store.slow = 400 * ms
		store.change = func(g *throttle.Grant) { g.Age = 400 * ms }
		tr := must(throttle.New(throttle.Config{Store: store, Base: newStarts(), Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.PerSecond(1000)},
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range callers {
			crowd.Go(func() { _ = send(t, tr, get(t, home).WithContext(ctx)) })
		}
		time.Sleep(401 * ms) // all have booked anew
		cancel()
		crowd.Wait()
		booked := store.booked()
		require.Len(t, booked, 2*callers)
		for _, b := range booked[callers:] {
			require.Equal(t, 120*ms, b.Spread, "a quarter of it, and a quarter of that, less 5 ms")
		}
	})
}

// TestP3_ABudgetThatIsFarAway: the answers of one budget take long, all others
// are fast, as in a cluster with a node that is ill. Its caller gets through.
func TestP3_ABudgetThatIsFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spy := newSpy()
		tr := must(throttle.New(throttle.Config{Store: farStore{spy}, Base: newStarts(), Policies: []throttle.Policy{
			{Name: "far", Match: "/far", Limit: throttle.PerSecond(1000)},
			{Name: "near", Match: "/near", Limit: throttle.PerSecond(1000)},
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		var near sync.WaitGroup
		near.Go(func() {
			for ctx.Err() == nil {
				_ = send(t, tr, get(t, home+"near").WithContext(ctx))
			}
		})
		time.Sleep(100 * ms)
		begin := time.Now()
		patient, over := context.WithTimeout(t.Context(), 10*time.Second)
		defer over()
		require.NoError(t, send(t, tr, get(t, home+"far").WithContext(patient)))
		require.Equal(t, 700*ms, time.Since(begin), "the seventh booking asks for enough room")
		booked := slices.DeleteFunc(spy.booked(), func(b throttle.Booking) bool { return b.Charges[0].Budget.Policy != "far" })
		require.Len(t, booked, 7)
		require.NotZero(t, booked[5].Instead)
		require.Zero(t, booked[6].Instead, "it was given back by then")
		require.Equal(t, 1, spy.cancelled())
		cancel()
		near.Wait()
	})
}

// A farStore takes long to answer for the policy "far".
type farStore struct{ throttle.Store }

func (s farStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	takes := ms
	if b.Charges[0].Budget.Policy == "far" {
		takes = 100 * ms
	}
	time.Sleep(takes)
	g, err := s.Store.Book(ctx, b)
	g.Age = takes
	return g, err
}
