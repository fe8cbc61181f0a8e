package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A fleetStore keeps the budgets of the fleet, and knows nothing of those of this
// node alone.
type fleetStore struct{ *Store }

// Book implements [throttle.Store]. Of a budget that was lost, the others are given
// time to tell what they know, once, before the caller asks again: see
// docs/state-loss.md.
func (s fleetStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	if t, ok := b.Turn.(*turn); ok {
		s.queues.remove(s.Store, t)
		defer s.queues.came(t)
	}
	since := time.Now()
	g, again, err := s.bookOnce(ctx, b, false)
	if err != nil || again == 0 {
		return g, err
	}
	if b.MaxWait > 0 {
		again = min(again, remaining(b.MaxWait, since)) // a slow answer took the rest of it
	}
	if err := rest(ctx, again); err != nil {
		return throttle.Grant{Held: -1}, err
	}
	own := *b
	own.Instead, own.MaxWait = 0, remaining(b.MaxWait, since)
	own.NotBefore = max(0, b.NotBefore-time.Since(since))
	// A budget that is lost again and again keeps nobody for ever.
	g, _, err = s.bookOnce(ctx, &own, true)
	return g, err
}

// rest waits for d.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bookOnce asks once, however often the call has to be made for that. It returns
// in how long to ask again, if nothing could be booked or refused.
func (s *Store) bookOnce(ctx context.Context, b *throttle.Booking, told bool) (g throttle.Grant, again time.Duration, err error) {
	c := s.newCaller(b)
	c.Informed = told
	if c.observer = outage.Observer(ctx); c.observer != nil {
		c.failed = make(chan struct{}, 1)
	}
	timeUp, stop := conn.Timeout(ctx, b.MaxWait, c.joined)
	defer stop()
	if err := s.ask(ctx, c, timeUp); err != nil {
		s.lose(b)
		s.loseTurn(c)
		return throttle.Grant{}, 0, err
	}
	defer s.free(c)
	if c.outcome.State == wire.Unsettled {
		return throttle.Grant{}, wire.Wait(max(1, c.outcome.wait)), nil
	}
	took := time.Since(c.sent)
	g = c.outcome.grant(b.Charges, took)
	if g.OK && took > nearServer && c.outcome.since.IsZero() {
		s.place(&g, c)
	}
	g.Ready, g.Stamp = c.ready, int64(c.first.Sub(born))
	c.waitTurn(&g)
	return g, 0, nil
}

// ask sends the caller through its lane. Callers whose turn is near share its call.
func (s *Store) ask(ctx context.Context, c *caller, timeUp <-chan time.Time) error {
	if c.Horizon > 0 {
		s.queues.ride(s, c.Charges)
	}
	return s.lanes.ask(ctx, c, timeUp)
}

// nearServer is how long an answer may be on its way before the offset of the server's
// clock is looked at.
const nearServer = time.Millisecond

// place says when the start of a server that is not near is due, as its clock tells: that is
// known better than from how long this answer was on its way.
func (s *Store) place(g *throttle.Grant, c *caller) {
	wait, doubt, known := s.offsets.Until(c.Charges[0].Budget.Group, c.outcome.At, time.Now())
	if late := max(0, -wait) + doubt; known && late < g.Age {
		g.Age = late
		if g.Wait > 0 {
			g.Wait = max(time.Microsecond, wait)
		}
	}
}

// undoSoon is how long a caller that leaves waits for its place to be given
// back, so that who comes next finds it free. For a Redis that has not answered
// for so long it does not wait.
const undoSoon = 50 * time.Millisecond

// Cancel implements [throttle.Store].
func (s fleetStore) Cancel(b *throttle.Booking, g throttle.Grant) {
	if t, ok := g.Turn.(*turn); ok && !g.OK {
		s.cancelTurn(t)
	}
	if g.Mark == 0 || g.Mark > 0 && !g.OK {
		return
	}
	s.giveUp(b.Charges, -g.Mark, g.OK && g.Wait == 0)
	c := s.newCaller(b)
	c.Kind = wire.Cancel
	c.has(g.Mark)
	s.tell(c)
}

// Release implements [throttle.Store].
func (s fleetStore) Release(b *throttle.Booking, g throttle.Grant) {
	if !g.OK || g.Wait > 0 {
		return
	}
	if ended := s.giveUp(b.Charges, 0, true); ended != nil {
		c := stating(ended...)
		c.joined = time.Now()
		s.tell(c)
	}
}

// tell makes a call that gives something back, and waits a little for it.
func (s *Store) tell(c *caller) {
	unheard := s.conn.Unheard()
	s.lanes.join(c)
	if unheard >= undoSoon {
		return
	}
	soon := time.NewTimer(undoSoon - max(0, unheard))
	defer soon.Stop()
	select {
	case <-c.done:
		s.free(c)
	case <-soon.C:
	}
}

// Settle implements [throttle.Store].
func (s fleetStore) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	if !g.OK {
		return nil
	}
	if !slices.ContainsFunc(b.Charges, func(c throttle.Charge) bool { return !wire.Unlimited(&c) }) {
		return nil // nothing was counted
	}
	c := s.newCaller(b)
	c.Kind, c.Costs = wire.Settle, slices.Clone(costs)
	c.has(g.Mark)
	if err := s.ask(ctx, c, nil); err != nil {
		return err
	}
	s.free(c)
	return nil
}

// remaining is what is left of a longest wait. One that is spent is not that of a
// caller that never waits, for whom Redis may take longer.
func remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}
