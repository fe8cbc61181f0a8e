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

// origin is what the stamps of grants are counted from.
var origin = time.Now()

// stamp is the stamp of a grant whose booking was sent then.
func stamp(sent time.Time) int64 { return int64(sent.Sub(origin)) }

// A startWatch is the watch over a start in Redis.
type startWatch struct{ *watch.Watch }

// Stop implements [throttle.Watch].
func (w startWatch) Stop() { w.Watch.Stop() }

// Watch implements [throttle.Store].
func (p *primary) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	sent := origin.Add(time.Duration(g.Handle.Stamp))
	start := watch.Start{
		Channels: notify.ChannelsOf(p.names, b.Charges[0].Budget.Group), At: g.Handle.Start,
		Sent: sent, Due: sent.Add(g.Age + g.Wait), Doubt: g.Age,
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if !wire.Holds(c) {
			start.Charges = append(start.Charges, *c)
		}
		if !c.Shadow {
			start.Keys = append(start.Keys, p.names.Of(c))
		}
	}
	return startWatch{p.watches.Add(start, news)}
}

// askPauses asks Redis once for the pauses of some budgets.
func (p *primary) askPauses(ctx context.Context, keys []string) ([]notify.Pause, error) {
	ends, err := conn.AskOnce(ctx, p.conn, func() wire.Request[[]wire.PauseEnd] { return wire.PausesRequest{Keys: keys} })
	if err != nil {
		return nil, err
	}
	found := make([]notify.Pause, len(keys))
	for i, e := range ends {
		found[i] = notify.Pause{Key: keys[i], End: e.End, Left: e.Left}
	}
	return found, nil
}
