package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// origin is what the stamps of grants are counted from.
var origin = time.Now()

// stamp returns the Stamp of the handle of a grant whose booking was sent at sent, for Watch.
func stamp(sent time.Time) int64 { return int64(sent.Sub(origin)) }

// A startWatch is the watch over a start in Redis.
type startWatch struct{ *watch.Watch }

// Stop implements [store.Watch].
func (w startWatch) Stop() { w.Watch.Stop() }

// Watch implements [store.Store].
func (p *primary) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	sent := origin.Add(time.Duration(g.Handle.Stamp))
	start := watch.Start{
		Channels: notify.ChannelsOf(p.names), At: g.Handle.Start,
		Sent: sent, Due: sent.Add(g.Age + g.Wait), Doubt: g.Age,
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if !wire.ForSlots(c) {
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

// receive takes in what the scripts and other nodes published.
func (p *primary) receive(m notify.Message) {
	switch m := m.(type) {
	case notify.Subscribed:
		p.line.Subscribed(m.Channel)
	case notify.Pause:
		p.paused(m)
	case notify.Invalidation:
		p.watches.Invalidated(m)
	case notify.Turns:
		p.line.Turns(m)
	case notify.Slots:
		p.line.Granted(m)
	case notify.Loss:
		p.lost(m.Key)
	}
}

// paused takes in a pause, or the end of one.
func (p *primary) paused(m notify.Pause) {
	if m.Lifted() {
		p.pauses.Forget(m.Key)
		p.shut.Forget(m.Key)
		p.line.Lifted(m.Key)
	} else {
		now := time.Now()
		end := now.Add(min(m.Left, store.MaxPenalty))
		p.pauses.Note(m.Key, end, now)
		p.line.Paused(m.Key, end)
	}
	p.watches.Paused(m)
	if tell := p.onPause.Load(); tell != nil {
		(*tell)()
	}
}

// A node whose callers all sleep makes no call, and no other node may know what it booked last.
// So when Redis loses a budget, the node that finds out announces it, and the other nodes tell
// Redis at once what they remember; see docs/internals/state-loss.md.

// announceLoss tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (p *primary) announceLoss(key string) {
	if !p.noNotice && p.history.NoteLoss(key, time.Now()) {
		// An announcement that gets lost does no more harm than none.
		go func() {
			_ = p.conn.Publish(context.Background(), p.names.Shared(), notify.Loss{Key: key}.String())
		}()
	}
}

// lost takes in that Redis lost a budget. If callers of this node wait for starts under it, the
// node tells Redis what it remembers of the budget.
func (p *primary) lost(key string) {
	p.line.Lost(key)
	if all := p.watches.Charges(key); len(all) > 0 && p.history.NoteLoss(key, time.Now()) {
		p.commit.Post(commit.NewReport(all...))
	}
}
