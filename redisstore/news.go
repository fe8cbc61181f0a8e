package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// receive takes in what the scripts and other nodes published.
func (s *Store) receive(m notify.Message) {
	switch m := m.(type) {
	case notify.Subscribed:
		s.subscribed(m.Channel)
	case notify.Pause:
		s.paused(m)
	case notify.Invalidation:
		s.watches.Invalidated(m)
	case notify.Turns:
		s.queues.heard(s, m.Key, lineNews{line: m.Line, cuts: m.Cuts, hurry: callNow})
	case notify.Slots:
		s.flights.called(m.Key, m.Arrivals)
	case notify.Loss:
		s.lost(m.Key)
	}
}

// paused takes in a pause, or the end of one.
func (s *Store) paused(p notify.Pause) {
	if p.Lifted() {
		s.pauses.Forget(p.Key)
		s.shut.Forget(p.Key)
		s.queues.ask(s, p.Key)
	} else {
		now := time.Now()
		end := now.Add(min(p.Left, throttle.MaxPenalty))
		s.pauses.Note(p.Key, end, now)
		s.queues.closed(s, p.Key, end)
	}
	s.watches.Paused(p)
}

// subscribed states the flights of all who wait for a call on the channel, because it
// may have come before anybody listened.
func (s *Store) subscribed(channel string) {
	s.flights.mu.Lock()
	var waiting []*flight
	for _, f := range s.flights.all {
		if len(f.line) > 0 && s.channels(f.budget.Group).Own == channel {
			waiting = append(waiting, f)
		}
	}
	s.flights.mu.Unlock()
	for _, f := range waiting {
		s.due(f)
	}
}

// A node whose callers all sleep makes no call, and what it booked last no other may
// know. When Redis loses a budget, the node that finds out announces it, and the others
// tell Redis at once what they remember; see docs/state-loss.md.

// announceLoss tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (s *Store) announceLoss(group, key string) {
	if !s.mute && s.history.NoteLoss(key, time.Now()) {
		// An announcement that gets lost does no more harm than none.
		go func() {
			_ = s.conn.Publish(context.Background(), s.sharedChannel(group), notify.Loss{Key: key}.String())
		}()
	}
}

// lost tells Redis what is remembered of a budget that callers sleep for. No node finds
// out that an unlimited one was lost, so waiters for the end of its penalty tell of that
// whatever was lost.
func (s *Store) lost(key string) {
	s.queues.callAll(s, func(q *queue) bool { return q.key == key || wire.Unlimited(&q.charge) })
	if all := s.watches.Charges(key); len(all) > 0 && s.history.NoteLoss(key, time.Now()) {
		s.lanes.join(stating(all...))
	}
}
