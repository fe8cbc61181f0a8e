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

// lostOnce is for how long one word about a budget is enough.
const lostOnce = time.Second

// sayLost tells the fleet that a budget was lost. The call takes as long as the
// client lets it.
func (s *Store) sayLost(group, key string) {
	if !s.mute && s.memory.lost(key) {
		// A word that gets lost does no more harm than none.
		go func() { _ = s.client.Publish(context.Background(), s.pauseChannel(group), lostMark+key).Err() }()
	}
}

// hearLost tells Redis what is remembered of a budget that somebody sleeps for. Nobody
// finds out that an unlimited one was lost, so who waits for the end of its penalty tells
// of that whatever was lost.
func (s *Store) hearLost(key string) {
	s.queues.callAll(s, func(q *queue) bool { return q.key == key || isFree(&q.charge) })
	if all := s.vigils.charges(key); len(all) > 0 && s.memory.lost(key) {
		s.join(stating(all...))
	}
}

// charges returns those of a start that somebody watches, which needs the budget with that
// key.
func (vs *vigils) charges(key string) []throttle.Charge {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for v := range vs.all[key] {
		return slices.DeleteFunc(slices.Clone(v.b.Charges), func(c throttle.Charge) bool { return flies(&c) })
	}
	return nil
}

// lost notes that a budget was lost, and reports whether that is news.
func (m *memory) lost(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, r := time.Now(), m.budgets[key]
	if r == nil || now.Sub(r.lost) < lostOnce {
		return false
	}
	r.lost = now
	return true
}
