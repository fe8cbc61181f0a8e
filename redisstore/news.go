package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

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
		end := now.Add(min(m.Left, throttle.MaxPenalty))
		p.pauses.Note(m.Key, end, now)
		p.line.Paused(m.Key, end)
	}
	p.watches.Paused(m)
	if tell := p.onPause.Load(); tell != nil {
		(*tell)()
	}
}

// A node whose callers all sleep makes no call, and what it booked last no other may
// know. When Redis loses a budget, the node that finds out announces it, and the others
// tell Redis at once what they remember; see docs/state-loss.md.

// announceLoss tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (p *primary) announceLoss(group, key string) {
	if !p.noNotice && p.history.NoteLoss(key, time.Now()) {
		// An announcement that gets lost does no more harm than none.
		go func() {
			_ = p.conn.Publish(context.Background(), p.names.Shared(group), notify.Loss{Key: key}.String())
		}()
	}
}

// lost tells Redis what is remembered of a budget that callers sleep for.
func (p *primary) lost(key string) {
	p.line.Lost(key)
	if all := p.watches.Charges(key); len(all) > 0 && p.history.NoteLoss(key, time.Now()) {
		p.commit.Post(commit.NewReport(all...))
	}
}
