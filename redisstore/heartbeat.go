package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Heartbeat implements [fallback.Primary]; see lua/heartbeat.lua.
func (f *fleet) Heartbeat(ctx context.Context, group string, h fallback.Heartbeat) (fallback.Reply, error) {
	return conn.AskOnce(ctx, f.conn, func() wire.Request[fallback.Reply] {
		return wire.HeartbeatRequest{Key: f.names.Heartbeats(group), Node: f.names.Node, Heartbeat: h}
	})
}

// Key implements [fallback.Primary].
func (f *fleet) Key(c *throttle.Charge) string { return f.names.Row(&c.Budget) }

// Keep implements [fallback.Primary].
func (f *fleet) Keep(c *throttle.Charge) time.Duration { return commit.Keep(c) }

// reportMost bounds how many budgets one call reports.
const reportMost = 80

// Report implements [fallback.Primary].
func (f *fleet) Report(ctx context.Context, charges []throttle.Charge) error {
	unreported := slices.DeleteFunc(slices.Clone(charges), func(c throttle.Charge) bool {
		return !f.history.HasUnreported(f.names.Row(&c.Budget), time.Now())
	})
	for some := range slices.Chunk(unreported, reportMost) {
		if err := f.commit.Do(ctx, commit.NewReport(some...), -1); err != nil {
			return err
		}
		for i := range some {
			f.history.MarkReported(f.names.Row(&some[i].Budget))
		}
	}
	return nil
}

// InLine implements [fallback.Primary].
func (f *fleet) InLine(group string) bool { return f.line.Waiting(group) }

// WakeLine implements [fallback.Primary].
func (f *fleet) WakeLine(group string) { f.line.Wake(group) }
