package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Pause implements [throttle.Store]. While Redis is away it tries again as long
// as ctx allows.
func (s *Store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	if c.Node {
		return s.node().Pause(ctx, c, d)
	}
	return s.pause(ctx, c, max(0, min(d, throttle.Farthest)))
}

// Resume implements [throttle.Store].
func (s *Store) Resume(ctx context.Context, c throttle.Charge) error {
	if c.Node {
		return s.node().Resume(ctx, c)
	}
	return s.pause(ctx, c, lift)
}

// lift, as the length of a pause, ends it.
const lift = -time.Microsecond

// pause closes or opens a budget. Who listens is told by the script, our own
// callers at once.
func (s *Store) pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	if isl := s.on(c.Budget.Group); isl != nil {
		isl.pause(c, d)
	}
	p, key := scriptPause, s.key(&c.Budget)
	if flies(&c) {
		p, key = scriptFlightPause, s.flightKey(&c.Budget)
	}
	asked := time.Now()
	v, err := s.retry(ctx, nil, func() (numbers, error) {
		return s.call(p, func(e edges) ([]string, numbers) {
			left, refused, passed := d, c.Refused, time.Since(asked) // Redis may have been away
			if d > 0 {
				left = max(0, d-passed)
			}
			if refused > 0 {
				refused = min(refused, throttle.Farthest) + passed
			}
			return []string{key}, e.appendRule(numbers(nil).add(micros(left), e.due(s), micros(max(0, refused))), 1, &c)
		}, s.pauseChannel(c.Budget.Group))
	})
	if err != nil {
		return err
	}
	if v.size() != 3 {
		return errAnswer
	}
	if d < 0 {
		s.shut.forget(key)
	}
	if v.at(2) == 1 {
		s.heardPause(key, closing{v.at(1), waitOf(v.at(1) - v.at(0))})
	}
	return nil
}

// pauseChannel is where all stores hear of pauses in a group.
func (s *Store) pauseChannel(group string) string { return s.channels(group) + "pause" }
