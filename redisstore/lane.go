package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// batchMost bounds how many callers one script call serves, and with it how
// long Redis is busy with one call.
const batchMost = 128

// A caller is one question on its way through a lane: a booking, or a start
// that is given back.
type caller struct {
	charges []throttle.Charge
	instead int64 // the mark to give back first, or 0
	maxWait int64 // microseconds; see anyWait and giveBack
	spread  time.Duration

	done chan struct{} // closed when the fields below are set
	got  []int64       // wait and so on, as book.lua answers
	sent time.Time     // when the call that answered was sent
	err  error
	left bool // nobody waits for the answer; guarded by the lane's lock
}

// Values of caller.maxWait that are not a wait.
const (
	anyWait  = -1
	giveBack = -2
)

// Lanes are the calls that a process makes, one at a time for each group of
// budgets. Callers that come while a call is on its way wait for the next one,
// which serves them all, in the order in which they came: this is group commit.
// A call belongs to no caller, so one that leaves does not disturb the others.
// A lane exists, and has a goroutine, only while somebody waits in it.
type lanes struct {
	mu    sync.Mutex
	queue map[string][]*caller // by group; an empty queue is a call on its way
}

// ask sends the caller through its lane and returns its answer. If ctx ends
// first, ask returns at once, and a start that is booked all the same is given
// back.
func (s *Store) ask(ctx context.Context, c *caller) error {
	c.done = make(chan struct{})
	s.join(c)
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	default:
		c.left = true
		return context.Cause(ctx)
	}
}

// join queues the caller, and starts the lane if it stands still.
func (s *Store) join(c *caller) {
	group := c.charges[0].Budget.Group
	l := &s.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, moving := l.queue[group]
	l.queue[group] = append(waiting, c)
	if !moving {
		go s.serve(group)
	}
}

// serve makes one call after another until nobody waits in the lane.
func (s *Store) serve(group string) {
	for {
		batch := s.lanes.next(group)
		if batch == nil {
			return
		}
		sent := time.Now()
		got, err := s.callBook(batch)
		if err != nil && len(batch) > 1 && undone(err) {
			s.serveSingly(group, batch)
			continue
		}
		s.deliver(group, batch, got, sent, err)
	}
}

// serveSingly makes a call for each caller, because one of them has something
// that cannot be served.
func (s *Store) serveSingly(group string, batch []*caller) {
	for i := range batch {
		sent := time.Now()
		got, err := s.callBook(batch[i : i+1])
		s.deliver(group, batch[i:i+1], got, sent, err)
	}
}

// deliver gives each caller its part of an answer. What was booked for a caller
// that has left is given back by the next call.
func (s *Store) deliver(group string, batch []*caller, got [][]int64, sent time.Time, err error) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	for i, c := range batch {
		c.sent, c.err = sent, err
		if err == nil {
			c.got = got[i]
		}
		if c.left && err == nil && c.got[0] == 1 {
			s.lanes.queue[group] = append(s.lanes.queue[group], &caller{
				charges: c.charges, spread: c.spread, instead: c.got[2], maxWait: giveBack,
				done: make(chan struct{}),
			})
		}
		close(c.done)
	}
}

// next takes the callers of the next call from the queue; nil ends the lane.
func (l *lanes) next(group string) []*caller {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*caller
	queue := l.queue[group]
	for len(queue) > 0 && len(batch) < batchMost {
		if c := queue[0]; c.left {
			close(c.done) // it left before it was served
		} else {
			batch = append(batch, c)
		}
		queue = queue[1:]
	}
	if len(batch) == 0 {
		delete(l.queue, group)
		return nil
	}
	l.queue[group] = queue
	return batch
}
