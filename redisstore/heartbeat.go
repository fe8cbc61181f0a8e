package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Heartbeat implements [fallback.Primary]; see lua/heartbeat.lua.
func (s fleetStore) Heartbeat(ctx context.Context, group string, h fallback.Heartbeat) (fallback.Reply, error) {
	r, err := conn.AskOnce(ctx, s.conn, func() wire.Request[wire.PresenceReply] {
		return wire.PresenceRequest{
			Key: s.heartbeatKey(group), Node: s.id, What: int64(h.Kind), Due: h.Due, Divisor: h.Divisor, Nodes: h.Nodes,
		}
	})
	return fallback.Reply{Now: r.Now, Counts: r.Counts, Divisor: r.Divisor, Nodes: r.Nodes, Suspected: r.Silent}, err
}

// heartbeatKey returns the key under which Redis remembers which nodes use a group. It
// ends unlike any other.
func (s *Store) heartbeatKey(group string) string {
	return s.prefix + s.tag(group) + "nodes:" + plain.Replace(group) + ":presence"
}

// Key implements [fallback.Primary].
func (s fleetStore) Key(c *throttle.Charge) string { return s.key(&c.Budget) }

// Keep implements [fallback.Primary].
func (s fleetStore) Keep(c *throttle.Charge) time.Duration { return keep(c) }

// Report implements [fallback.Primary].
func (s fleetStore) Report(ctx context.Context, charges []throttle.Charge) error {
	told := make(map[string]*caller)
	for _, charge := range charges {
		if key := s.key(&charge.Budget); s.history.HasUnreported(key, time.Now()) {
			c := stating(charge)
			c.joined = time.Now()
			told[key] = c
			s.lanes.join(c)
		}
	}
	for key, c := range told {
		if !conn.Await(ctx, c.done, nil, nil, nil) {
			return context.Cause(ctx)
		}
		if c.err != nil {
			return c.err
		}
		s.history.MarkReported(key)
	}
	return nil
}

// InLine implements [fallback.Primary].
func (s fleetStore) InLine(group string) bool {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	for _, q := range s.queues.all {
		if q.group == group {
			return true
		}
	}
	return false
}

// WakeLine implements [fallback.Primary].
func (s fleetStore) WakeLine(group string) {
	s.queues.callAll(s.Store, func(q *queue) bool { return q.group == group })
}
