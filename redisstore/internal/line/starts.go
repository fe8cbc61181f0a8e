package line

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Join gives an op what the caller of a booking has in lines, where it waits no longer.
// Places that are of no use to the booking are left. Callers that wait for the same budgets,
// and whose start is near, are called: they share the op's call.
func (s *Starts) Join(op *commit.Op, b *throttle.Booking) {
	op.Horizon, op.Class, op.Returns = b.Horizon, classOf(b.Priority), b.Returns && b.Horizon > 0
	if left := s.join(op, b); left != nil {
		s.Post(left)
	}
}

// join is Join but for the op that leaves useless places.
func (s *Starts) join(op *commit.Op, b *throttle.Booking) (left *commit.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.NoNews {
		op.Patience = s.full.patience(op, b, time.Now())
	}
	if t, ok := b.Turn.(*turn); ok {
		s.remove(t)
		if b.Horizon == 0 {
			s.came(t)
			return nil
		}
		if !slices.EqualFunc(t.charges, b.Charges, sameBudget) {
			left = t.leave()
		}
		op.Turn, op.Tickets, op.Returns = t, slices.Clone(t.tickets), b.Returns && t.started
	}
	if b.Horizon > 0 && op.Kind != wire.Cancel {
		s.callNear(op.Charges)
	}
	return left
}

func sameBudget(a, b throttle.Charge) bool { return a.Budget == b.Budget && a.Cost == b.Cost }

// settled notes what a call said of a caller's places in line.
func (s *Starts) settled(op *commit.Op) {
	t, _ := op.Turn.(*turn)
	inLine := op.Outcome.State == wire.InLine
	if op.Kind != wire.Reserve || op.Outcome.State == wire.Unsettled || t == nil && !inLine && op.Outcome.Wait <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full.note(op, time.Now())
	if t == nil && !inLine {
		return
	}
	if !inLine {
		t.inLine, t.started = false, t.started || op.Outcome.Booked()
		t.hadStart()
		return
	}
	if t == nil {
		t = &turn{mu: &s.mu}
		op.Turn = t
	}
	t.charges, t.class, t.tickets, t.inLine = slices.Clone(op.Charges), op.Class, op.Outcome.Tickets, true
	if !op.Left() {
		op.Ready = s.add(t, op)
	}
}

// Cancel gives up a caller's place in line. The caller keeps its arrival if it comes
// back. It returns the op that tells Redis; nil if there is nothing to tell.
func (s *Starts) Cancel(of throttle.Turn) *commit.Op {
	t, ok := of.(*turn)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(t)
	s.came(t)
	tickets := t.tickets
	op := t.leave()
	if op != nil {
		t.tickets = tickets
		t.hadStart()
	}
	return op
}

// add lets a caller wait, and returns its Ready. The starts are locked.
func (s *Starts) add(t *turn, op *commit.Op) <-chan struct{} {
	o := &op.Outcome
	c := &op.Charges[o.Charge]
	i := slices.IndexFunc(t.tickets, func(k wire.Ticket) bool { return k.Budget == c.Budget.Key })
	key := s.Names.Row(&c.Budget)
	q := s.all[key]
	if q == nil {
		q = &queue{starts: s, key: key, group: c.Budget.Group, fresh: true, updated: time.Now()}
		s.all[key] = q
	}
	q.line, q.charge = t.tickets[i].Line, *c
	t.number, t.cost, t.ready = t.tickets[i].Number, wire.Cost(c), make(chan struct{})
	t.deadline = time.Time{}
	if op.MaxWait < wire.AnyWait {
		t.deadline = time.Now().Add(time.Duration(op.MaxWait) * time.Microsecond)
	}
	t.horizon, t.notBefore = op.Horizon, time.Now().Add(leastToCome)
	near := time.Now().Add(wire.Wait(o.Wait) - op.Horizon)
	if t.calls++; t.calls > 1 {
		t.near = latest(near, t.notBefore)
		t.come = t.near // else others come in time for its start, again and again
	} else {
		t.comes(near.Add(comeLate))
	}
	q.add(t)
	return t.ready
}

// remove ends a wait. The caller may have been called. The starts are locked.
func (s *Starts) remove(t *turn) {
	if q := s.all[t.queue]; q != nil {
		at, _ := slices.BinarySearchFunc(q.waiters, t, compareTurns)
		q.remove(at + slices.Index(q.waiters[at:], t))
		if len(q.waiters) == 0 {
			q.setTimer()
		} // else the timer may be too early, and is set then
	}
}

// Arrived implements [commit.Line].
func (s *Starts) Arrived(op *commit.Op) {
	if t, ok := op.Turn.(*turn); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.came(t)
	}
}

// came notes that a caller is there if it was called, or does not come. The starts are
// locked.
func (s *Starts) came(t *turn) {
	if t.expected != nil {
		s.coming.came(t.expected)
		t.expected = nil
	}
}

// Gather implements [commit.Line].
func (s *Starts) Gather(group string) {
	s.mu.Lock()
	g := s.coming[group]
	s.mu.Unlock()
	if g == nil {
		return
	}
	late := time.NewTimer(gatherMost)
	defer late.Stop()
	select {
	case <-g.over:
	case <-late.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.coming.end(g)
	}
}

// callNear calls the waiters for some budgets whose start is within the horizon. The starts are locked.
func (s *Starts) callNear(charges []throttle.Charge) {
	if len(s.all) == 0 {
		return
	}
	now := time.Now()
	for i := range charges {
		if q := s.all[s.Names.Row(&charges[i].Budget)]; q != nil && !q.near.After(now) {
			q.callNear(now)
		}
	}
}

// Waiting reports whether callers wait for budgets of a group.
func (s *Starts) Waiting(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.all {
		if q.group == group {
			return true
		}
	}
	return false
}

// Len returns how many callers wait, in how many lines, and how many were called and are
// not there yet.
func (s *Starts) Len() (waiting, lines, coming int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.all {
		waiting += len(q.waiters)
	}
	for _, g := range s.coming {
		coming += g.missing
	}
	return waiting, len(s.all), coming
}
