package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// find returns a target.
func find(t *testing.T, f *fleet.Fleet, q fleet.Query) fleet.Target {
	target, err := f.Find(t.Context(), q)
	require.NoError(t, err)
	return target
}

// TestPause: a pause closes one budget of the fleet, and a refused caller reads the reason
// at once, though its node has not reported since.
func TestPause(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, shop, "acme", "other")
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme"})
	require.Equal(t, "shop/f32021364bac", target.Name)
	require.Equal(t, shop.Limit, target.Limit)
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna@desk", "the shop moves"))

	b := start(t, client, "another") // it has learned the note when it began
	for _, s := range []store.Store{a, b} {
		limited := refusal(t, limiter(t, s, shop), "acme")
		require.Equal(t, store.PauseNote{By: "anna@desk", Reason: "the shop moves"}, limited.Note)
	}
	acquire(t, l, "other")

	s := snapshot(t, all)
	require.Equal(t, "shop/f32021364bac", s.Budgets[0].Name)
	require.Equal(t, "the shop moves", s.Budgets[0].Note.Reason)
	require.InDelta(t, float64(time.Hour), float64(s.Budgets[0].Note.Until.Sub(s.At)), float64(time.Minute))
	require.Nil(t, s.Budgets[1].Note)

	// A longer one takes its place, a shorter one does not.
	require.NoError(t, all.Pause(t.Context(), target, 2*time.Hour, "ben", "it takes longer"))
	var longer *fleet.LongerError
	require.ErrorAs(t, all.Pause(t.Context(), target, time.Hour, "carl", ""), &longer)
	require.Equal(t, "ben", longer.Note.By)

	require.NoError(t, all.Resume(t.Context(), find(t, all, fleet.Query{Name: "shop/f32"}), "anna@desk", ""))
	acquire(t, l, "acme")
	require.Nil(t, snapshot(t, all).Budgets[0].Note)
	var open *fleet.NotPausedError
	require.ErrorAs(t, all.Resume(t.Context(), target, "anna@desk", ""), &open)
	require.EqualError(t, open, "shop/f32021364bac is not paused")

	acts, _, err := all.Audit(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, acts, 3)
	require.Equal(t, "resume", acts[0].Act)
	require.Equal(t, "pause", acts[2].Act)
	require.Equal(t, time.Hour, acts[2].For.Duration)
	require.WithinDuration(t, time.Now(), acts[2].At, time.Minute)
}

// TestPauseReachesWaiters: a caller that waits when the budget is paused reads the reason in
// the error with which its context ends, though its node does not report for an hour. It
// stands in line, sleeps until a start that is booked, or waits for a slot.
func TestPauseReachesWaiters(t *testing.T) {
	for name, limit := range map[string]store.Limit{
		"line": store.PerMinute(1), "start": store.SlidingWindow(1, 2*time.Second), "slot": store.Concurrency(1),
	} {
		t.Run(name, func(t *testing.T) {
			for !pauseReaches(t, limit) {
				limit = store.SlidingWindow(1, 2*limit.Per())
				require.Less(t, limit.Per(), 5*time.Minute)
			}
		})
	}
}

// pauseReaches pauses a budget for which a caller waits. It returns false if the caller's start came before the
// pause was stored, as on a machine that is busy.
func pauseReaches(t *testing.T, limit store.Limit) bool {
	client := redistest.Single(t).Client(t)
	a, l, all := used(t, client, throttle.Policy{Name: "slow", Limit: limit, Jitter: -1}, "")
	target := find(t, all, fleet.Query{Name: "slow"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		ended <- err
	}()

	require.Eventually(t, func() bool {
		st, err := l.Status(t.Context(), "")
		return len(ended) > 0 || err == nil && st.Waiting > 0 && len(do(t, client, "PUBSUB", "CHANNELS").([]any)) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "an audit"))
	require.Eventually(t, func() bool {
		return len(ended) > 0 || a.PauseNote(target.Budget()).By == "anna"
	}, time.Minute, time.Millisecond)
	leave()

	err := <-ended
	if err == nil {
		return false
	}
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `for policy "slow", paused by anna: "an audit": context canceled`)
	return true
}

// TestNewsIsNotLost: a reporter learns of two pauses, although the second comes right after
// it has asked about the first.
func TestNewsIsNotLost(t *testing.T) {
	client := redistest.Single(t).Client(t)
	a, l, all := used(t, client, throttle.Policy{Name: "slow", Limit: store.PerMinute(1), Jitter: -1}, "")
	target := find(t, all, fleet.Query{Name: "slow"})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
	require.Eventually(t, func() bool { return len(do(t, client, "PUBSUB", "CHANNELS").([]any)) > 0 }, time.Minute, time.Millisecond)
	for i := range 5 {
		by := fmt.Sprint("operator ", i)
		require.NoError(t, all.Pause(t.Context(), target, time.Duration(i+1)*time.Hour, by, ""))
		require.Eventually(t, func() bool { return a.PauseNote(target.Budget()).By == by }, time.Minute, time.Millisecond)
	}
	require.NoError(t, all.Resume(t.Context(), target, "anna", ""))
	require.Eventually(t, func() bool { return a.PauseNote(target.Budget()) == (store.PauseNote{}) }, time.Minute, time.Millisecond)
}

// TestPenaltyIsNoPause: resume leaves the penalty of an upstream alone, reset does not.
func TestPenaltyIsNoPause(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, l, all := used(t, client, shop, "acme")
	require.NoError(t, l.Pause(t.Context(), "acme", time.Hour))
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "acme", 1)
	require.ErrorContains(t, err, "closed by a penalty")

	target := find(t, all, fleet.Query{Name: "shop", Key: "acme"})
	err = all.Resume(t.Context(), target, "anna", "")
	require.ErrorContains(t, err, "shop/f32021364bac is closed by an answer of its upstream for ")
	require.NoError(t, all.Reset(t.Context(), target, "anna", ""))
	acquire(t, l, "acme")
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "acme", 1)
	require.NoError(t, err) // the third of three
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "acme", 1)
	require.Error(t, err) // starts are not forgotten
}

// TestFind: a query that does not name exactly one budget is an error that says how to name one.
func TestFind(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "program")
	acquire(t, limiter(t, a, shop), "acme", "other")
	acquire(t, limiter(t, a, throttle.Policy{Name: "own", Limit: store.PerHour(3), Scope: throttle.ScopeNode}), "")
	acquire(t, limiter(t, a, throttle.Policy{Name: "sum", Limit: store.PerHour(3)}), "")
	a.Report()
	all := must(fleet.New(client, fleet.Options{}))
	table := []throttle.Policy{{Name: "new", Match: "example.com/", Key: throttle.Header("X"), Limit: store.PerHour(1)},
		{Name: "named", Keyed: true, Limit: store.PerHour(1)}, {Name: "one", Limit: store.PerHour(1)}}
	for _, c := range []struct {
		q    fleet.Query
		text string
	}{
		{fleet.Query{Name: "shop"}, `"shop": the policy has a budget for each key: say --key, or the name of a budget, such as shop/`},
		{fleet.Query{Name: "shop/"}, `"shop/": no node has reported a policy or a budget of this name; say --file if none has used it yet; nodes have reported others, such as own, shop, sum`},
		{fleet.Query{Name: "sho\x1b"}, `"sho\x1b": no node`},
		{fleet.Query{Name: "own"}, `"own": each node has this budget for itself`},
		{fleet.Query{Name: "new", Table: table}, `"new": the policy has a budget for each key`},
		{fleet.Query{Name: "named", Table: table}, `"named": the policy has a budget for each key`},
		{fleet.Query{Name: "one", Key: "acme", Table: table}, `"one": the policy has one budget for all, and no keys: leave --key out`},
		{fleet.Query{Name: "sum", Key: "acme"}, `"sum": nodes have used one budget of the policy for all, and no keys: leave --key out, or say --file, the file of policies`},
	} {
		_, err := all.Find(t.Context(), c.q)
		require.ErrorContains(t, err, c.text)
	}
	require.NotEmpty(t, find(t, all, fleet.Query{Name: "new", Key: "x", Table: table}))
}

// TestPauseOfWhatNobodyUsed: a budget that only the table knows can be closed, and is shown.
func TestPauseOfWhatNobodyUsed(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "anna", "why\x1b[2J"))
	s := snapshot(t, all)
	require.Equal(t, `why\x1b[2J`, s.Budgets[0].Note.Reason)
	require.Equal(t, []string{"3/h"}, s.Budgets[0].Limits, "the note says what the policy is")
	require.Greater(t, s.Budgets[0].State.Paused.Duration, 59*time.Minute)

	earlier := fmt.Sprintf(`%d {"policy":"shop","by":"anna","reason":"why\u001b[2J"}`, time.Now().Add(time.Hour).UnixMicro())
	do(t, client, "HSET", all.PausesKey(), fmt.Sprintf("%x", target.Budget().Key), earlier)
	b := snapshot(t, all).Budgets[0]
	require.Equal(t, "no node says what its limit is", b.Err, "the note of an earlier version")
	require.Zero(t, b.Since)

	// Its state is that of the note, also without a new report.
	s = snapshot(t, all)
	do(t, client, "HSET", all.PausesKey(), fmt.Sprintf("%x", target.Budget().Key), strings.Replace(earlier, "1", "2", 1))
	next, err := all.Refresh(t.Context(), s)
	require.NoError(t, err)
	require.Greater(t, next.Budgets[0].State.Paused.Duration, 24*time.Hour)
	do(t, client, "HDEL", all.PausesKey(), fmt.Sprintf("%x", target.Budget().Key))
	next, err = all.Refresh(t.Context(), s)
	require.NoError(t, err)
	require.Empty(t, next.Budgets)
	require.Zero(t, next.Closed)
	do(t, client, "HSET", all.PausesKey(), fmt.Sprintf("%x", target.Budget().Key), earlier)
	_, err = limiter(t, start(t, client, "late"), shop).Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "acme", 1)
	require.ErrorContains(t, err, `paused by anna: "why\\x1b[2J"`)
}

// TestAuditIsCapped: the audit keeps the last 1,000 acts, and skips nonsense.
func TestAuditIsCapped(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	for i := range 1200 {
		do(t, client, "LPUSH", all.AuditKey(), fmt.Sprintf("%d {\"act\":\"pause\",\"by\":\"\\u001b\"}", i))
	}
	do(t, client, "LPUSH", all.AuditKey(), "nonsense", "12 {", "", `12 {"acted": "pause"}`)
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, strings.Repeat("a", 10_000), strings.Repeat("é", 10_000)))
	acts, illegible, err := all.Audit(t.Context(), 5000)
	require.NoError(t, err)
	require.Len(t, acts, 995+1)
	require.Equal(t, 4, illegible)
	require.Equal(t, `\x1b`, acts[1].By)
	require.Len(t, []rune(acts[0].Reason), 500)
}

// TestNothingIsHalfDone: a push or a pause does nothing if its history or audit cannot be
// written.
func TestNothingIsHalfDone(t *testing.T) {
	for _, list := range []string{"history", "audit"} {
		client := redistest.Single(t).Client(t)
		all := must(fleet.New(client, fleet.Options{}))
		do(t, client, "SET", "throttle:{fleet}:"+list, "by hand")
		_, err := all.Push(t.Context(), 0, fleet.Pushed{Generation: "aa", Text: []byte("text")}, "push")
		require.ErrorContains(t, err, "WRONGTYPE")
		now, err := all.Pull(t.Context())
		require.NoError(t, err)
		require.Nil(t, now)
		if list == "audit" {
			target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
			require.ErrorContains(t, all.Pause(t.Context(), target, time.Hour, "anna", ""), "WRONGTYPE")
			require.Empty(t, snapshot(t, all).Budgets)
		}
	}
}

// TestPushedByAnotherType: if the key of the pushed file holds anything else, the error says so,
// with the key and what an operator can do.
func TestPushedByAnotherType(t *testing.T) {
	server := redistest.Single(t)
	client := newClient(t, server.User(t, "operator", redistest.Rights(t, "../../docs/run/redis.md", "operator")))
	all := must(fleet.New(client, fleet.Options{}))
	do(t, server.Client(t), "SET", "throttle:{fleet}:policies", "by hand")
	_, err := all.Pull(t.Context())
	require.EqualError(t, err, "fleet: the pushed file cannot be read: remove the key by PEXPIRE throttle:{fleet}:policies 0, which an operator may send, and push again; programs keep what they have in force")

	do(t, client, "PEXPIRE", "throttle:{fleet}:policies", 0)
	_, err = all.Push(t.Context(), 0, fleet.Pushed{Generation: "aa", Text: []byte("text")}, "push")
	require.NoError(t, err)
}

// cutting returns a client with which scripts that change budgets fail and scripts of the fleet
// do not, and a context that ends when one has failed.
func cutting(t *testing.T, server *redistest.Server) (*redis.Client, context.Context) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	c := server.Client(t)
	c.AddHook(scriptHook(func(keys []string, call func() error) error {
		if strings.Contains(keys[0], "{fleet}") {
			return call()
		}
		stop()
		return errors.New("cut")
	}))
	return c, ctx
}

// TestPauseThatFails: the note of a pause that could not be stored is taken back, and the
// audit says so.
func TestPauseThatFails(t *testing.T) {
	server := redistest.Shared(t)
	cut, ctx := cutting(t, server)
	target := find(t, must(fleet.New(cut, fleet.Options{})), fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.Error(t, must(fleet.New(cut, fleet.Options{})).Pause(ctx, target, time.Hour, "anna", "why"))

	all := must(fleet.New(server.Client(t), fleet.Options{}))
	require.Empty(t, snapshot(t, all).Budgets)
	acts, _, err := all.Audit(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, acts, 1, "the audit does not speak of a pause that closed nothing")
	require.True(t, acts[0].Failed)

	// The note of a pause that holds comes back.
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "ben", "the first"))
	cut, late := cutting(t, server)
	require.Error(t, must(fleet.New(cut, fleet.Options{})).Pause(late, target, 2*time.Hour, "anna", "why"))
	note := snapshot(t, all).Budgets[0].Note
	require.Equal(t, "the first", note.Reason)
	require.InDelta(t, float64(time.Hour), float64(time.Until(note.Until)), float64(time.Minute))
}

// TestPauseInACluster: a budget is closed in its own slot, even if the notes are in another one.
func TestPauseInACluster(t *testing.T) {
	client := redistest.Cluster(t).Client(t)
	a := start(t, client, "program")
	p := throttle.Policy{Name: "shop", Match: "acme.example.com/", Limit: store.PerHour(10)}
	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{p, {Name: "wide", Match: "*.example.com/", Limit: store.PerHour(100)}}})
	require.NoError(t, err)
	l, err := tr.Limiter("shop")
	require.NoError(t, err)
	acquire(t, l, "")
	a.Report()
	all := must(fleet.New(client, fleet.Options{}))
	require.NoError(t, all.Pause(t.Context(), find(t, all, fleet.Query{Name: "shop"}), time.Hour, "anna", "why"))
	require.ErrorContains(t, refusal(t, l, ""), `paused by anna: "why"`)
	require.Equal(t, "why", budget(t, snapshot(t, all), "shop").Note.Reason)
}

// TestSetUsed: programs meet the count that an operator has set. The audit says who set it, from
// which count and to which. The note of a pause stays.
func TestSetUsed(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, l, all := used(t, client, shop, "acme")
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme"})
	before, err := all.SetUsed(t.Context(), target, 3, "anna", "they count more")
	require.NoError(t, err)
	require.Equal(t, 1, before)
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "acme", 1)
	require.Error(t, err)
	require.NoError(t, all.Pause(t.Context(), target, time.Hour, "ben", "an audit"))
	before, err = all.SetUsed(t.Context(), target, 0, "anna", "they count less")
	require.NoError(t, err)
	require.Equal(t, 3, before)
	require.Equal(t, "ben", budget(t, snapshot(t, all), "shop").Note.By)
	require.NoError(t, all.Resume(t.Context(), target, "ben", ""))
	acquire(t, l, "acme", "acme", "acme")

	acts, _, err := all.Audit(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, "they count less", acts[1].Reason)
	require.Equal(t, fleet.Act{At: acts[3].At, Act: "set-used", What: target.Name, By: "anna", Reason: "they count more", Used: &fleet.Change{Before: 1, After: 3}}, acts[3])
}

// TestSetUsedRefused: a limit without windows, and a count that the limit cannot have, are refused
// with all mistakes, and so is a budget that Redis does not count. Nothing is noted.
func TestSetUsedRefused(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	for _, c := range []struct {
		limit store.Limit
		used  int
		text  string
	}{
		{store.PerHour(3), -1, `: -1 is less than nothing`},
		{store.PerHour(3), 4, `: 4 is more than its limit, 3/h; at the limit nothing starts either, so set it to 3, and lower the limit if the upstream counts more`},
		{store.LeakyBucket(1, time.Second), 1, "has no window whose count could be set"},
		{store.TokenBucket(1, time.Second, 3), -1, "has no window whose count could be set; -1 is less than nothing"},
		{store.Concurrency(3), 1, "has no window whose count could be set"},
		{store.Unlimited(), 1, "has no window whose count could be set"},
	} {
		table := []throttle.Policy{{Name: "new", Match: "example.com/", Limit: c.limit}}
		_, err := all.SetUsed(t.Context(), find(t, all, fleet.Query{Name: "new", Table: table}), c.used, "anna", "")
		var wrong *fleet.UsedError
		require.ErrorAs(t, err, &wrong, c.limit)
		require.Contains(t, err.Error(), c.text)
	}
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	_, err := all.SetUsed(t.Context(), target, 1, "anna", "")
	var uncounted *fleet.UncountedError
	require.ErrorAs(t, err, &uncounted)
	acts, _, err := all.Audit(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, acts)
}
