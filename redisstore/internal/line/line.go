// Package line keeps the callers of a node that wait: for starts that are further away than
// they may be booked ([Starts]), and for slots of budgets of concurrency ([Slots]). Redis
// knows how much waits, and of slots the first waiters of each node; which caller
// is meant by what Redis says is known here. See docs/internals/line.md and docs/internals/in-flight.md.
package line

import (
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Lines are those of a node. They implement [commit.Line].
type Lines struct {
	Starts
	Slots
}

// New returns lines in which nobody waits.
func New(o *Options) *Lines {
	return &Lines{
		Starts: Starts{Options: o, all: make(map[string]*queue), full: full{all: make(map[[16]byte]*busy)}, coming: make(gatherings)},
		Slots:  Slots{RenewEvery: renewEvery, options: o, all: make(map[string]*lease)},
	}
}

// Report implements [commit.Line].
func (l *Lines) Report(ops []*commit.Op) commit.Reports {
	if leases := l.Slots.lockRecords(ops); len(leases) > 0 {
		return &reports{&l.Slots, leases}
	}
	return nil
}

// Settled implements [commit.Line].
func (l *Lines) Settled(op *commit.Op) {
	l.Slots.settled(op)
	if op.Err == nil {
		l.Starts.settled(op)
	}
}

// moveLeast: a turn in a line of many that is sooner by less is not worth a call.
const moveLeast = 250 * time.Millisecond

// callNow, as the hurry of a reply, says that the waiters whose turn it is are called.
const callNow = 2

// Observe implements [commit.Line].
func (s *Starts) Observe(key string, l *wire.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.all[key]; q != nil {
		if l == nil {
			l = new(wire.Line) // it has ended
		}
		q.waiting, q.updated, q.hurry = l.Waiting, time.Now(), l.Hurry > 0
		q.due = q.updated.Add(l.Soon)
		q.move(l)
		q.receive(l.ID, l.Cuts, l.Hurry == callNow)
	}
}

// move lets waiters come sooner whose turn is sooner than the last guess, as far as one can
// tell: a line is served evenly, but that of a long window may be served at its end.
func (q *queue) move(l *wire.Line) {
	if l.ID != q.line || q.charge.Limit.Kind() == throttle.KindFixedWindow {
		return // its waiters leave all at once when their window begins
	}
	late, least := comeLate, time.Duration(0)
	if !q.isLarge() {
		least = moveLeast
	}
	if per := q.charge.Limit.Per(); per > evenMost {
		late += per
	}
	for _, t := range q.waiters {
		k := t.class - 1
		if all := l.Joined[k] - l.Cuts[k]; all > 0 && t.number >= l.Cuts[k] {
			part := float64(t.number+t.cost-l.Cuts[k]) / float64(all)
			wait := l.First[k] + time.Duration(part*float64(l.Last[k]-l.First[k])).Truncate(time.Microsecond)
			if near := q.updated.Add(wait - t.horizon + late); near.Before(t.near.Add(-least)) {
				t.comes(near)
			}
		}
	}
}

// receive takes in the cuts of a line. It calls the waiters whose turn it is, if they are to
// come now, and all if Redis has another line than theirs.
func (q *queue) receive(line int64, cuts [3]int64, now bool) {
	switch {
	case line != q.line:
		q.starts.full.forget(q.charge.Budget.Key)
		q.callAll()
	case now:
		q.starts.full.forget(q.charge.Budget.Key)
		q.call(func(t *turn) bool { return t.number < cuts[t.class-1] })
	default:
		q.setTimer()
	}
}

// Turns takes in whose turn it is.
func (s *Starts) Turns(m notify.Turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.all[m.Key]; q != nil {
		q.receive(m.Line, m.Cuts, true)
	}
}

// Lifted takes in that a pause has ended early: it asks how the line stands.
func (s *Starts) Lifted(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.full.all)
	if q := s.all[key]; q != nil {
		q.ask()
		q.setTimer()
	}
}

// Paused takes in a pause. It calls the waiters to which no start after its end is of use, so
// that they are refused.
func (s *Starts) Paused(key string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.all[key]; q != nil {
		q.call(func(t *turn) bool { return !t.deadline.IsZero() && t.deadline.Before(until) })
	}
}

// Lost takes in that a budget was lost. No node finds out that an unlimited one was, so
// waiters for the end of its penalty tell of that whatever was lost.
func (s *Starts) Lost(key string) {
	s.wake(func(q *queue) bool { return q.key == key || wire.Unlimited(&q.charge) })
}

// Wake calls all that wait for budgets of a group.
func (s *Starts) Wake(group string) {
	s.wake(func(q *queue) bool { return q.group == group })
}

func (s *Starts) wake(which func(*queue) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.full.all)
	for _, q := range s.all {
		if which(q) {
			q.callAll()
		}
	}
}
