package throttle_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP11_WhatIsFreeTeachesToo has a request that costs one policy, or all of them,
// nothing. It is not held; what its answer says closes the budget for the others
// all the same.
func TestP11_WhatIsFreeTeachesToo(t *testing.T) {
	free := func(r *http.Request) int {
		if r.URL.Path == "/free" {
			return 0
		}
		return 1
	}
	metered := throttle.Policy{Name: "metered", Limit: throttle.PerHour(100), Cost: free}
	each := throttle.Policy{Name: "each", Limit: throttle.PerSecond(100), Penalty: throttle.NoPenalty}
	for name, policies := range map[string][]throttle.Policy{"of two": {metered, each}, "alone": {metered}, "both": {metered,
		{Name: "too", Limit: throttle.PerHour(100), Cost: free, Penalty: throttle.NoPenalty}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts()
				s.then = firstly(answer(429, "", "Retry-After", "60"), answer(200, ""))
				tr := newTransport(t, s, policies...)
				line(t, tr, 3, home+"free") // it is never held
				line(t, tr, 1, home+"dear")
				require.Equal(t, []time.Duration{0, 0, 0, time.Minute}, s.seen())
			})
		})
	}
}

// TestWhatIsFreeIsNotBooked, and a request that is free everywhere asks no store.
func TestWhatIsFreeIsNotBooked(t *testing.T) {
	store := newSpy()
	nothing := func(*http.Request) int { return 0 }
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{
		{Name: "a", Limit: throttle.PerHour(1), Cost: nothing}, {Name: "b", Limit: throttle.PerHour(1), Cost: nothing}}}))
	for range 3 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
	require.Empty(t, store.booked())
	require.Empty(t, tr.Explain(get(t, home)))
}
