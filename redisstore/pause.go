package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Pause implements [throttle.Store]. While Redis is away it tries again as long
// as ctx allows.
func (s *Store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	if c.Node {
		return s.node().Pause(ctx, c, d)
	}
	_, _, err := s.pause(ctx, c, throttle.Refusal{Length: max(0, min(d, throttle.Farthest))})
	return err
}

// Resume implements [throttle.Store].
func (s *Store) Resume(ctx context.Context, c throttle.Charge) error {
	if c.Node {
		return s.node().Resume(ctx, c)
	}
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
	if isl := s.on(c.Budget.Group); isl != nil {
		isl.pause(c, d)
	}
	p, key, size := wire.Pause, s.key(&c.Budget), 5
	if flies(&c) {
		p, key, size = wire.SlotsPause, s.flightKey(&c.Budget), 3
	}
	asked := time.Now()
	v, err := s.retry(ctx, nil, func() (numbers, error) {
		return s.call(p, func(e edges) ([]string, numbers) {
			left, ago, passed := d, r.Ago, time.Since(asked) // Redis may have been away
			if d > 0 {
				left = max(0, d-passed)
			}
			if ago > 0 {
				ago = min(ago, throttle.Farthest) + passed
			}
			n := numbers(nil).add(micros(left), e.due(s), micros(ago), r.Start.Mark)
			return []string{key}, e.appendRule(n, 1, &c)
		}, s.pauseChannel(c.Budget.Group))
	})
	if err != nil {
		return 0, 0, err
	}
	if v.size() != size {
		return 0, 0, errAnswer
	}
	if d < 0 {
		s.shut.forget(key)
	}
	if v.at(2) == 1 {
		s.heardPause(key, closing{v.at(1), waitOf(v.at(1) - v.at(0))})
	}
	if size == 5 {
		from, to = thousandths(v.at(3)), thousandths(v.at(4))
	}
	return from, to, nil
}

// thousandths is a level as the scripts answer it.
func thousandths(n int64) float64 { return float64(n) / 1000 }

// pauseChannel is where all stores hear of pauses in a group.
func (s *Store) pauseChannel(group string) string { return s.channels(group) + "pause" }
