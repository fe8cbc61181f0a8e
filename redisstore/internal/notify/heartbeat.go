package notify

import (
	"context"
	"time"
)

// A heartbeat says since when a subscription has received all that was published: it
// receives what it publishes itself, by the way that all messages take. A connection
// that is up proves nothing. It may be half open, or lead to a server that is master no
// more.
type heartbeat struct {
	subscribed time.Time // when the server had confirmed the shared channel; zero: not yet
	since      time.Time // of all that was published since then nothing was lost; zero: of nothing
	until      time.Time // and before then
	sent       time.Time // when the last beat was
	sending    bool      // and it is still on its way to the server
}

const (
	beatEvery  = time.Second
	leastQuiet = 50 * time.Millisecond
	validFor   = 2 * beatEvery // for how long after the last beat a subscription is believed to be complete
)

// origin is what the times of beats are counted from.
var origin = time.Now()

// CompleteSince reports whether the subscription with that own channel has surely
// received all that was published since a time, but for what is on its way.
func (s *Subscriptions) CompleteSince(own string, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.all[own]
	if sub == nil {
		return false
	}
	h := &sub.heartbeat
	return !h.since.IsZero() && !h.since.After(t) && time.Since(h.until) < validFor
}

// connected notes that the shared channel is confirmed.
func (sub *Subscription) connected() {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	sub.heartbeat = heartbeat{subscribed: time.Now(), sending: sub.heartbeat.sending}
}

// disconnected notes that the connection is gone.
func (sub *Subscription) disconnected() {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	sub.heartbeat = heartbeat{sending: sub.heartbeat.sending}
}

// received notes that a beat came back.
func (sub *Subscription) received(b beat) {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h, sent := &sub.heartbeat, origin.Add(time.Duration(b))
	if h.subscribed.IsZero() || sent.Before(h.subscribed) {
		return // it was sent before the connection could receive all
	}
	if h.since.IsZero() {
		h.since = sent
	}
	h.until = sent
}

// quiet returns how long to listen before it is time for the next beat.
func (sub *Subscription) quiet() time.Duration {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h := &sub.heartbeat
	if h.subscribed.IsZero() || h.sending {
		return silence
	}
	return min(silence, max(leastQuiet, beatEvery-time.Since(h.sent)))
}

// beat publishes a beat, if it is time to. The call takes as long as the client lets
// it, so it has a goroutine of its own.
func (sub *Subscription) beat(ctx context.Context) {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h, now := &sub.heartbeat, time.Now()
	if h.subscribed.IsZero() || h.sending || now.Sub(h.sent) < beatEvery {
		return
	}
	h.sent, h.sending = now, true
	go func() {
		// Whether it worked shows when the beat comes back.
		_ = sub.owner.conn.Publish(ctx, sub.Own, beat(now.Sub(origin)).String())
		sub.owner.mu.Lock()
		defer sub.owner.mu.Unlock()
		sub.heartbeat.sending = false
	}()
}
