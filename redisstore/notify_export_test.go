package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// tick is how often a store in virtual time looks for messages.
const tick = 50 * time.Millisecond

// listenAt is the Listen of a store in virtual time. A goroutine that waits for the
// network keeps a bubble's clock from moving, so it asks now and then what has
// come, and is a timer in between: a bubble may end while somebody waits.
func (s *Store) listenAt(ctx context.Context, sub *notify.Subscription) {
	c := s.primary.client.Subscribe(context.Background(), sub.Own, sub.Shared)
	var look func()
	look = func() {
		if ctx.Err() != nil || c.Ping(ctx) != nil || !drain(ctx, c, sub) {
			c.Close()
			return
		}
		time.AfterFunc(tick, look)
	}
	look()
}

// drain reads all that came before the answer to a ping.
func drain(ctx context.Context, c *redis.PubSub, sub *notify.Subscription) bool {
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return false
		}
		if _, ok := m.(*redis.Pong); ok {
			return true
		}
		sub.Deliver(m)
	}
}

// Disconnect keeps all messages from the store.
func (s *Store) Disconnect() { s.primary.subs.Listen = func(context.Context, *notify.Subscription) {} }

// NeverRenew lets leases run out.
func (s *Store) NeverRenew() { s.primary.line.RenewEvery = 24 * time.Hour }

// Subscriptions returns how many the store has.
func (s *Store) Subscriptions() int { return s.primary.subs.Len() }

// Complete reports whether the store has surely received all that was published in a
// group since a time.
func (s *Store) Complete(group string, since time.Time) bool {
	return s.primary.subs.CompleteSince(notify.ChannelsOf(s.primary.names, group).Own, since)
}

// Subscribe listens for one more, as for a sleeper.
func (s *Store) Subscribe(group string) {
	s.primary.subs.Retain(notify.ChannelsOf(s.primary.names, group))
}

// Unsubscribe listens for one less.
func (s *Store) Unsubscribe(group string) {
	s.primary.subs.Release(notify.ChannelsOf(s.primary.names, group))
}

// Empty makes Redis forget all.
func (s *Store) Empty(ctx context.Context) error { return s.primary.client.FlushDB(ctx).Err() }

// Leases returns how many budgets of concurrency the store knows.
func (s *Store) Leases() int { return s.primary.line.Leases() }

// LeasesKey returns the key of a budget of concurrency.
func (s *Store) LeasesKey(b throttle.Budget) string { return s.primary.names.Leases(&b) }
