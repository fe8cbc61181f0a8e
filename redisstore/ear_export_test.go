package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
)

// tick is how often a store in virtual time looks for messages.
const tick = 50 * time.Millisecond

// hearAt is the listen of a store in virtual time. A goroutine that waits for the
// network keeps a bubble's clock from moving, so it asks now and then what has
// come, and is a timer in between: a bubble may end while somebody waits.
func (s *Store) hearAt(ctx context.Context, e *ear) {
	sub := s.client.Subscribe(context.Background(), e.wake, e.pauses)
	var look func()
	look = func() {
		if ctx.Err() != nil || sub.Ping(ctx) != nil || !s.drain(ctx, sub, e) {
			sub.Close()
			return
		}
		time.AfterFunc(tick, look)
	}
	look()
}

// drain reads all that came before the answer to a ping.
func (s *Store) drain(ctx context.Context, sub *redis.PubSub, e *ear) bool {
	for {
		m, err := sub.Receive(ctx)
		if err != nil {
			return false
		}
		if _, ok := m.(*redis.Pong); ok {
			return true
		}
		s.receive(m, e)
	}
}

// Deafen loses all messages to the store.
func (s *Store) Deafen() { s.ears.listen = func(context.Context, *ear) {} }

// NeverRenew lets leases run out.
func (s *Store) NeverRenew() { s.flights.every = 24 * time.Hour }

// Ears returns how many subscriptions the store has.
func (s *Store) Ears() int {
	s.ears.mu.Lock()
	defer s.ears.mu.Unlock()
	return len(s.ears.all)
}

// Empty makes Redis forget all.
func (s *Store) Empty(ctx context.Context) error { return s.client.FlushDB(ctx).Err() }

// Flights returns how many flights the store knows.
func (s *Store) Flights() int {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	return len(s.flights.all)
}

// FlightKey returns the key of a budget of requests in flight.
func (s *Store) FlightKey(b throttle.Budget) string { return s.flightKey(&b) }
