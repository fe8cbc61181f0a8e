package notify

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// silence is after what time without a message a connection is tried.
const silence = time.Second

// listen connects again and again until ctx ends.
func (s *Subscriptions) listen(ctx context.Context, sub *Subscription) {
	for pauses := (conn.Backoff{}); ctx.Err() == nil; pauses.Wait(ctx, nil) {
		c := s.conn.Subscribe(ctx, sub.Own, sub.Shared)
		if c == nil {
			continue
		}
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
		m, err := c.ReceiveTimeout(ctx, sub.quiet())
		switch {
		case err == nil:
			worked, silences = true, 0
			sub.Deliver(m)
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
