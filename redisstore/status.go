package redisstore

import (
	"context"
	"math"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Status implements [throttle.Store].
func (s fleetStore) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	if isl := s.on(c.Budget.Group); isl != nil {
		if st, ok := isl.status(ctx, c); ok {
			return st, nil
		}
	}
	st := throttle.Status{Limit: c.Limit}
	p, key := wire.Status, s.key(&c.Budget)
	if flies(&c) {
		p, key = wire.FlightStatus, s.flightKey(&c.Budget)
	}
	v, err := s.retry(ctx, nil, func() (numbers, error) {
		return s.call(p, func(e edges) ([]string, numbers) {
			return []string{key}, e.appendRule(nil, 1, &c)
		})
	})
	if err != nil {
		return st, err
	}
	if v.size() != 7 && v.size() != 6 {
		return st, errAnswer
	}
	st.Used, st.Waiting = int(v.at(1)), int(v.at(2))
	st.Wait = waitOf(v.at(3))
	st.Paused = waitOf(v.at(4))
	st.Repeated = int(min(max(0, v.at(5)), math.MaxInt32))
	if v.size() == 7 { // not of what is in flight
		st.Ceiling = thousandths(v.at(6))
	}
	return st, nil
}
