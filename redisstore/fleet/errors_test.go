package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestErrorsOfRedis: what Redis or the way to it did is told apart from what the caller did.
func TestErrorsOfRedis(t *testing.T) {
	all := must(fleet.New(redistest.Shared(t).Client(t), fleet.Options{}))
	table := []throttle.Policy{{Name: "a", Limit: store.PerSecond(1)}}
	target, err := all.Find(t.Context(), fleet.Query{Name: "a", Table: table})
	require.NoError(t, err)
	var away *fleet.Error

	_, err = all.Find(t.Context(), fleet.Query{Name: "b"})
	require.Error(t, err)
	require.NotErrorAs(t, err, &away)
	_, err = all.Push(t.Context(), 0, fleet.Pushed{Text: make([]byte, fleet.MostText+1)}, "push")
	require.Error(t, err)
	require.NotErrorAs(t, err, &away)

	ctx, stop := context.WithCancel(t.Context())
	stop()
	for name, ask := range map[string]func(context.Context) error{
		"Nodes":    func(ctx context.Context) error { _, err := all.Nodes(ctx); return err },
		"Snapshot": func(ctx context.Context) error { _, err := all.Snapshot(ctx, 0); return err },
		"Audit":    func(ctx context.Context) error { _, _, err := all.Audit(ctx, 1); return err },
		"History":  func(ctx context.Context) error { _, _, err := all.History(ctx); return err },
		"Pull":     func(ctx context.Context) error { _, err := all.Pull(ctx); return err },
		"Push":     func(ctx context.Context) error { _, err := all.Push(ctx, 0, fleet.Pushed{}, "push"); return err },
		"State":    func(ctx context.Context) error { _, _, err := all.State(ctx, target); return err },
		"Pause":    func(ctx context.Context) error { return all.Pause(ctx, target, 1, "anna", "") },
		"Reset":    func(ctx context.Context) error { return all.Reset(ctx, target, "anna", "") },
	} {
		require.ErrorAs(t, ask(ctx), &away, name)
	}
}

// TestNobodyWaitsForEver: a call whose context has no deadline ends, though Redis is gone.
func TestNobodyWaitsForEver(t *testing.T) {
	server := redistest.Single(t)
	p := throttle.Policy{Name: "a", Limit: store.PerSecond(1)}
	_, _, all := used(t, server.Client(t), p, "")
	target, err := all.Find(t.Context(), fleet.Query{Name: "a", Table: []throttle.Policy{p}})
	require.NoError(t, err)
	server.Kill()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer time.Sleep(time.Minute) // until go-redis notices that nobody wants its connections any more
		defer client.Close()
		all := must(fleet.New(client, fleet.Options{}))
		for name, ask := range map[string]func() error{
			"Snapshot": func() error { _, err := all.Snapshot(context.Background(), 0); return err },
			"State":    func() error { _, _, err := all.State(context.Background(), target); return err },
			"Pause":    func() error { return all.Pause(context.Background(), target, time.Minute, "anna", "") },
			"Resume":   func() error { return all.Resume(context.Background(), target, "anna", "") },
			"Reset":    func() error { return all.Reset(context.Background(), target, "anna", "") },
			"SetUsed":  func() error { _, err := all.SetUsed(context.Background(), target, 1, "anna", ""); return err },
		} {
			begin := time.Now()
			var away *fleet.Error
			require.ErrorAs(t, ask(), &away, name)
			require.LessOrEqual(t, time.Since(begin), 11*time.Second, name)
		}
	})
}
