package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// TestNews: each change is told once, however many callers meet it.
func TestNews(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	n := news{now: func() time.Time { return now }}
	event := func(k throttle.EventKind, d time.Duration) throttle.Event {
		return throttle.Event{Kind: k, Budget: "user/ab12", Duration: d, Err: errors.New("refused connection")}
	}
	const refused = ": the upstream refused a request"
	require.Equal(t, "user/ab12 is closed for 5m0s"+refused, n.of(event(throttle.EventPenalized, 5*time.Minute)))
	require.Empty(t, n.of(event(throttle.EventPenalized, 5*time.Minute)), "the answer of another request")
	now = now.Add(time.Minute)
	require.Empty(t, n.of(event(throttle.EventClosed, 4*time.Minute)), "the same end")
	require.Equal(t, "user/ab12 is closed for 10m0s"+refused, n.of(event(throttle.EventPenalized, 10*time.Minute)))
	require.Equal(t, "user/ab12 is open again", n.of(event(throttle.EventOpened, 0)))
	require.Empty(t, n.of(event(throttle.EventOpened, 0)))

	byHand := event(throttle.EventClosed, time.Hour)
	byHand.Note = store.PauseNote{By: "anna@desk", Reason: "the shop moves"}
	require.Equal(t, `user/ab12 is closed for 1h0m0s: paused by anna@desk: "the shop moves"`, n.of(byHand))
	byHand.Budget, byHand.Note = "other/cd34", store.PauseNote{}
	require.Equal(t, "other/cd34 is closed for 1h0m0s: another program was refused, or an operator paused it", n.of(byHand))

	require.Equal(t, "the store does not answer: refused connection", n.of(event(throttle.EventStoreFailed, 0)))
	require.Empty(t, n.of(event(throttle.EventStoreFailed, time.Second)))
	require.Equal(t, "the store answers again", n.of(event(throttle.EventStarted, 0)))
	require.Empty(t, n.of(event(throttle.EventStarted, 0)))

	off := event(throttle.EventOff, 0)
	off.Note = store.PauseNote{By: "anna@desk", Reason: "the limits are wrong"}
	require.Equal(t, `throttle is off by anna@desk: "the limits are wrong": requests pass without a limit`, n.of(off))
	for range 3 {
		now = now.Add(time.Minute)
		require.Empty(t, n.of(off))
	}
	now = now.Add(time.Minute + time.Second)
	require.NotEmpty(t, n.of(off), "it was on meanwhile")
}

// TestNewsAreBounded: budgets that are open by now make room for others.
func TestNewsAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	n := news{now: func() time.Time { return now }}
	for i := range mostClosed + 10 {
		line := n.of(throttle.Event{Kind: throttle.EventPenalized, Budget: fmt.Sprint(i), Duration: time.Minute})
		require.Equal(t, i < mostClosed, line != "")
	}
	now = now.Add(2 * time.Minute)
	require.NotEmpty(t, n.of(throttle.Event{Kind: throttle.EventPenalized, Budget: "late", Duration: time.Minute}))
	require.Equal(t, 1, len(n.closed))
}

// TestProxyTellsOfABan, on stderr.
func TestProxyTellsOfABan(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s := startProxy(t, newFile(t, host, "100/h"))
	require.Equal(t, http.StatusTooManyRequests, s.get(host+"/"))
	require.Contains(t, s.line(" is closed for "), "the upstream refused a request")
}
