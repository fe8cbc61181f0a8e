package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// A Process is the [Source] of one program: a [throttle.Store] around another that knows which
// budgets are used through it, and what an operator said who paused one, so that errors repeat
// it. It is meant for a memory store. A program that shares its budgets through Redis sees
// here what it uses itself, and the whole fleet by [Fleet]. It is safe for concurrent use.
type Process struct {
	throttle.Store // the one that it is around

	begun  time.Time
	counts counts
	events lately

	mu     sync.Mutex
	notes  map[[16]byte]pausedBy
	closed map[[16]byte][]band // of the last 24 hours, the oldest first
	acts   []act               // the newest first
}

// A pausedBy is what an operator said who paused a budget, and until when.
type pausedBy struct {
	store.PauseNote
	until time.Time
}

// mostActs is how many acts are remembered.
const mostActs = 100

// NewProcess returns a source around a store. Give it to throttle as [throttle.Config.Store], and
// its Observe as [throttle.Config.Observe]: without that the page does not know how long requests
// waited.
func NewProcess(store throttle.Store) *Process {
	return &Process{Store: store, begun: time.Now(), notes: make(map[[16]byte]pausedBy), closed: make(map[[16]byte][]band)}
}

// Traits implements [throttle.Store]. A Process around no store says so.
func (p *Process) Traits() store.Traits {
	if p.Store == nil {
		return store.Traits{Err: &store.OptionError{Package: "dashboard", Option: "store", Problem: "NewProcess was given none: use memstore.New()"}}
	}
	return p.Store.Traits()
}

// Book implements [throttle.Store].
func (p *Process) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	replaces := b.Instead.Start != 0
	g, err := p.Store.Book(ctx, b)
	if replaces {
		p.counts.add(b, -1, false) // who has slots gives them back, and replaces nothing
	}

	switch {
	case err != nil:
	case g.OK:
		p.counts.add(b, 1, g.Wait == 0)
	default:
		p.counts.add(b, 0, false)
	}

	return g, err
}

// Cancel implements [throttle.Store].
func (p *Process) Cancel(b *store.Booking, g store.Grant) {
	if g.OK {
		p.counts.add(b, -1, g.Wait == 0)
	}
	p.Store.Cancel(b, g)
}

// Settle implements [throttle.Store].
func (p *Process) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	err := p.Store.Settle(ctx, b, g, costs)
	if err != nil || !g.OK {
		return err
	}
	for i := range b.Charges {
		if k := b.Charges[i].Limit.Kind(); k != store.KindConcurrency && k != store.KindUnlimited {
			p.counts.change(&b.Charges[i], func(t *tracked) { t.cost += int64(costs[i] - b.Charges[i].Cost) })
		}
	}
	return nil
}

// Pause implements [throttle.Store].
func (p *Process) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	err := p.Store.Pause(ctx, c, d)
	if err == nil {
		p.noteClosed(&c, d, fleet.ByProgram)
	}
	return err
}

// Refuse implements [throttle.Store].
func (p *Process) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	from, to, err = p.Store.Refuse(ctx, c, r)
	if err == nil {
		p.noteClosed(&c, r.Length, fleet.ByAnswer)
	}
	return from, to, err
}

// Resume implements [throttle.Store].
func (p *Process) Resume(ctx context.Context, c store.Charge) error {
	err := p.Store.Resume(ctx, c)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.notes, c.Budget.Key)
		now := time.Now().UnixMilli()
		for i, b := range p.closed[c.Budget.Key] {
			p.closed[c.Budget.Key][i].Until = min(b.Until, max(b.From, now))
		}
	}
	return err
}

// noteClosed notes that a budget is closed for d from now on, and by what, so that a page shows it that is opened later.
func (p *Process) noteClosed(c *store.Charge, d time.Duration, by string) {
	if d <= 0 {
		return
	}

	p.counts.change(c, func(t *tracked) { t.last = time.Now() })
	p.mu.Lock()
	defer p.mu.Unlock()

	note := p.noteOf(c.Budget.Key)
	if note != (store.PauseNote{}) {
		by = fleet.ByOperator
	}

	now := time.Now()
	next := band{From: now.UnixMilli(), Until: now.Add(d).UnixMilli(), Closer: by, By: note.By, Reason: note.Reason}

	own := p.closed[c.Budget.Key]
	if last := len(own) - 1; last >= 0 && own[last].Until >= next.From && own[last].By == next.By && own[last].Closer == next.Closer {
		own[last].Until = max(own[last].Until, next.Until) // many requests meet one ban
		return
	}

	if len(p.closed) >= mostInShard && own == nil {
		clear(p.closed) // they are shown only
	}

	p.closed[c.Budget.Key] = append(own[max(0, len(own)-mostBands):], next)
}

// PauseNote implements [store.Store].
func (p *Process) PauseNote(b throttle.Budget) store.PauseNote {
	p.mu.Lock()
	note := p.noteOf(b.Key)
	p.mu.Unlock()
	if note == (store.PauseNote{}) {
		return p.Store.PauseNote(b)
	}
	return note
}

// noteOf returns what an operator said who paused a budget. It is called with the lock.
func (p *Process) noteOf(key [16]byte) store.PauseNote {
	if n, ok := p.notes[key]; ok && n.until.After(time.Now()) {
		return n.PauseNote
	}
	return store.PauseNote{}
}

// Observe learns how long requests are held. It is meant for [throttle.Config.Observe], and allocates nothing.
func (p *Process) Observe(_ context.Context, e throttle.Event) { p.events.observe(&e) }
