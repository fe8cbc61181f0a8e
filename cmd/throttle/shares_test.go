package main

import (
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
