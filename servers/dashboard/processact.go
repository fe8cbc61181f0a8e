package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// find returns the charge of a budget by its id.
func (p *Process) find(id string) (store.Charge, error) {
	for _, t := range p.counts.read() {
		if idOf(t.charge.Budget) == id {
			return t.charge, nil
		}
	}
	return store.Charge{}, &fleet.TargetError{Name: id, Why: "the program has no budget of this name"}
}

// pause implements [Source].
func (p *Process) pause(ctx context.Context, id string, d time.Duration, by, reason string) error {
	c, err := p.find(id)
	if err != nil {
		return err
	}

	key, now := c.Budget.Key, time.Now()
	p.mu.Lock()

	before, had := p.notes[key]
	if had && before.until.After(now.Add(d)) {
		p.mu.Unlock()
		return &fleet.LongerError{Note: fleet.Note{Policy: c.Budget.Policy, Budget: id, By: before.By, Reason: before.Reason, Until: before.until}}
	}

	p.notes[key] = pausedBy{store.PauseNote{By: by, Reason: reason}, now.Add(d)} // before the budget is closed, so that who meets it knows
	p.mu.Unlock()
	err = p.Pause(ctx, c, d)
	p.mu.Lock()
	defer p.mu.Unlock()

	if err != nil {
		p.notes[key] = before
	}

	p.log(act{At: now.UnixMilli(), Act: "pause", What: id, By: by, Reason: reason, For: d.Milliseconds(), Failed: err != nil})
	return err
}

// resume implements [Source].
func (p *Process) resume(ctx context.Context, id, by, reason string) error {
	c, err := p.find(id)
	if err != nil {
		return err
	}

	if p.PauseNote(c.Budget) == (store.PauseNote{}) {
		st, err := p.Status(ctx, c)
		if err != nil {
			return err
		}
		return &fleet.NotPausedError{Budget: id, Closed: st.Paused}
	}

	err = p.Resume(ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()

	p.log(act{At: time.Now().UnixMilli(), Act: "resume", What: id, By: by, Reason: reason, Failed: err != nil})
	return err
}

// log notes an act.
func (p *Process) log(a act) {
	p.acts = slices.Insert(p.acts, 0, a)
	p.acts = p.acts[:min(len(p.acts), mostActs)]
}
