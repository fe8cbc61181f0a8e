// Package notify keeps a node's subscription: messages of the scripts and of the fleet reach the node while one of
// its callers waits. A subscription knows since when it has surely received all messages, because it publishes
// beats to itself, and receives them.
package notify

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
)

// A Conn is the way to Redis.
type Conn interface {
	Publish(ctx context.Context, channel, message string) error

	// Subscribe returns nil where there is nobody to listen to.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Channels are the two channels that a subscription listens to.
type Channels struct {
	Own    string // this node's
	Shared string // the channel of all nodes
}

// ChannelsOf returns the channels of a node.
func ChannelsOf(n *names.Space) Channels {
	return Channels{n.Own(), n.Shared()}
}

// Subscriptions are the subscriptions of a node: a single one while a caller waits, and for a little longer.
type Subscriptions struct {
	// Listen keeps a subscription until ctx ends. Tests in virtual time replace it.
	Listen func(ctx context.Context, sub *Subscription)

	conn     Conn
	channels func() Channels
	receive  func(Message)

	mu  sync.Mutex
	sub *Subscription // nil while nobody waits
}

// A Subscription is one connection that listens, or tries to.
type Subscription struct {
	Channels
	owner *Subscriptions

	// The lock of the owner guards the rest.
	users     int
	idle      *time.Timer
	stop      context.CancelFunc
	heartbeat heartbeat
}

// linger is for how long a subscription stays without users: the next one often comes
// soon.
const linger = 500 * time.Millisecond

// New returns the subscriptions of a node, which pass messages on to receive.
func New(conn Conn, channels func() Channels, receive func(Message)) *Subscriptions {
	s := &Subscriptions{conn: conn, channels: channels, receive: receive}
	s.Listen = s.listen
	return s
}

// Retain adds a user of the subscription, which begins with the first user.
func (s *Subscriptions) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The first user begins the subscription.
	if s.sub == nil {
		var ctx context.Context
		s.sub = &Subscription{Channels: s.channels(), owner: s}
		ctx, s.sub.stop = context.WithCancel(context.Background())
		go s.Listen(ctx, s.sub)
	}
	s.sub.users++
}

// Release removes a user. The subscription ends soon after the last user.
func (s *Subscriptions) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.sub
	sub.users--
	switch {
	case sub.users > 0:
	case sub.idle != nil:
		sub.idle.Reset(linger)

	// The next user often comes soon, so the subscription lingers.
	default:
		sub.idle = time.AfterFunc(linger, func() { s.end(sub) })
	}
}

// end ends a subscription that has no users. A timer that is set anew while end waits for the lock calls end
// twice: then the subscription has ended before, and there may be a new one.
func (s *Subscriptions) end(sub *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.users == 0 && s.sub == sub {
		s.sub = nil
		sub.stop()
	}
}

// Active reports whether there is a subscription.
func (s *Subscriptions) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sub != nil
}

// A heartbeat says since when a subscription has received all messages: the beats that the subscription publishes
// take the way of all messages. A connection that is up proves nothing. It may be half open, or lead to a server
// that has ceased to be master.
type heartbeat struct {
	subscribed    time.Time // when the server had confirmed the shared channel; the zero time before that
	completeFrom  time.Time // no message since then was lost; the zero time if that is not known
	completeUntil time.Time // and before then
	sent          time.Time // when the last beat was
	sending       bool      // and it is still on its way to the server
}

const (
	beatEvery = time.Second
	minQuiet  = 50 * time.Millisecond
	validFor  = 2 * beatEvery // for how long after the last beat a subscription is believed to be complete
)

// origin is the time from which the times of beats count.
var origin = time.Now()

// CompleteSince reports whether the node has surely received all that was published since a time, except what
// is on its way.
func (s *Subscriptions) CompleteSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sub == nil {
		return false
	}

	// Beats have come back since before that time, and the last one a short time ago.
	h := &s.sub.heartbeat
	return !h.completeFrom.IsZero() && !h.completeFrom.After(t) && time.Since(h.completeUntil) < validFor
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
	if h.completeFrom.IsZero() {
		h.completeFrom = sent
	}
	h.completeUntil = sent
}

// listenTime returns how long to listen before it is time for the next beat.
func (sub *Subscription) listenTime() time.Duration {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h := &sub.heartbeat
	if h.subscribed.IsZero() || h.sending {
		return silence
	}
	return min(silence, max(minQuiet, beatEvery-time.Since(h.sent)))
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

	// Only one beat is on its way at a time: a slow server is not given more of them.
	h.sent, h.sending = now, true
	go func() {
		// Whether it worked shows when the beat comes back.
		_ = sub.owner.conn.Publish(ctx, sub.Own, beat(now.Sub(origin)).String())
		sub.owner.mu.Lock()
		defer sub.owner.mu.Unlock()
		sub.heartbeat.sending = false
	}()
}

// silence is after what time without a message a connection is tried.
const silence = time.Second

// listen connects again and again until ctx ends.
func (s *Subscriptions) listen(ctx context.Context, sub *Subscription) {
	for pauses := (conn.Backoff{}); ctx.Err() == nil; pauses.Wait(ctx, nil) {
		c := s.conn.Subscribe(ctx, sub.Own, sub.Shared)
		if c == nil {
			continue
		}

		// A read that waits ends only when the connection is closed.
		stop := context.AfterFunc(ctx, func() { c.Close() })
		if sub.readLoop(ctx, c) {
			pauses = conn.Backoff{}
		}

		sub.disconnected()
		stop()
		c.Close()
	}
}

// readLoop reads one connection until it fails, and reports whether it ever worked.
// After a silence it sends a beat, and then asks for any answer.
func (sub *Subscription) readLoop(ctx context.Context, c *redis.PubSub) (worked bool) {
	for silences := 0; ; {
		m, err := c.ReceiveTimeout(ctx, sub.listenTime())
		switch {
		case err == nil:
			worked, silences = true, 0
			sub.Deliver(m)
		// After a silence, any answer to a ping shows that the connection is alive.
		case !timedOut(err) || silences > 1 || silences == 1 && c.Ping(ctx) != nil:
			return worked
		default:
			silences++
		}

		sub.beat(ctx)
	}
}

// Deliver takes what came on a connection, as the client knows it.
func (sub *Subscription) Deliver(m any) {
	var known Message
	switch m := m.(type) {
	// Only the shared channel brings pauses, so the connection is complete from its confirmation on.
	case *redis.Subscription:
		if m.Channel == sub.Shared {
			sub.connected()
		}
		known = Subscribed{m.Channel}

	case *redis.Message:
		if m.Channel == sub.Shared {
			known = parseShared(m.Payload)
		} else {
			known = parseOwn(m.Payload)
		}
	}

	// Beats are for the subscription itself, and all other messages for the node.
	if b, ok := known.(beat); ok {
		sub.received(b)
	} else if known != nil {
		sub.owner.receive(known)
	}
}

// timedOut reports whether nothing came, though the connection may be fine.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
