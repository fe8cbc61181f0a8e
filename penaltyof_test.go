package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// penalty returns a Policy.Penalty that is always d.
func penalty(d time.Duration) func(*http.Response) time.Duration {
	return func(*http.Response) time.Duration { return d }
}

func TestPenaltyOf(t *testing.T) {
	policy := func(name string, d time.Duration) throttle.Policy {
		return throttle.Policy{Name: name, Limit: throttle.PerSecond(9), Penalty: penalty(d)}
	}
	shadow := policy("shadow", time.Hour)
	shadow.Shadow = true
	elsewhere := policy("elsewhere", time.Hour)
	elsewhere.Match = "elsewhere.example.com/"

	denying := policy("denying", -time.Hour)
	denying.Shadow = true
	free := policy("free", time.Hour)
	free.Cost = func(*http.Request) int { return 0 }

	for _, c := range []struct {
		name     string
		policies []throttle.Policy
		want     time.Duration
	}{
		{"no policy", nil, 0},
		{"none", []throttle.Policy{policy("a", 0)}, 0},
		{"certainly none", []throttle.Policy{policy("a", -time.Hour)}, -time.Hour},
		{"certainly none, and nothing else", []throttle.Policy{policy("a", 0), policy("b", -1), policy("c", -2)}, -2},
		{"certainly none, says one", []throttle.Policy{policy("a", -time.Hour), policy("b", 3)}, 3},
		{"certainly none beside a shadow", []throttle.Policy{policy("a", -1), shadow}, -1},
		{"a shadow says that there is none", []throttle.Policy{denying}, 0},
		{"it does not hold what is free", []throttle.Policy{free}, 0},
		{"certainly none, but it closes what is free", []throttle.Policy{policy("a", -1), free}, 0},
		{"one", []throttle.Policy{policy("a", time.Minute)}, time.Minute},
		{"the longest", []throttle.Policy{policy("a", 2), policy("b", time.Minute), policy("c", 3)}, time.Minute},
		{"capped", []throttle.Policy{policy("a", 1000*time.Hour)}, throttle.MaxPenalty},
		{"a shadow holds nobody", []throttle.Policy{shadow}, 0},
		{"a shadow beside another", []throttle.Policy{shadow, policy("a", time.Minute)}, time.Minute},
		{"not its policy", []throttle.Policy{elsewhere}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, err := newTransport(t, answer(200, "body"), c.policies...).RoundTrip(get(t, home))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, throttle.PenaltyOf(resp))
		})
	}
	require.Zero(t, throttle.PenaltyOf(nil))
	require.Zero(t, throttle.PenaltyOf(new(http.Response)))
}

// TestPenaltyOf_ThroughHTTPClient: with a Timeout it wraps the body.
func TestPenaltyOf_ThroughHTTPClient(t *testing.T) {
	tr := newTransport(t, answer(429, "", "Retry-After", "7"), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	client := http.Client{Transport: tr, Timeout: time.Minute}
	resp, err := client.Do(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 7*time.Second, throttle.PenaltyOf(resp))
}

// TestPenaltyOf_TheRequestIsTheCallers in all but its context's value.
func TestPenaltyOf_TheRequestIsTheCallers(t *testing.T) {
	tr := newTransport(t, answer(429, ""), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	type key struct{}
	r := get(t, home)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "caller's own"))
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "caller's own", resp.Request.Context().Value(key{}))
	require.Equal(t, r, resp.Request.WithContext(r.Context()))
	require.Same(t, r.URL, resp.Request.URL)
}

// TestPenaltyOf_IsOfOneAnswer: the request of a refused answer, sent again, does
// not make the next answer a refusal.
func TestPenaltyOf_IsOfOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, firstly(answer(429, ""), answer(200, "")), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
		first, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, first.Body.Close())
		second, err := tr.RoundTrip(first.Request)
		require.NoError(t, err)
		require.NoError(t, second.Body.Close())
		require.Equal(t, time.Second, throttle.PenaltyOf(first))
		require.Zero(t, throttle.PenaltyOf(second))
	})
}

// TestPenaltyOf_WhatWasNotStored closes nothing, but is a refusal.
func TestPenaltyOf_WhatWasNotStored(t *testing.T) {
	store := newSpy()
	store.pause = func(context.Context) error { return errors.New("down") }
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(429, ""),
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(9)}}}))
	resp, err := tr.RoundTrip(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, throttle.Unheld, throttle.PenaltyOf(resp))
	require.Equal(t, 1, store.paused())
}

// TestPenaltyOf_WhatTheStoreHearsOfLate is a refusal all the same: a caller gets
// the answer after one second when the store takes ten.
func TestPenaltyOf_WhatTheStoreHearsOfLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, back := newSpy(), make(chan struct{})
		store.pause = func(context.Context) error { <-back; return nil }
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""),
			Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(9), Penalty: penalty(time.Minute)}}}))
		begin := time.Now()
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, time.Second, time.Since(begin))
		require.Equal(t, time.Minute, throttle.PenaltyOf(resp))
		close(back)
		synctest.Wait()
	})
}

// TestPenaltyOf_WhatWasDoneInPart closes the budget and must not be repeated.
func TestPenaltyOf_WhatWasDoneInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := throttle.Policy{Name: "p", Limit: throttle.PerSecond(9), Penalty: penalty(time.Minute),
			Acted: func(resp *http.Response) bool { return resp.StatusCode == 200 }}
		for status, closes := range map[int]time.Duration{200: -1, 400: time.Minute} {
			store := memstore.New()
			tr := must(throttle.New(throttle.Config{Store: store, Base: answer(status, ""), Policies: []throttle.Policy{p}}))
			resp, err := tr.RoundTrip(get(t, home))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, closes, throttle.PenaltyOf(resp))
			require.Equal(t, time.Minute, must(store.Status(t.Context(), tr.Explain(get(t, home))[0])).Paused)
		}
	})
}
