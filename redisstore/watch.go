package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// born is what the stamps of grants are counted from.
var born = time.Now()

// A startWatch is the watch over a start in Redis.
type startWatch struct{ *watch.Watch }

// Stop implements [throttle.Watch].
func (w startWatch) Stop() { w.Watch.Stop() }

// Watch implements [throttle.Store].
func (s fleetStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	sent := born.Add(time.Duration(g.Stamp))
	start := watch.Start{
		Channels: s.channels(b.Charges[0].Budget.Group), Mark: g.Mark,
		Sent: sent, Due: sent.Add(g.Age + g.Wait), Doubt: g.Age,
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		key := s.key
		if wire.Holds(c) {
			key = s.flightKey
		} else {
			start.Charges = append(start.Charges, *c)
		}
		if !c.Shadow {
			start.Keys = append(start.Keys, key(&c.Budget))
		}
	}
	return startWatch{s.watches.Add(start, news)}
}

// askPauses asks Redis once for the pauses of some budgets.
func (s *Store) askPauses(ctx context.Context, keys []string) ([]notify.Pause, error) {
	ends, err := conn.AskOnce(ctx, s.conn, func() wire.Request[[]wire.PauseEnd] { return wire.PausesRequest{Keys: keys} })
	if err != nil {
		return nil, err
	}
	found := make([]notify.Pause, len(keys))
	for i, e := range ends {
		found[i] = notify.Pause{Key: keys[i], End: e.End, Left: e.Left}
	}
	return found, nil
}
