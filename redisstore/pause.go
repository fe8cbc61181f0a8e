package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
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
	p, key, size := wire.PauseScript, s.key(&c.Budget), 5
	if flies(&c) {
		p, key, size = wire.SlotsPauseScript, s.flightKey(&c.Budget), 3
	}
	asked := time.Now()
	var v wire.Frame
	err = s.conn.Retry(ctx, nil, func() (err error) {
		v, err = s.conn.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
			left, ago, passed := d, r.Ago, time.Since(asked) // Redis may have been away
			if d > 0 {
				left = max(0, d-passed)
			}
			if ago > 0 {
				ago = min(ago, throttle.Farthest) + passed
			}
			n := wire.Frame(nil).Add(wire.Micros(left), b.Due(), wire.Micros(ago), r.Start.Mark)
			return wire.Call{Script: p, Keys: []string{key}, Frame: b.AppendRule(n, 1, &c), More: []any{s.sharedChannel(c.Budget.Group)}}
		})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if v.Size() != size {
		return 0, 0, wire.ErrReply
	}
	if d < 0 {
		s.shut.Forget(key)
	}
	if v.At(2) == 1 {
		s.paused(notify.Pause{Key: key, End: v.At(1), Left: wire.Wait(v.At(1) - v.At(0))})
	}
	if size == 5 {
		from, to = thousandths(v.At(3)), thousandths(v.At(4))
	}
	return from, to, nil
}

// thousandths is a level as the scripts answer it.
func thousandths(n int64) float64 { return float64(n) / 1000 }
