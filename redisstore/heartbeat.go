package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Heartbeat implements [fallback.Primary]; see lua/heartbeat.lua.
func (p *primary) Heartbeat(ctx context.Context, group string, h fallback.Heartbeat) (fallback.Reply, error) {
	return conn.AskOnce(ctx, p.conn, func() wire.Request[fallback.Reply] {
		return wire.HeartbeatRequest{Key: p.names.Heartbeats(group), Node: p.names.Node, Heartbeat: h}
	})
}

// Key implements [fallback.Primary].
func (p *primary) Key(c *store.Charge) string { return p.names.Row(&c.Budget) }

// Keep implements [fallback.Primary].
func (p *primary) Keep(c *store.Charge) time.Duration { return commit.Keep(c) }

// reportMost bounds how many budgets one call reports.
const reportMost = 80

// Report implements [fallback.Primary].
func (p *primary) Report(ctx context.Context, charges []store.Charge) error {
	unreported := slices.DeleteFunc(slices.Clone(charges), func(c store.Charge) bool {
		return !p.history.HasUnreported(p.names.Row(&c.Budget), time.Now())
	})
	for some := range slices.Chunk(unreported, reportMost) {
		if err := p.commit.Do(ctx, commit.NewReport(some...), store.AnyWait); err != nil {
			return err
		}
		for i := range some {
			p.history.MarkReported(p.names.Row(&some[i].Budget))
		}
	}
	return nil
}

// InLine implements [fallback.Primary].
func (p *primary) InLine(group string) bool { return p.line.Waiting(group) }

// WakeLine implements [fallback.Primary].
func (p *primary) WakeLine(group string) { p.line.Wake(group) }
