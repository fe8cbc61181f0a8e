package redisstore

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ears are the subscriptions of a store, by channel: one while somebody waits in
// line, and a little longer. With hash tags it is one for each tag, because those
// may lie on servers that do not talk to each other.
type ears struct {
	all    map[string]*ear
	listen func(ctx context.Context, channel string)
}

// An ear is one subscription.
type ear struct {
	waiting int // how many stand in line
	idle    *time.Timer
	stop    context.CancelFunc
}

const (
	earLinger = 500 * time.Millisecond // the next one often comes soon
	earPing   = 3 * time.Second        // a silent connection is tried after that
)

// channel returns where this store is called when a waiter of the group has room.
func (s *Store) channel(group string) string { return s.wakePrefix(group) + s.id }

// wakePrefix is what all stores' channels for a group begin with.
func (s *Store) wakePrefix(group string) string { return s.prefix + s.tag(group) + "wake:" }

// prick listens for one waiter more. The lock of the flights is held.
func (s *Store) prick(group string) {
	channel := s.channel(group)
	e := s.flights.ears.all[channel]
	if e == nil {
		var ctx context.Context
		e = new(ear)
		ctx, e.stop = context.WithCancel(context.Background())
		s.flights.ears.all[channel] = e
		go s.flights.ears.listen(ctx, channel)
	}
	e.waiting++
}

// rest listens for one waiter less. The lock of the flights is held.
func (s *Store) rest(group string) {
	channel := s.channel(group)
	e := s.flights.ears.all[channel]
	if e.waiting--; e.waiting > 0 {
		return
	}
	if e.idle != nil {
		e.idle.Reset(earLinger)
		return
	}
	e.idle = time.AfterFunc(earLinger, func() {
		s.flights.mu.Lock()
		defer s.flights.mu.Unlock()
		if e.waiting == 0 {
			delete(s.flights.ears.all, channel)
			e.stop()
		}
	})
}

// hear is the listen of ears that are not a test's.
func (s *Store) hear(ctx context.Context, channel string) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		if sub := s.subscribe(ctx, channel); sub != nil {
			stop := context.AfterFunc(ctx, func() { sub.Close() })
			if s.follow(ctx, sub, channel) {
				pause = firstPause
			}
			stop()
			sub.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// subscribe returns nil where there is nobody to listen to: a ring panics when it
// has no shard that answers.
func (s *Store) subscribe(ctx context.Context, channel string) (sub *redis.PubSub) {
	defer func() {
		if recover() != nil {
			sub = nil
		}
	}()
	return s.client.Subscribe(ctx, channel)
}

// follow reads one connection until it fails, and reports whether it ever worked.
func (s *Store) follow(ctx context.Context, sub *redis.PubSub, channel string) (worked bool) {
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(ctx, earPing)
		switch {
		case err == nil:
			worked, pinged = true, false
		case !pinged && timedOut(err) && sub.Ping(ctx) == nil:
			pinged = true
		default:
			return worked
		}
		switch m := m.(type) {
		case *redis.Subscription:
			s.listening(channel)
		case *redis.Message:
			s.hearMessage(m.Payload)
		}
	}
}

// listening states the flights of all who wait for a call on the channel, because
// it may have come before anybody listened.
func (s *Store) listening(channel string) {
	s.flights.mu.Lock()
	var waiting []*flight
	for _, f := range s.flights.all {
		if len(f.line) > 0 && s.channel(f.budget.Group) == channel {
			waiting = append(waiting, f)
		}
	}
	s.flights.mu.Unlock()
	for _, f := range waiting {
		s.due(f)
	}
}

// hearMessage takes a message of lua/line.lua apart: who has room, and the key of
// the flight.
func (s *Store) hearMessage(text string) {
	list, key, _ := strings.Cut(text, " ")
	var came []int64
	for name := range strings.SplitSeq(list, ",") {
		if at, err := strconv.ParseInt(name, 10, 64); err == nil {
			came = append(came, at)
		}
	}
	s.flights.called(key, came)
}

// timedOut reports whether nothing came, though the connection may be fine.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
