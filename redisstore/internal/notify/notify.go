// Package notify keeps a node's subscriptions: what the scripts and other nodes
// publish reaches the node while somebody of it waits. A subscription knows since
// when it has surely received all, because it receives what it publishes itself.
package notify

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/names"
)

// A Conn is the way to Redis.
type Conn interface {
	Publish(ctx context.Context, channel, message string) error

	// Subscribe returns nil where there is nobody to listen to.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Channels are the two that a subscription listens to.
type Channels struct {
	Own    string // this node's
	Shared string // that of all nodes
}

// ChannelsOf returns those of a node for a group.
func ChannelsOf(n *names.Space, group string) Channels {
	return Channels{n.Own(group), n.Shared(group)}
}

// Subscriptions are those of a node, by its own channel: one while somebody waits, and a
// little longer.
type Subscriptions struct {
	// Listen keeps a subscription until ctx ends. Tests in virtual time replace it.
	Listen func(ctx context.Context, sub *Subscription)

	conn    Conn
	receive func(Message)

	mu  sync.Mutex
	all map[string]*Subscription
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

// New returns the subscriptions of a node, which pass on what they receive.
func New(conn Conn, receive func(Message)) *Subscriptions {
	s := &Subscriptions{conn: conn, receive: receive, all: make(map[string]*Subscription)}
	s.Listen = s.listen
	return s
}

// Retain adds a user of a subscription, which begins with the first one.
func (s *Subscriptions) Retain(c Channels) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.all[c.Own]
	if sub == nil {
		var ctx context.Context
		sub = &Subscription{Channels: c, owner: s}
		ctx, sub.stop = context.WithCancel(context.Background())
		s.all[c.Own] = sub
		go s.Listen(ctx, sub)
	}
	sub.users++
}

// Release removes a user. The subscription ends soon after the last one.
func (s *Subscriptions) Release(c Channels) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.all[c.Own]
	if sub.users--; sub.users > 0 {
		return
	}
	if sub.idle != nil {
		sub.idle.Reset(linger)
		return
	}
	sub.idle = time.AfterFunc(linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// It may have been ended before, and there may be another one: a timer that
		// is set anew while this waits for the lock calls it twice.
		if sub.users == 0 && s.all[sub.Own] == sub {
			delete(s.all, sub.Own)
			sub.stop()
		}
	})
}

// Len returns how many subscriptions there are.
func (s *Subscriptions) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
