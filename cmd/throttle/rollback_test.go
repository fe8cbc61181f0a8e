package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestRollbackPrintsNothingRaw: an older file comes from Redis, where somebody may have written
// it by hand. What is wrong in it is printed without what controls a terminal.
func TestRollbackPrintsNothingRaw(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).LPush(t.Context(), "throttle:{fleet}:history",
		`7 1795478559686940 {"text":"version: 1\npolicies:\n  - {name: api, macth: \u202eexample.com/\u009b31m}\n"}`).Err())
	var out, talk bytes.Buffer
	require.Equal(t, exitFound, run(t.Context(), []string{"rollback", "7", "--yes", "--redis", server.URL()}, &out, &talk))
	require.Contains(t, talk.String(), "number 7:3:24: the invisible character U+202E stands here")
	require.Contains(t, talk.String(), "\n    3 |   - {name: api, macth: �example.com/�31m}\n")
}

// TestUnreadableEntriesAreCounted: what stands in the history or the audit and cannot be read
// is not left out in silence.
func TestUnreadableEntriesAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	for _, list := range []string{"history", "audit"} {
		require.NoError(t, server.Client(t).LPush(t.Context(), "throttle:{fleet}:"+list, "by hand", `7 1795478559686940 {`).Err())
		var out, talk bytes.Buffer
		require.Equal(t, exitDone, run(t.Context(), []string{list, "--redis", server.URL()}, &out, &talk))
		require.Equal(t, "2 more entries could not be read\n", talk.String())
	}
	var out, talk bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"rollback", "7", "--yes", "--redis", server.URL()}, &out, &talk))
	require.Contains(t, talk.String(), "number 7 is not in the history, of which 2 entries could not be read")
}

// TestSetUsed: what is wrong is said at once, before it is asked whether to act, and the audit
// says from what to what the count went.
func TestSetUsed(t *testing.T) {
	server := chdirFiles(t)
	for _, c := range []struct {
		to, policy string
		text       string
	}{
		{"", "shop", "throttle: --to: say how much is used, from 0 to the limit\n"},
		{"-3", "shop", "throttle: --to: -3 is less than nothing\n"},
		{"NaN", "nobody", "throttle: --to: \"NaN\" is no whole number from 0 to the limit\n\"nobody\": no node has reported a policy or a budget of this name; say --file if none has used it yet\n"},
		{"6", "shop", "throttle: shop/f32021364bac: 6 is more than its limit, 5/h; at the limit nothing starts either, so set it to 5, and lower the limit if the upstream counts more\n"},
	} {
		code, out := throttleCommand(t, "set-used", c.policy, "--key", "acme", "--file", "good.yaml", "--to", c.to)
		require.Equal(t, exitUsage, code)
		require.Equal(t, c.text, out)
	}
	code, out := throttleCommand(t, "set-used", "shop", "--key", "acme", "--file", "good.yaml", "--to", "4", "--yes")
	require.Equal(t, exitConflict, code)
	require.Contains(t, out, "shop/f32021364bac has no count in Redis that could be set")

	startFollower(t, server)
	out = must(t, "set-used", "shop", "--key", "acme", "--to", "4", "--by", "anna", "--reason", "they count more", "--yes")
	require.Equal(t, "shop/f32021364bac has 4 used, 1 before\n", out)
	require.Contains(t, must(t, "audit"), "set-used from 1 to 4")
}

// TestPauseInsideABan: a pause that ends before a ban says that the ban stays, and no resume lifts it.
func TestPauseInsideABan(t *testing.T) {
	server := chdirFiles(t)
	l, err := throttle.NewLimiter(redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(5)})
	require.NoError(t, err)
	require.NoError(t, l.Pause(t.Context(), "acme", 5*time.Minute))

	pause := []string{"pause", "shop", "--key", "acme", "--file", "good.yaml", "--yes", "--for"}
	require.Regexp(t, `^shop/f32021364bac stays closed for (5 min|4 min \d+ s), by a ban that ends later\n$`, must(t, append(pause, "1m")...))
	for _, of := range [][]string{{"shop", "--key", "acme", "--file", "good.yaml"}, {"--all"}} {
		code, out := throttleCommand(t, append([]string{"resume", "--yes"}, of...)...)
		require.Equal(t, exitConflict, code)
		require.Contains(t, out, "shop/f32021364bac is closed by an answer of its upstream for ")
	}

	require.Equal(t, "shop/f32021364bac is closed for 10 min\n", must(t, append(pause, "10m")...))
	require.Equal(t, "shop/f32021364bac is open\n", must(t, "resume", "--yes", "--all"))

	require.Equal(t, "shop/f32021364bac is closed for 10 min\n", must(t, append(pause, "10m")...))
	require.NoError(t, l.Pause(t.Context(), "acme", time.Hour))
	require.Regexp(t, `^shop/f32021364bac stays closed for (1 h|59 min \d+ s), by a ban that ends later\n$`, must(t, append(pause, "20m")...), "an operator's pause, and a ban")
}

// TestBanAfterAPause: a program has ended an operator's pause, and the budget is closed again for less long. No command names the operator, and
// no resume opens the budget.
func TestBanAfterAPause(t *testing.T) {
	server := chdirFiles(t)
	l, err := throttle.NewLimiter(redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(5)})
	require.NoError(t, err)
	explain := []string{"explain", "good.yaml", "GET", "https://acme.example.com/admin/orders.json", "--redis", server.URL()}
	must(t, "pause", "shop", "--key", "acme", "--file", "good.yaml", "--for", "1h", "--by", "anna@desk", "--yes")
	_, out := throttleCommand(t, explain...)
	require.Contains(t, out, "paused by anna@desk")
	require.NoError(t, l.Resume(t.Context(), "acme"))
	require.NoError(t, l.Pause(t.Context(), "acme", 5*time.Minute))

	for _, show := range [][]string{explain, append(explain, "--json"), {"status"}, {"status", "--json"}} {
		_, out := throttleCommand(t, show...)
		require.Contains(t, out, "shop/f32021364bac", show)
		require.NotContains(t, out, "anna@desk", show)
	}

	code, out := throttleCommand(t, "resume", "shop", "--key", "acme", "--file", "good.yaml", "--yes")
	require.Equal(t, exitConflict, code)
	require.Contains(t, out, "shop/f32021364bac is closed by an answer of its upstream for ")
	code, out = throttleCommand(t, "resume", "--all", "--yes")
	require.Equal(t, exitConflict, code)
	require.Contains(t, out, "no operator has paused a budget")

	_, out = throttleCommand(t, explain...)
	require.Contains(t, out, "closed")
}

// TestSharesAreShown: status and top say which shares wait for a budget, in words and in JSON: 16 by hashed names, and the others together.
// $UPDATE writes the words that testdata/shares.txt has.
func TestSharesAreShown(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	client := server.Client(t)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "agents", Interval: 20 * time.Millisecond}))
	t.Cleanup(reporter.Close)
	limiters, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: reporter, Policies: []throttle.Policy{
		{Name: "model", Limit: throttle.PerHour(3)},
	}})
	require.NoError(t, err)
	var waiting sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		waiting.Wait()
	})
	for range 3 {
		_, err := limiters.Acquire(ctx, throttle.Demand{Policy: "model", Share: "first"})
		require.NoError(t, err)
	}
	for tenant := range 20 {
		demand := throttle.Demand{Policy: "model", Share: fmt.Sprint("tenant ", tenant), Weight: 1 + tenant%3, Cost: 1 + tenant%2}
		if tenant == 19 {
			demand.Share, demand.Weight = "", 0
		}
		for range 1 + tenant {
			waiting.Go(func() { _, _ = limiters.Acquire(ctx, demand) })
		}
	}
	var s fleet.Snapshot
	require.Eventually(t, func() bool {
		s = fleet.Snapshot{}
		require.NoError(t, json.Unmarshal([]byte(must(t, "status", "--json", at)), &s))
		return len(s.Budgets) == 1 && s.Budgets[0].State.Waiting == 320
	}, time.Minute, 10*time.Millisecond)

	all := s.Budgets[0].State.Shares
	require.Len(t, all, fleet.MostShares+1)
	require.Equal(t, fleet.Share{Name: "none", Weight: 1, Waiting: 40}, all[0])
	require.Equal(t, fmt.Sprintf("%014x", store.ShareOf("model", "tenant 17")), all[1].Name)
	require.Equal(t, fleet.Share{Name: "other", Waiting: 1 + 4 + 3 + 5, Shares: 4}, all[16])
	for _, command := range []string{"status", "top --once"} {
		text := must(t, append(strings.Fields(command), at)...)
		require.NotContains(t, text, "tenant")
		_, text, _ = strings.Cut(text, "\n\nSHARE")
		text, _, _ = strings.Cut(text, "\nNODE")
		golden, err := os.ReadFile("testdata/shares.txt")
		if os.Getenv("UPDATE") != "" {
			require.NoError(t, os.WriteFile("testdata/shares.txt", []byte("SHARE"+text), 0o644))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(golden), "SHARE"+text)
	}
	live := func(context.Context) (*fleet.Snapshot, error) { return &s, nil }
	m := newModel(t.Context(), time.Second, sorts[0], "", live, nil)
	m.shown, m.height = &s, 200
	lines := strings.Join(m.lines(), "\n")
	require.Regexp(t, regexp.MustCompile(`SHARE +BUDGET +WEIGHT +WAITING +SERVED`), lines)
	require.Regexp(t, regexp.MustCompile(`other \(4\) +model\S* +- +13 +0`), lines)
}

// TestViewOfWhatIsNotKnown: what a share was served is not said to be nothing.
func TestViewOfWhatIsNotKnown(t *testing.T) {
	b := &fleet.Budget{Name: "model", Node: "abcdefgh"}
	require.Equal(t, []string{"a1", "model of abcdef", "2", "7", "not known"}, shareRow(b, fleet.Share{Name: "a1", Weight: 2, Waiting: 7, Served: -1}))
}
