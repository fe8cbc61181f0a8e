package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// receive takes in what the scripts and other nodes published.
func (f *fleet) receive(m notify.Message) {
	switch m := m.(type) {
	case notify.Subscribed:
		f.line.Subscribed(m.Channel)
	case notify.Pause:
		f.paused(m)
	case notify.Invalidation:
		f.watches.Invalidated(m)
	case notify.Turns:
		f.line.Turns(m)
	case notify.Slots:
		f.line.Granted(m)
	case notify.Loss:
		f.lost(m.Key)
	}
}

// paused takes in a pause, or the end of one.
func (f *fleet) paused(p notify.Pause) {
	if p.Lifted() {
		f.pauses.Forget(p.Key)
		f.shut.Forget(p.Key)
		f.line.Lifted(p.Key)
	} else {
		now := time.Now()
		end := now.Add(min(p.Left, throttle.MaxPenalty))
		f.pauses.Note(p.Key, end, now)
		f.line.Paused(p.Key, end)
	}
	f.watches.Paused(p)
	if tell := f.onPause.Load(); tell != nil {
		(*tell)()
	}
}

// A node whose callers all sleep makes no call, and what it booked last no other may
// know. When Redis loses a budget, the node that finds out announces it, and the others
// tell Redis at once what they remember; see docs/state-loss.md.

// announceLoss tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (f *fleet) announceLoss(group, key string) {
	if !f.noNotice && f.history.NoteLoss(key, time.Now()) {
		// An announcement that gets lost does no more harm than none.
		go func() {
			_ = f.conn.Publish(context.Background(), f.names.Shared(group), notify.Loss{Key: key}.String())
		}()
	}
}

// lost tells Redis what is remembered of a budget that callers sleep for.
func (f *fleet) lost(key string) {
	f.line.Lost(key)
	if all := f.watches.Charges(key); len(all) > 0 && f.history.NoteLoss(key, time.Now()) {
		f.commit.Post(commit.NewReport(all...))
	}
}
