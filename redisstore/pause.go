package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Pause implements [throttle.Store].
func (s fleetStore) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	_, _, err := s.pause(ctx, c, throttle.Refusal{Length: max(0, min(d, throttle.Farthest))})
	return err
}

// Resume implements [throttle.Store].
func (s fleetStore) Resume(ctx context.Context, c throttle.Charge) error {
	_, _, err := s.pause(ctx, c, throttle.Refusal{Length: lift})
	return err
}

// lift, as the length of a pause, ends it.
const lift = -time.Microsecond

// pause closes or opens a budget, because of a refusal if that has an Ago, and returns
// its ceiling before and after that. Programs that listen are told by the script, our own
// callers at once.
func (s *Store) pause(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	d := r.Length
	key := s.rowKey(&c)
	asked := time.Now()
	reply, err := conn.Ask(ctx, s.conn, nil, func() wire.Request[wire.PauseReply] {
		q := wire.PauseRequest{
			Key: key, Charge: &c, Shared: s.sharedChannel(c.Budget.Group), Lift: d < 0, Ago: r.Ago, Start: r.Start.Mark,
		}
		passed := time.Since(asked) // Redis may have been away
		q.Length = max(0, d-passed)
		if q.Ago > 0 {
			q.Ago = min(q.Ago, throttle.Farthest) + passed
		}
		return q
	})
	if err != nil {
		return 0, 0, err
	}
	if d < 0 {
		s.shut.Forget(key)
	}
	if reply.Changed {
		s.paused(notify.Pause{Key: key, End: reply.End, Left: wire.Wait(reply.End - reply.Now)})
	}
	return reply.From, reply.To, nil
}

// rowKey returns the key of the row, or of the leases, of a charge's budget.
func (s *Store) rowKey(c *throttle.Charge) string {
	if wire.Holds(c) {
		return s.flightKey(&c.Budget)
	}
	return s.key(&c.Budget)
}
