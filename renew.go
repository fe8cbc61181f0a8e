package throttle

import (
	"context"
	"errors"
)

// errNotHeld is returned for permits that cannot be renewed.
var errNotHeld = errors.New("throttle: the permit was released, or could not be renewed before: acquire another")

// Renew makes sure that the work may start now, for callers that prepared something
// after Acquire: they call it right before the first byte leaves. It does nothing while
// the start is fresh. If a budget was closed meanwhile, or more of [Policy.Jitter] is
// over than can be spared, it gives the start back and books another one in the same
// step, before the callers that stand in line. It waits for that as Acquire waits, with
// a MaxWait of its own.
//
// After an error the permit holds nothing. It must not be called once the work has
// begun: a start that was used would be given back.
func (p *Permit) Renew(ctx context.Context) error {
	if p.meter == nil && p.several == nil || p.state.Load() == permitFree {
		return nil
	}
	if !p.busy() {
		return errNotHeld
	}
	a := p.acquisition()
	o := optionsOf(ctx)
	a.maxWait = o.maxWaitOr(a.maxWait)
	a.beginWait(now())
	err := a.await(ctx, waitOptions{})
	a.stopWatch()
	if err != nil {
		p.state.Store(permitGone)
		a.report(ctx, outcomeOf(err), a.waited(), err)
		return err
	}
	a.noticeOpen(ctx)
	p.keep(a)
	if p.usedAt = now(); a.hold.Policy != "" {
		a.hold.Duration = p.held.Duration + a.waited()
		p.held = a.hold
	}
	if !p.idle() {
		return errNotHeld
	}
	return nil
}
