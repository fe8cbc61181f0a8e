package dashboard

import (
	"cmp"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
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
	closed map[[16]byte][]band // since the last reading
	acts   []act               // the newest first

	last         map[[16]byte]tracked // as the last reading found them
	lastRequests int64
	lastAt       time.Time
}

// A pausedBy is what an operator said who paused a budget, and until when.
type pausedBy struct {
	throttle.PauseNote
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

// Book implements [throttle.Store].
func (p *Process) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
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
func (p *Process) Cancel(b *throttle.Booking, g throttle.Grant) {
	if g.OK {
		p.counts.add(b, -1, g.Wait == 0)
	}
	p.Store.Cancel(b, g)
}

// Settle implements [throttle.Store].
func (p *Process) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	err := p.Store.Settle(ctx, b, g, costs)
	if err != nil || !g.OK {
		return err
	}
	for i := range b.Charges {
		if k := b.Charges[i].Limit.Kind(); k != throttle.KindConcurrency && k != throttle.KindUnlimited {
			p.counts.change(&b.Charges[i], func(t *tracked) { t.cost += int64(costs[i] - b.Charges[i].Cost) })
		}
	}
	return nil
}

// Pause implements [throttle.Store].
func (p *Process) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	err := p.Store.Pause(ctx, c, d)
	if err == nil {
		p.noteClosed(&c, d)
	}
	return err
}

// Refuse implements [throttle.Store].
func (p *Process) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	from, to, err = p.Store.Refuse(ctx, c, r)
	if err == nil {
		p.noteClosed(&c, r.Length)
	}
	return from, to, err
}

// Resume implements [throttle.Store].
func (p *Process) Resume(ctx context.Context, c throttle.Charge) error {
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

// noteClosed notes that a budget is closed for d from now on, so that a page shows it that is opened later.
func (p *Process) noteClosed(c *throttle.Charge, d time.Duration) {
	if d <= 0 {
		return
	}
	p.counts.change(c, func(t *tracked) { t.last = time.Now() })
	p.mu.Lock()
	defer p.mu.Unlock()
	note := p.noteOf(c.Budget.Key)
	now := time.Now()
	next := band{From: now.UnixMilli(), Until: now.Add(d).UnixMilli(), By: note.By, Reason: note.Reason}
	own := p.closed[c.Budget.Key]
	if last := len(own) - 1; last >= 0 && own[last].Until >= next.From && own[last].By == next.By {
		own[last].Until = max(own[last].Until, next.Until) // many requests meet one ban
		return
	}
	if len(p.closed) >= mostInShard && own == nil {
		clear(p.closed) // they are shown only
	}
	p.closed[c.Budget.Key] = append(own[max(0, len(own)-mostBands):], next)
}

// PauseNote implements [throttle.PauseNoter].
func (p *Process) PauseNote(b throttle.Budget) throttle.PauseNote {
	p.mu.Lock()
	note := p.noteOf(b.Key)
	p.mu.Unlock()
	if inner, ok := p.Store.(throttle.PauseNoter); ok && note == (throttle.PauseNote{}) {
		return inner.PauseNote(b)
	}
	return note
}

// noteOf returns what an operator said who paused a budget. It is called with the lock.
func (p *Process) noteOf(key [16]byte) throttle.PauseNote {
	if n, ok := p.notes[key]; ok && n.until.After(time.Now()) {
		return n.PauseNote
	}
	return throttle.PauseNote{}
}

// Observe learns how long requests are held. It is meant for [throttle.Config.Observe], and allocates nothing.
func (p *Process) Observe(_ context.Context, e throttle.Event) { p.events.observe(&e) }

// idOf returns the id of a budget on the page.
func idOf(b throttle.Budget) string { return b.String() }

// read implements [Source].
func (p *Process) read(ctx context.Context, most int, _ bool) (*reading, error) {
	all := p.counts.read()
	now := time.Now()
	p.events.step(now)
	r := &reading{At: now, Kind: kindProcess}
	statuses := make(map[[16]byte]throttle.Status)
	for i := range all {
		st, err := p.Status(ctx, all[i].charge)
		if err != nil {
			return nil, err
		}
		statuses[all[i].charge.Budget.Key] = st
	}
	rate := p.ratesOf(all, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Closed = make(map[string][]band)
	for i := range all {
		t := &all[i]
		key := t.charge.Budget.Key
		b := budgetOf(&t.charge, statuses[key], now)
		before := rate.last[key] // a budget that is new had nothing before
		b.Starts, b.Cost = rate.of(t.starts-before.starts), rate.of(t.cost-before.cost)
		note := p.noteOf(key)
		b.By, b.Reason = fleet.Clean(note.By, longestName), fleet.Clean(note.Reason, longestReason)
		b.Waits, b.Shadowed = p.events.of(t.charge.Budget.Policy, t.charge.Shadow)
		for _, c := range p.closed[key] {
			if c.Until <= now.UnixMilli() {
				r.Closed[b.ID] = append(r.Closed[b.ID], c)
			} else {
				b.Since = c.From
			}
		}
		r.Budgets = append(r.Budgets, b)
	}
	p.forgetClosed(now)
	if p.counts.full.Load() {
		r.BudgetsLeftOut = 1
	}
	sortBudgets(r.Budgets)
	r.BudgetsLeftOut += max(0, len(r.Budgets)-most)
	r.Nodes = []node{p.node(len(r.Budgets), rate.of(rate.requests))}
	r.Budgets = r.Budgets[:min(len(r.Budgets), most)]
	r.Acts = slices.Clone(p.acts)
	return r, nil
}

// forgetClosed forgets what is over, because the page knows it now.
func (p *Process) forgetClosed(now time.Time) {
	for key, all := range p.closed {
		p.closed[key] = slices.DeleteFunc(all, func(b band) bool { return b.Until <= now.UnixMilli() })
		if len(p.closed[key]) == 0 {
			delete(p.closed, key)
		}
	}
	for key, n := range p.notes {
		if !n.until.After(now) {
			delete(p.notes, key)
		}
	}
}

// rates are what was counted since the last reading.
type rates struct {
	last     map[[16]byte]tracked
	requests int64
	span     time.Duration
}

// ratesOf returns what was counted since the last reading, and remembers this one.
func (p *Process) ratesOf(all []tracked, now time.Time) rates {
	requests := p.counts.requests.Load()
	r := rates{p.last, requests - p.lastRequests, now.Sub(p.lastAt)}
	p.last, p.lastRequests, p.lastAt = make(map[[16]byte]tracked, len(all)), requests, now
	for _, t := range all {
		p.last[t.charge.Budget.Key] = t
	}
	return r
}

// unknown is a rate that is not known yet.
const unknown = -1

// of returns a number as so many in a second; unknown if the last reading is long ago.
func (r rates) of(n int64) float64 {
	if r.span <= 0 || r.span > 10*every {
		return unknown
	}
	return math.Round(float64(max(0, n))/r.span.Seconds()*100) / 100
}

// node returns this program.
func (p *Process) node(budgets int, starts float64) node {
	host, _ := os.Hostname()
	return node{
		ID: "self", Program: fleet.Clean(filepath.Base(os.Args[0]), longestName), Host: fleet.Clean(host, longestName),
		PID: os.Getpid(), Since: p.begun.UnixMilli(), Budgets: budgets, Starts: starts,
	}
}

// find returns the charge of a budget by its id.
func (p *Process) find(id string) (throttle.Charge, error) {
	for _, t := range p.counts.read() {
		if idOf(t.charge.Budget) == id {
			return t.charge, nil
		}
	}
	return throttle.Charge{}, &fleet.TargetError{Name: id, Why: "the program has no budget of this name"}
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
	p.notes[key] = pausedBy{throttle.PauseNote{By: by, Reason: reason}, now.Add(d)} // before the budget is closed, so that who meets it knows
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
	if p.PauseNote(c.Budget) == (throttle.PauseNote{}) {
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

// budgetOf returns a budget of a charge as a store describes it.
func budgetOf(c *throttle.Charge, st throttle.Status, now time.Time) budget {
	kind, capacity := kindOf(c.Limit)
	_, key, _ := cutLast(c.Budget.String(), "/")
	b := budget{
		ID: fleet.Clean(idOf(c.Budget), longestName), Name: fleet.Clean(c.Budget.String(), longestName), Policy: fleet.Clean(c.Budget.Policy, longestName),
		Key: key, Upstream: fleet.Clean(c.Budget.Group, longestName), Limits: []string{c.Limit.String()},
		Kind: kind, Capacity: capacity, Shadow: c.Shadow, Nodes: 1,
		Used: st.Used, Booked: st.Booked, Waiting: st.Waiting, Wait: st.Wait.Milliseconds(), Repeated: st.Repeated, Ceiling: st.Ceiling,
	}
	if st.Wait == throttle.Never {
		b.Wait = -1
	} else if st.Wait > 0 {
		b.Wait = max(1, b.Wait)
	}
	if st.Paused > 0 {
		b.Until = now.Add(st.Paused).UnixMilli()
	}
	return b
}

// cutLast is strings.Cut at the last place.
func cutLast(text, at string) (before, after string, found bool) {
	if i := strings.LastIndex(text, at); i >= 0 {
		return text[:i], text[i+len(at):], true
	}
	return text, "", false
}

// sortBudgets sorts budgets: those that are closed first, then those that hold requests, then those used most.
func sortBudgets(all []budget) {
	weight := func(b *budget) int {
		switch {
		case b.Until > 0:
			return 2
		case b.Waiting > 0:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b budget) int {
		return cmp.Or(weight(&b)-weight(&a), cmp.Compare(b.Starts, a.Starts), cmp.Compare(b.Used, a.Used), strings.Compare(a.ID, b.ID))
	})
}
