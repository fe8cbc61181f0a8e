package fleet_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// TestErrorsOfRedis: what Redis or the way to it did is told apart from what the caller did.
func TestErrorsOfRedis(t *testing.T) {
	all := fleet.New(redistest.Shared(t).Client(t), nil)
	table := []throttle.Policy{{Name: "a", Limit: throttle.PerSecond(1)}}
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
		"Audit":    func(ctx context.Context) error { _, err := all.Audit(ctx, 1); return err },
		"History":  func(ctx context.Context) error { _, err := all.History(ctx); return err },
		"Pull":     func(ctx context.Context) error { _, err := all.Pull(ctx); return err },
		"Push":     func(ctx context.Context) error { _, err := all.Push(ctx, 0, fleet.Pushed{}, "push"); return err },
		"State":    func(ctx context.Context) error { _, _, err := all.State(ctx, target); return err },
		"Pause":    func(ctx context.Context) error { return all.Pause(ctx, target, 1, "anna", "") },
		"Reset":    func(ctx context.Context) error { return all.Reset(ctx, target, "anna", "") },
	} {
		require.ErrorAs(t, ask(ctx), &away, name)
	}
}
