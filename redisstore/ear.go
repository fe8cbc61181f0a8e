package redisstore

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
)

// Ears are the subscriptions of a store, by channel: one while somebody waits in
// line or for a start, and a little longer. With hash tags it is one for each tag,
// because those may lie on servers that do not talk to each other.
type ears struct {
	mu     sync.Mutex
	all    map[string]*ear
	listen func(ctx context.Context, e *ear)
}

// An ear is one subscription.
type ear struct {
	wake   string // the channel where this store is called when a waiter has room
	pauses string // the channel where all stores hear of pauses

	// The lock of the ears guards the rest.
	waiting int // how many need it
	idle    *time.Timer
	stop    context.CancelFunc
	proof   proof
}

const (
	earLinger = 500 * time.Millisecond // the next one often comes soon
	earSilent = time.Second            // a silent connection is tried after that
)

// channel returns where this store is called when a waiter of the group has room.
func (s *Store) channel(group string) string { return s.wakePrefix(group) + s.id }

// wakePrefix is what all stores' channels for a group begin with.
func (s *Store) wakePrefix(group string) string { return s.channels(group) + "wake:" }

// channels is what the names of a group's channels begin with. The logical
// databases of one server share its channels, so those must tell them apart.
func (s *Store) channels(group string) string {
	db := s.conn.DB()
	if db == 0 {
		return s.prefix + s.tag(group)
	}
	return s.prefix + "db" + strconv.Itoa(db) + ":" + s.tag(group)
}

// prick listens for one more.
func (s *Store) prick(group string) {
	s.ears.mu.Lock()
	defer s.ears.mu.Unlock()
	channel := s.channel(group)
	e := s.ears.all[channel]
	if e == nil {
		var ctx context.Context
		e = &ear{wake: channel, pauses: s.pauseChannel(group)}
		ctx, e.stop = context.WithCancel(context.Background())
		s.ears.all[channel] = e
		go s.ears.listen(ctx, e)
	}
	e.waiting++
}

// rest listens for one less.
func (s *Store) rest(group string) {
	s.ears.mu.Lock()
	defer s.ears.mu.Unlock()
	e := s.ears.all[s.channel(group)]
	if e.waiting--; e.waiting > 0 {
		return
	}
	if e.idle != nil {
		e.idle.Reset(earLinger)
		return
	}
	e.idle = time.AfterFunc(earLinger, func() {
		s.ears.mu.Lock()
		defer s.ears.mu.Unlock()
		// It may have been ended before, and another one may listen now: a timer
		// that is set anew while this waits for the lock calls it twice.
		if e.waiting == 0 && s.ears.all[e.wake] == e {
			delete(s.ears.all, e.wake)
			e.stop()
		}
	})
}

// hear is the listen of ears that are not a test's.
func (s *Store) hear(ctx context.Context, e *ear) {
	for pauses := (conn.Backoff{}); ctx.Err() == nil; pauses.Wait(ctx, nil) {
		if sub := s.conn.Subscribe(ctx, e.wake, e.pauses); sub != nil {
			stop := context.AfterFunc(ctx, func() { sub.Close() })
			if s.follow(ctx, sub, e) {
				pauses = conn.Backoff{}
			}
			s.ears.deaf(e)
			stop()
			sub.Close()
		}
	}
}

// follow reads one connection until it fails, and reports whether it ever worked.
// After a silence it says something by itself, and then asks for any answer.
func (s *Store) follow(ctx context.Context, sub *redis.PubSub, e *ear) (worked bool) {
	for silences := 0; ; {
		m, err := sub.ReceiveTimeout(ctx, s.ears.quiet(e))
		switch {
		case err == nil:
			worked, silences = true, 0
			s.receive(m, e)
		case !timedOut(err) || silences > 1 || silences == 1 && sub.Ping(ctx) != nil:
			return worked
		default:
			silences++
		}
		s.probe(ctx, e)
	}
}

// receive takes what came on a connection.
func (s *Store) receive(m any, e *ear) {
	switch m := m.(type) {
	case *redis.Subscription:
		if m.Channel == e.wake {
			s.listening(e.wake)
		} else {
			s.ears.listening(e)
		}
	case *redis.Message:
		switch nanos, own := strings.CutPrefix(m.Payload, probeMark); {
		case m.Channel == e.pauses:
			s.hearPause(m.Payload)
		case own:
			s.ears.heard(e, nanos)
		default:
			s.hearCall(m.Payload)
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

// hearCall takes a message of lua/line.lua apart: who has room, and the key of
// the flight.
func (s *Store) hearCall(text string) {
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
