package line

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Join takes the caller of a booking out of the lines in which it waits, and gives its tickets to
// its op. It gives up places that are of no use to the booking. It calls the waiters for the same
// budgets whose start is near: they share the op's call.
func (s *Starts) Join(op *commit.Op, b *store.Booking) {
	op.Horizon, op.Class, op.Returns = b.Horizon, classOf(b.Priority), b.Returns && b.Horizon > 0
	if left := s.join(op, b); left != nil {
		s.Post(left)
	}
}

// join is Join without the fields of the booking, and without the post of the op that leaves
// useless places, which it returns.
func (s *Starts) join(op *commit.Op, b *store.Booking) (left *commit.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.NoNews {
		op.Patience = s.full.patience(op, b, time.Now())
	}
	if t, ok := b.Turn.(*turn); ok {
		s.remove(t)
		if b.Horizon == 0 {
			s.endExpectation(t)
			return nil
		}
		if !slices.EqualFunc(t.charges, b.Charges, sameBudget) {
			left = t.leave()
		}
		op.Turn, op.Tickets, op.Returns = t, slices.Clone(t.tickets), b.Returns && t.started
	}
	if b.Horizon > 0 && op.Kind != wire.Cancel {
		s.callNear(op.Charges, op.Patience > 0)
	}
	return left
}

// sameBudget reports whether a place in line for a is one for b.
func sameBudget(a, b store.Charge) bool { return a.Budget == b.Budget && a.Cost == b.Cost }

// answered takes in what a call answered of the places in line of an op's caller. If the caller
// waits in line from now on it sets the op's Turn and Ready.
func (s *Starts) answered(op *commit.Op) {
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
		t.markHadStart()
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

// Cancel gives up a caller's places in line. The caller's Turn keeps its arrival, for the case that
// it books again. Cancel returns the op that tells Redis; nil if there is nothing to tell.
func (s *Starts) Cancel(arrival store.Turn) *commit.Op {
	t, ok := arrival.(*turn)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(t)
	s.endExpectation(t)
	tickets := t.tickets
	op := t.leave()
	if op != nil {
		t.tickets = tickets
		t.markHadStart()
	}
	return op
}

// add has the caller of an op wait in the line that the answer to the op names, and returns its
// Ready. The starts are locked.
func (s *Starts) add(t *turn, op *commit.Op) <-chan struct{} {
	o := &op.Outcome
	c := &op.Charges[o.Charge]
	i := slices.IndexFunc(t.tickets, func(k wire.Ticket) bool { return k.Budget == c.Budget.Key })
	key := s.Names.Row(&c.Budget)
	n := s.all[key]
	if n == nil {
		n = &nodeLine{starts: s, key: key, group: c.Budget.Group, unasked: true, heardAt: time.Now()}
		s.all[key] = n
	}
	n.id, n.charge = t.tickets[i].Line, *c
	t.number, t.share, t.cost, t.ready = t.tickets[i].Number, t.tickets[i].Share, wire.Cost(c), make(chan struct{})
	t.deadline = time.Time{}
	if op.MaxWait < wire.AnyWait {
		t.deadline = time.Now().Add(time.Duration(op.MaxWait) * time.Microsecond)
	}
	t.horizon, t.notBefore = op.Horizon, time.Now().Add(leastToCome)
	near := time.Now().Add(wire.Wait(o.Wait) - op.Horizon)
	// Callers of other shares do not wait for one that comes late: their starts are booked before its own. The first
	// of a share, whose turn is near already, comes as soon as it can.
	light := t.share != 0 && wire.Wait(o.Wait) <= op.Horizon+lightMost
	if t.calls++; t.share != 0 && t.calls > 1 {
		t.notBefore = time.Now().Add(min(time.Duration(t.calls), leastMost) * leastToCome) // those that go before it may be late
	}
	switch {
	case t.calls > 1 || light:
		t.nearAt = latest(near, t.notBefore)
		t.comeBy = t.nearAt // any later, other callers might book the room before it, again and again
	case t.share != 0:
		t.setComeBy(near.Add(comeLateShare))
	default:
		t.setComeBy(near.Add(comeLate))
	}
	n.add(t)
	return t.ready
}

// remove takes a turn out of the line in which it waits, if it does: the caller may have been
// called. The starts are locked.
func (s *Starts) remove(t *turn) {
	if n := s.all[t.lineKey]; n != nil {
		at, _ := slices.BinarySearchFunc(n.waiters, t, compareTurns)
		n.remove(at + slices.Index(n.waiters[at:], t))
		if len(n.waiters) == 0 {
			n.setTimer()
		} // else the timer may call too early, and is then set anew
	}
}

// Arrived implements [commit.Line].
func (s *Starts) Arrived(op *commit.Op) {
	if t, ok := op.Turn.(*turn); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endExpectation(t)
	}
}

// endExpectation notes that a caller that was called has come to the commit queue, or does not
// come. The starts are locked.
func (s *Starts) endExpectation(t *turn) {
	if t.gathering != nil {
		s.gatherings.arrived(t.gathering)
		t.gathering = nil
	}
}

// Gather implements [commit.Line].
func (s *Starts) Gather(group string) {
	s.mu.Lock()
	g := s.gatherings[group]
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
		s.gatherings.end(g)
	}
}

// callNear calls the waiters for the budgets of charges whose start is within their horizon. A call that waits for others
// calls none of a line with shares: it would end the wait of the call, and the estimates of many lanes end at many
// moments. The starts are locked.
func (s *Starts) callNear(charges []store.Charge, waits bool) {
	if len(s.all) == 0 {
		return
	}
	now := time.Now()
	for i := range charges {
		if n := s.all[s.Names.Row(&charges[i].Budget)]; n != nil && !n.nearAt.After(now) && !(waits && n.shared > 0) {
			n.callNear(now)
		}
	}
}

// Waiting reports whether callers wait for budgets of a group.
func (s *Starts) Waiting(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		if n.group == group {
			return true
		}
	}
	return false
}

// Len returns how many callers wait, in how many lines, and how many were called and have not come
// to their commit queue yet.
func (s *Starts) Len() (waiting, lines, coming int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		waiting += len(n.waiters)
	}
	for _, g := range s.gatherings {
		coming += g.missing
	}
	return waiting, len(s.all), coming
}
