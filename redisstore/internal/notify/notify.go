// Package notify brings a node the news of Redis while one of its callers waits, and finds out whether booked starts have
// become void: because a budget was paused, because a pause was lifted so that there may be an earlier start, or because
// the upstream has less left than was known. Messages of the scripts and of the fleet tell the node so. A subscription
// knows since when it has surely received all messages, because it publishes beats to itself, and receives them. Where
// it cannot be sure, the node asks Redis before the start. See docs/internals/bans.md.
//
// This file has the subscription and the messages, and watches.go the watches over booked starts.
package notify

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
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
func ChannelsOf(n *wire.Space) Channels {
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
	sub *Subscription // nil if there is none
}

// A Subscription is one connection that listens to both channels, or the attempts to make one.
type Subscription struct {
	Channels
	owner *Subscriptions

	// The lock of the owner guards the rest.
	users     int
	idle      *time.Timer // ends the subscription if it has no users. It is nil until the subscription was without users.
	stop      context.CancelFunc
	heartbeat heartbeat
}

// linger is for how long a subscription stays without users: the next user often comes
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

	if s.sub == nil {
		var ctx context.Context
		s.sub = &Subscription{Channels: s.channels(), owner: s}
		ctx, s.sub.stop = context.WithCancel(context.Background())
		go s.Listen(ctx, s.sub)
	}
	s.sub.users++
}

// Release removes a user. When the last user is removed, the subscription stays for the time linger, and ends unless it has
// a user again by then.
func (s *Subscriptions) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.sub
	sub.users--
	switch {
	case sub.users > 0:
	case sub.idle != nil:
		sub.idle.Reset(linger)
	default:
		sub.idle = time.AfterFunc(linger, func() { s.end(sub) })
	}
}

// end ends a subscription, unless it has users. If the timer was set anew while end waited for the lock, end is
// called twice. The second call finds no subscription, or a new one, and does nothing.
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
//
// No message from completeFrom until completeUntil was lost.
type heartbeat struct {
	subscribed    time.Time // when the server had confirmed the shared channel; the zero time before that
	completeFrom  time.Time // when the first beat that came back was sent; the zero time before that
	completeUntil time.Time // when the last beat that came back was sent
	sent          time.Time // when the last beat was sent
	sending       bool      // the last beat is still on its way to the server
}

const (
	beatEvery = time.Second
	minQuiet  = 50 * time.Millisecond // how long a subscription listens at least before it looks whether a beat is due
	validFor  = 2 * beatEvery         // for how long after the last beat a subscription is believed to be complete
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

	// A beat from t or before has come back, and so has a beat from a short time ago.
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

	// A beat that was sent before the server confirmed the subscription proves nothing.
	if h.subscribed.IsZero() || sent.Before(h.subscribed) {
		return
	}

	if h.completeFrom.IsZero() {
		h.completeFrom = sent
	}
	h.completeUntil = sent
}

// listenTime returns how long to listen before it is time for the next beat, at most silence. Before the server has
// confirmed the subscription, and while a beat is on its way, no beat is due.
func (sub *Subscription) listenTime() time.Duration {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h := &sub.heartbeat
	if h.subscribed.IsZero() || h.sending {
		return silence
	}
	return min(silence, max(minQuiet, beatEvery-time.Since(h.sent)))
}

// beat publishes a beat, if the last beat is beatEvery old and has reached the server. The call takes as long as the
// client lets it, so it has a goroutine of its own.
func (sub *Subscription) beat(ctx context.Context) {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()

	// Before the server has confirmed the subscription, the beat would be lost.
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

// silence is how long a connection may bring nothing before it is tested.
const silence = time.Second

// listen connects again and again until ctx ends, with pauses that grow until a connection has worked.
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

// readLoop reads one connection until it fails, and reports whether the connection ever brought a message. In between it
// sends the beats that are due. After the second listenTime in a row without a message readLoop sends a ping, and after
// the third the connection has failed.
func (sub *Subscription) readLoop(ctx context.Context, c *redis.PubSub) (worked bool) {
	for silences := 0; ; {
		m, err := c.ReceiveTimeout(ctx, sub.listenTime())
		switch {
		case err == nil:
			worked, silences = true, 0
			sub.Deliver(m)
		case !timedOut(err) || silences == 2:
			return worked
		default:
			silences++
		}

		// The answer to the ping is received like any message.
		if silences == 2 {
			if err := c.Ping(ctx); err != nil {
				return worked
			}
		}

		sub.beat(ctx)
	}
}

// Deliver hands a message that the client has received to the subscription itself or to the node. It drops what makes no
// sense.
func (sub *Subscription) Deliver(m any) {
	var parsed Message
	switch m := m.(type) {
	// Only the shared channel brings pauses, so the connection is complete once that channel is confirmed.
	case *redis.Subscription:
		if m.Channel == sub.Shared {
			sub.connected()
		}
		parsed = Subscribed{m.Channel}

	case *redis.Message:
		if m.Channel == sub.Shared {
			parsed = parseShared(m.Payload)
		} else {
			parsed = parseOwn(m.Payload)
		}
	}

	// Beats are for the subscription itself, and all other messages for the node.
	if b, ok := parsed.(beat); ok {
		sub.received(b)
	} else if parsed != nil {
		sub.owner.receive(parsed)
	}
}

// timedOut reports whether an error only says that nothing came in time: the connection may be fine.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A Message is one of the types below. The scripts publish most of them; nodes publish a Loss and their own beats.
type Message any

// Subscribed says that messages on a channel are received from now on. Earlier messages
// may be lost.
type Subscribed struct{ Channel string }

// A Pause says until when a budget is paused, of lua/age.lua.
type Pause struct {
	Key  string
	End  int64         // by the server's clock, in microseconds, or 0 if the pause was lifted
	Left time.Duration // until the end
}

// Lifted reports whether the pause was lifted.
func (p Pause) Lifted() bool { return p.End == 0 }

// An Invalidation says that the starts of a budget between two times of the server's clock are void: at or after
// From, and before Until. lua/reconcile.lua publishes it.
type Invalidation struct {
	Key         string
	From, Until int64
}

// Turns says whose turn it is in the line of a budget: callers have their turn when their ticket is below the cut of their
// lane. lua/queue.lua publishes it.
type Turns struct {
	Key   string
	Line  int64
	Cuts  [3]int64 // by class, of callers without a share
	Lanes []Cut    // the cuts that have moved in a line with shares, whose Cuts are 0
}

// A Cut is the cut of the callers of one class and one share. Callers without a share have the share 0.
type Cut struct {
	Class int64
	Share uint64
	Cut   int64
}

// Slots says for which of this node's waiters a concurrency limit has slots set aside;
// of lua/slots.lua. Waiters are named by their arrivals.
type Slots struct {
	Key      string
	Arrivals []int64
}

// A Loss says that Redis lost a budget. The node that finds out publishes it.
type Loss struct{ Key string }

// A beat is a message that a subscription publishes to itself, at a time since origin.
type beat time.Duration

// The first words of messages. A Pause begins with a number.
const (
	invalidationMark = "anew "
	turnsMark        = "come "
	cutsMark         = "cuts "
	lossMark         = "lost "
	beatMark         = "~"
)

// String returns the message as it is published.
func (l Loss) String() string { return lossMark + l.Key }

// String returns the message as it is published.
func (b beat) String() string { return beatMark + strconv.FormatInt(int64(b), 10) }

// parseShared parses a message on the channel of all nodes. It returns nil if the message makes no sense.
func parseShared(text string) Message {
	// The mark in front says which message it is. A pause has no mark.
	if rest, ok := strings.CutPrefix(text, invalidationMark); ok {
		if n, key := numbers(rest, 2); n != nil {
			return Invalidation{key, n[0], n[1]}
		}
	} else if rest, ok := strings.CutPrefix(text, turnsMark); ok {
		if n, key := numbers(rest, 4); n != nil {
			return Turns{Key: key, Line: n[0], Cuts: [3]int64(n[1:])}
		}
	} else if rest, ok := strings.CutPrefix(text, cutsMark); ok {
		return parseCuts(rest)
	} else if key, ok := strings.CutPrefix(text, lossMark); ok {
		return Loss{key}
	} else if n, key := numbers(text, 2); n != nil {
		return Pause{key, n[0], wire.Wait(n[1])}
	}

	return nil
}

// maxCuts is more than a line has lanes.
const maxCuts = 1024

// parseCuts parses a message about lanes of shares: the ID of the line, how many lanes follow, the class, share and cut of
// each lane, and the key. It returns nil if the message makes no sense.
func parseCuts(text string) Message {
	n, rest := numbers(text, 2)
	if n == nil || n[1] < 1 || n[1] > maxCuts {
		return nil
	}

	all, key := numbers(rest, 3*int(n[1]))
	if all == nil {
		return nil
	}

	t := Turns{Key: key, Line: n[0]}
	for i := 0; i < len(all); i += 3 {
		t.Lanes = append(t.Lanes, Cut{all[i], uint64(all[i+1]), all[i+2]})
	}

	return t
}

// parseOwn parses a message on the channel of this node. It returns nil for an illegible beat, and leaves out illegible
// arrivals.
func parseOwn(text string) Message {
	if nanos, ok := strings.CutPrefix(text, beatMark); ok {
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return nil
		}
		return beat(n)
	}

	// Arrivals are separated by commas, and the key of the budget follows.
	list, key, _ := strings.Cut(text, " ")
	s := Slots{Key: key}
	for name := range strings.SplitSeq(list, ",") {
		if at, err := strconv.ParseInt(name, 10, 64); err == nil {
			s.Arrivals = append(s.Arrivals, at)
		}
	}

	return s
}

// numbers returns the first count numbers of a text, each with a blank behind it, and the rest of the text. It returns nil
// if the text begins with fewer numbers.
func numbers(text string, count int) (n []int64, rest string) {
	for range count {
		number, more, ok := strings.Cut(text, " ")
		v, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			return nil, ""
		}
		n, text = append(n, v), more
	}
	return n, text
}
