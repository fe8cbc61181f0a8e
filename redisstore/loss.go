package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A program whose callers all sleep makes no call, and what it booked last nobody
// else may know. When Redis loses a budget, whoever finds that out says so, and the
// others tell Redis at once what they remember; see docs/state-loss.md.

// lostMark begins a message on the channel of pauses, before the key of the budget.
const lostMark = "lost "

// announceLoss tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (s *Store) announceLoss(group, key string) {
	if !s.mute && s.history.NoteLoss(key, time.Now()) {
		// A word that gets lost does no more harm than none.
		go func() { _ = s.conn.Publish(context.Background(), s.pauseChannel(group), lostMark+key) }()
	}
}

// hearLost tells Redis what is remembered of a budget that somebody sleeps for. Nobody
// finds out that an unlimited one was lost, so who waits for the end of its penalty tells
// of that whatever was lost.
func (s *Store) hearLost(key string) {
	s.queues.callAll(s, func(q *queue) bool { return q.key == key || isFree(&q.charge) })
	if all := s.vigils.charges(key); len(all) > 0 && s.history.NoteLoss(key, time.Now()) {
		s.join(stating(all...))
	}
}

// charges returns those of a start that somebody watches, which needs the budget with that
// key.
func (vs *vigils) charges(key string) []throttle.Charge {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for v := range vs.all[key] {
		return slices.DeleteFunc(slices.Clone(v.b.Charges), func(c throttle.Charge) bool { return c.Node || flies(&c) })
	}
	return nil
}
