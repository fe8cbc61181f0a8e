package redisstore

import (
	"context"
	"math"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Status implements [throttle.Store].
func (s fleetStore) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	st := throttle.Status{Limit: c.Limit}
	p, key := wire.StatusScript, s.key(&c.Budget)
	if flies(&c) {
		p, key = wire.SlotsStatusScript, s.flightKey(&c.Budget)
	}
	var v wire.Frame
	err := s.conn.Retry(ctx, nil, func() (err error) {
		v, err = s.conn.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
			return wire.Call{Script: p, Keys: []string{key}, Frame: b.AppendRule(nil, 1, &c)}
		})
		return err
	})
	if err != nil {
		return st, err
	}
	if v.Size() != 7 && v.Size() != 6 {
		return st, wire.ErrReply
	}
	st.Used, st.Waiting = int(v.At(1)), int(v.At(2))
	st.Wait = wire.Wait(v.At(3))
	st.Paused = wire.Wait(v.At(4))
	st.Repeated = int(min(max(0, v.At(5)), math.MaxInt32))
	if v.Size() == 7 { // not of what is in flight
		st.Ceiling = thousandths(v.At(6))
	}
	return st, nil
}
