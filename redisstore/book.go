package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Book implements [store.Store]. Of a budget that was lost, the others are given
// time to tell what they know, once, before the caller asks again: see
// docs/internals/state-loss.md.
func (p *primary) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, r, err := p.bookOnce(ctx, b, false)
	if err != nil || r.after == 0 {
		return g, err
	}
	if b.MaxWait > 0 {
		r.after = min(r.after, remaining(b.MaxWait, r.since)) // a slow answer took the rest of it
	}
	if err := sleep(ctx, r.after); err != nil {
		return store.Grant{HeldBy: store.NotHeld}, err
	}
	own := *b
	own.Instead, own.MaxWait = store.Handle{}, remaining(b.MaxWait, r.since)
	own.NotBefore = max(0, b.NotBefore-time.Since(r.since))
	// A budget that is lost again and again keeps nobody forever.
	g, _, err = p.bookOnce(ctx, &own, true)
	return g, err
}

// A retry says since when a caller has asked, and in how long it asks again. The zero retry is that
// of a caller that need not: a start was booked, or refused.
type retry struct {
	since time.Time
	after time.Duration
}

// bookOnce asks once, however often the call has to be made for that.
func (p *primary) bookOnce(ctx context.Context, b *store.Booking, informed bool) (store.Grant, retry, error) {
	op := p.op(wire.Reserve, b)
	op.Informed = informed
	if err := p.commit.Do(ctx, op, b.MaxWait); err != nil {
		p.loseWait(b)
		return store.Grant{}, retry{}, err
	}
	defer p.commit.Free(op)
	if op.Outcome.State == wire.Unsettled {
		return store.Grant{}, retry{op.Joined, wire.Wait(max(1, op.Outcome.Wait))}, nil
	}
	return p.grant(op), retry{}, nil
}

// op returns an op for a booking.
func (p *primary) op(k wire.Kind, b *store.Booking) *commit.Op {
	op := p.commit.NewOp(k, b.Charges)
	op.MaxWait, op.NotBefore, op.Spread = wire.MaxWait(b.MaxWait), b.NotBefore, b.Spread
	op.SetHandle(b.Instead)
	p.line.Join(op, b)
	return op
}

// remaining is what is left of a longest wait. One that is spent is not that of a
// caller that never waits, for whom Redis may take longer.
func remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}

// sleep waits for d.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nearServer is how long an answer may be on its way before the offset of the server's
// clock is looked at.
const nearServer = time.Millisecond

// grant is what became of an op. The start of a server that is not near is due as its clock
// tells: that is known better than from how long this answer was on its way.
func (p *primary) grant(op *commit.Op) store.Grant {
	o := &op.Outcome
	g := op.Grant()
	g.Ready, g.Handle.Stamp = op.Ready, stamp(op.First)
	if op.Turn != nil {
		g.Turn = op.Turn
	}
	if o.State == wire.InLine {
		g.Handle = store.Handle{} // the turn names its place
	}
	if !g.OK || g.Age <= nearServer || o.Repeated() {
		return g
	}
	wait, doubt, known := p.offsets.Until(op.Charges[0].Budget.Group, o.At, time.Now())
	if late := max(0, -wait) + doubt; known && late < g.Age {
		g.Age = late
		if g.Wait > 0 {
			g.Wait = max(time.Microsecond, wait)
		}
	}
	return g
}

// loseWait ends a place in line for concurrency whose caller got no answer.
func (p *primary) loseWait(b *store.Booking) {
	if place := b.Instead.Place; place != 0 {
		if lost := p.line.GiveUp(b.Charges, place, false); lost != nil {
			p.commit.Post(commit.NewReport(lost...))
		}
	}
}

// Cancel implements [store.Store].
func (p *primary) Cancel(b *store.Booking, g store.Grant) {
	if !g.OK {
		if op := p.line.Cancel(g.Turn); op != nil {
			p.commit.Tell(op)
		}
	}
	if g.Handle.Place == 0 && (g.Handle.Start == 0 || !g.OK) {
		return
	}
	p.line.GiveUp(b.Charges, g.Handle.Place, g.OK && g.Wait == 0)
	op := p.op(wire.Cancel, b)
	op.SetHandle(g.Handle)
	p.commit.Tell(op)
}

// Release implements [store.Store].
func (p *primary) Release(b *store.Booking, g store.Grant) {
	if !g.OK || g.Wait > 0 {
		return
	}
	if ended := p.line.GiveUp(b.Charges, 0, true); ended != nil {
		p.commit.Tell(commit.NewReport(ended...))
	}
}

// Settle implements [store.Store].
func (p *primary) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if !g.OK {
		return nil
	}
	if !slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return !wire.Unlimited(&c) }) {
		return nil // nothing was counted
	}
	op := p.op(wire.Settle, b)
	op.Costs = slices.Clone(costs)
	op.SetHandle(g.Handle)
	if err := p.commit.Do(ctx, op, store.AnyWait); err != nil {
		return err
	}
	p.commit.Free(op)
	return nil
}
