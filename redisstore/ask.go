package redisstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Asks are the questions whether budgets are closed, by the server that knows:
// that is, by channel. Who asks while a question is on its way shares the next
// one.
type asks struct {
	mu  sync.Mutex
	all map[string]*asking // those with a question on its way
}

// An asking is one server's: the question to come, nil if there is none.
type asking struct{ next *question }

// A question is about the budgets of one or more vigils.
type question struct {
	keys   map[string]closing // what is known of them when done is closed
	ctx    context.Context    // ends when nobody wants to know any more
	stop   context.CancelFunc
	failed chan struct{} // closed when a call has failed
	done   chan struct{}
	err    error

	// The lock of the asks guards the rest.
	waiting int   // how many want to know
	fails   int   // how many calls failed
	last    error // why the last one did
}

// askMost bounds for how many budgets one call asks.
const askMost = 256

// askClosed finds out whether the budgets of a vigil are closed. What it finds is
// news to all who watch them.
func (s *Store) askClosed(ctx context.Context, v *vigil) error {
	if len(v.keys) == 0 {
		return nil
	}
	since := time.Now()
	timeUp, stop := conn.Timeout(ctx, v.b.MaxWait, since)
	defer stop()
	q := s.wonder(v)
	defer s.asks.leave(q)
	var tell func()
	if v.b.Away != nil {
		tell = func() { v.b.Away(s.conn.Cause(s.asks.unavailability(q, since))) }
	}
	if conn.Await(ctx, q.done, timeUp, q.failed, tell) {
		return q.err
	}
	return s.conn.Unavailable(s.asks.unavailability(q, since), context.Cause(ctx))
}

// wonder joins the next question, and begins to ask if nobody does.
func (s *Store) wonder(v *vigil) *question {
	s.asks.mu.Lock()
	defer s.asks.mu.Unlock()
	channel := s.channel(v.group)
	a := s.asks.all[channel]
	if a == nil {
		a = new(asking)
		s.asks.all[channel] = a
		go s.inquire(channel, a)
	}
	if a.next == nil || a.next.ctx.Err() != nil { // or nobody waits for it any more
		a.next = &question{keys: make(map[string]closing), failed: make(chan struct{}), done: make(chan struct{})}
		a.next.ctx, a.next.stop = context.WithCancel(context.Background())
	}
	for _, key := range v.keys {
		a.next.keys[key] = closing{}
	}
	a.next.waiting++
	return a.next
}

// leave ends the question if nobody else waits for it.
func (as *asks) leave(q *question) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		q.stop()
	}
}

// unavailability is why a question has no answer yet, for a caller that waits since then.
func (as *asks) unavailability(q *question, since time.Time) conn.Unavailability {
	as.mu.Lock()
	defer as.mu.Unlock()
	return conn.Unavailability{Since: since, Fails: q.fails, Last: q.last}
}

// fail notes why a call for a question failed.
func (as *asks) fail(q *question, err error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if q.fails++; q.fails == 1 {
		close(q.failed)
	}
	q.last = err
}

// inquire asks one question after the other until there is none.
func (s *Store) inquire(channel string, a *asking) {
	for {
		s.asks.mu.Lock()
		q := a.next
		a.next = nil
		if q == nil {
			delete(s.asks.all, channel)
			s.asks.mu.Unlock()
			return
		}
		s.asks.mu.Unlock()
		asked := time.Now()
		if q.err = s.answer(q); q.err == nil {
			s.vigils.answered(q.keys, asked)
		}
		close(q.done)
	}
}

// answer asks Redis.
func (s *Store) answer(q *question) error {
	keys := slices.Collect(maps.Keys(q.keys))
	for some := range slices.Chunk(keys, askMost) {
		var v wire.Frame
		err := s.conn.Retry(q.ctx, func(err error) { s.asks.fail(q, err) }, func() (err error) {
			v, err = s.conn.Call(q.ctx, func(wire.Boundaries, []wire.Gate) wire.Call {
				return wire.Call{Script: wire.ClosedScript, Keys: some}
			})
			return err
		})
		if err != nil {
			return err
		}
		if v.Size() != 1+2*len(some) {
			return wire.ErrReply
		}
		for i, key := range some {
			q.keys[key] = closing{v.At(1 + 2*i), wire.Wait(v.At(2 + 2*i))}
		}
	}
	return nil
}
