package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// insist makes a call until it is known what became of it, or nobody wants to
// know; then it returns false. A call that is made again has the same number, by
// which Redis knows whether it was done already.
func (s *Store) insist(l *lane, b *batch) bool {
	b.flights = s.takeFloors(b.callers)
	answered, left := false, false
	defer func() { s.leaveFloors(b.flights, answered) }()
	var got []outcome
	var sent time.Time
	err := conn.Retry(context.Background(), l.left, func(err error) bool {
		left = !s.lanes.failed(l, b, err)
		return !left
	}, func() (err error) {
		if !sent.IsZero() {
			b.age(time.Since(sent))
		}
		sent = time.Now()
		if b.sent.IsZero() {
			b.sent = sent
		}
		if len(b.flights) > 0 && sent.Sub(b.sent) > leaseTime-leaseDoubt {
			// What it took in flight is gone, whatever the record says.
			b.number, b.sent = s.lanes.number(), sent
		}
		got, err = s.callBook(b)
		return err
	})
	switch {
	case left:
		return false
	case err != nil && len(b.callers) > 1 && conn.Unexecuted(err):
		s.lanes.singly(l, b)
	default:
		answered = err == nil
		s.deliver(l, b, got, sent, err)
		s.flights.learn(b, err)
	}
	return true
}

// callBook makes the call once.
func (s *Store) callBook(b *batch) ([]outcome, error) {
	var call *wire.BookCall
	sent, again := time.Now(), false
	f, err := s.conn.Call(context.Background(), func(e wire.Boundaries, shut []wire.Gate) wire.Call {
		s.hearShut(shut)
		s.sort(b, again, shut)
		again = true
		call = s.request(b).Write(e, budgets{s})
		return call.Call
	})
	if err != nil {
		return nil, err
	}
	reply, err := call.Read(f)
	if err != nil {
		return nil, err
	}
	return s.observe(b, &reply, sent, time.Now()), nil
}

// age takes what has passed off the patience of those who wait.
func (b *batch) age(passed time.Duration) {
	less := func(wait *int64) {
		if *wait > 0 {
			*wait = max(0, *wait-wire.Micros(passed))
		}
	}
	for _, c := range b.callers {
		less(&c.MaxWait)
	}
	for i := range b.runs {
		less(&b.runs[i].maxWait)
	}
}
