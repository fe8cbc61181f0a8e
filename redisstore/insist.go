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
func (l *lanes) insist(own *lane, b *batch) bool {
	l.up.begin(b)
	answered, left := false, false
	defer func() { l.up.end(b, answered) }()
	var got []outcome
	var sent time.Time
	err := conn.Retry(context.Background(), own.left, func(err error) bool {
		left = !l.failed(own, b, err)
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
			b.number, b.sent = l.number(), sent
		}
		got, err = l.up.call(b)
		return err
	})
	switch {
	case left:
		return false
	case err != nil && len(b.callers) > 1 && conn.Unexecuted(err):
		l.singly(own, b)
	default:
		answered = err == nil
		l.deliver(own, b, got, sent, err)
	}
	return true
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
