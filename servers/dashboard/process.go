package dashboard

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// Process is the [Source] of one program: a [throttle.Store] that wraps the
// program's own store. It records which budgets the program uses, and the name
// and reason of an operator's pause, so that errors repeat both. It is meant
// for a memory store. With a Redis store it sees only what this program uses:
// use [Fleet] for the whole fleet. It is safe for concurrent use. Create it
// with [NewProcess].
type Process struct {
	throttle.Store // the wrapped store

	begun  time.Time
	counts counts
	events lately

	mu     sync.Mutex
	notes  map[[16]byte]pausedBy
	closed map[[16]byte][]band // of the last 24 hours, oldest first
	acts   []act               // newest first
}

// A pausedBy is the note of an operator's pause, and when the pause was stored and ends.
type pausedBy struct {
	store.PauseNote
	since, until time.Time
}

const (
	// The store counts a pause from a moment later than its note, so ends that are as close as this are the same.
	sameEnd = time.Second

	// A pause whose note is this young may be on its way to the store.
	youngNote = 10 * time.Second
)

// holds reports whether the pause of the note keeps a budget closed: the pause is not over, no different program has ended
// it, and no ban ends later. paused is how long the budget stays closed, as the store says.
func (n *pausedBy) holds(paused time.Duration, now time.Time) bool {
	left := n.until.Sub(now)
	return left > 0 && !n.isEnded(paused, now) && paused-left <= sameEnd
}

// isEnded reports whether a different program has ended the pause of the note: the budget is open, or opens before the end of
// the pause. paused is how long the budget stays closed, as the store says.
func (n *pausedBy) isEnded(paused time.Duration, now time.Time) bool {
	return paused <= 0 || n.until.Sub(now)-paused > sameEnd
}

// mostActs is how many acts are remembered.
const mostActs = 100

// NewProcess returns a source that wraps a store. Set it as
// [throttle.Config.Store], and its Observe as [throttle.Config.Observe]:
// otherwise the page has no waiting times.
func NewProcess(store throttle.Store) *Process {
	return &Process{Store: store, begun: time.Now(), notes: make(map[[16]byte]pausedBy), closed: make(map[[16]byte][]band)}
}

// Traits implements [throttle.Store]. Its Err reports a missing store.
func (p *Process) Traits() store.Traits {
	if p.Store == nil {
		return store.Traits{Err: &store.OptionError{Package: "dashboard", Option: "store", Problem: "NewProcess was given none: use memstore.New()"}}
	}
	return p.Store.Traits()
}

// Book implements [throttle.Store]. It counts the start that the caller gets, and no longer counts the start that the
// booking replaces.
func (p *Process) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	// A booking gives back the start that it replaces, whether it gets a new one or not.
	replaces := b.Instead.Start != 0
	g, err := p.Store.Book(ctx, b)
	if replaces {
		p.counts.add(b, -1, false)
	}

	switch {
	case err != nil:
		return g, err
	case g.OK:
		p.counts.add(b, 1, g.Wait == 0)
	default:
		p.counts.add(b, 0, false)
	}

	// Show the budget that holds the caller: the caller may book nothing until a ban is over or its turn comes, which takes long.
	if g.HeldBy >= 0 && (g.Paused || g.Ready != nil) {
		p.counts.change(&b.Charges[g.HeldBy], true, func(t *tracked) { t.last = time.Now() })
	}

	return g, nil
}

// Cancel implements [throttle.Store]. It no longer counts the start. A start for later has not taken its slots yet.
func (p *Process) Cancel(b *store.Booking, g store.Grant) {
	if g.OK {
		p.counts.add(b, -1, g.Wait == 0)
	}
	p.Store.Cancel(b, g)
}

// Settle implements [throttle.Store]. It counts the settled costs.
func (p *Process) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	err := p.Store.Settle(ctx, b, g, costs)
	if err != nil || !g.OK {
		return err
	}
	for i := range b.Charges {
		// Charges under Concurrency, and unlimited charges, keep their cost: see Store.Settle.
		if k := b.Charges[i].Limit.Kind(); k != store.KindConcurrency && k != store.KindUnlimited {
			p.counts.change(&b.Charges[i], false, func(t *tracked) { t.cost += int64(costs[i] - b.Charges[i].Cost) })
		}
	}
	return nil
}

// Pause implements [throttle.Store]. It notes that the program closes the budget.
func (p *Process) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	err := p.Store.Pause(ctx, c, d)
	if err == nil {
		p.noteClosed(&c, d, fleet.ByProgram, store.PauseNote{})
	}
	return err
}

// Refuse implements [throttle.Store]. It notes that an answer closes the budget.
func (p *Process) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	from, to, err = p.Store.Refuse(ctx, c, r)
	if err == nil {
		p.noteClosed(&c, r.Length, fleet.ByAnswer, store.PauseNote{})
	}
	return from, to, err
}

// Resume implements [throttle.Store]. It notes that the budget opens.
func (p *Process) Resume(ctx context.Context, c store.Charge) error {
	err := p.Store.Resume(ctx, c)

	// The budget is open: the pause of its note is over, and its bands end now.
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

// noteClosed notes that a budget closes now for d, and what closed it, for pages opened later. note is the note of an operator, or
// zero. If d is 0 or less, it notes nothing.
func (p *Process) noteClosed(c *store.Charge, d time.Duration, by string, note store.PauseNote) {
	if d <= 0 {
		return
	}

	p.counts.change(c, true, func(t *tracked) { t.last = time.Now() })
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	next := band{From: now.UnixMilli(), Until: now.Add(d).UnixMilli(), Closer: by, By: note.By, Reason: note.Reason}

	// Many requests meet one ban, which is one band.
	own := p.closed[c.Budget.Key]
	hasCause := func(b band) bool { return b.By == next.By && b.Closer == next.Closer && b.Reason == next.Reason }
	if last := len(own) - 1; last >= 0 && own[last].Until >= next.From && hasCause(own[last]) {
		own[last].Until = max(own[last].Until, next.Until)
		return
	}

	// Make room for a further budget by forgetting bands that are over.
	if len(p.closed) >= mostInShard && own == nil {
		maps.DeleteFunc(p.closed, func(_ [16]byte, all []band) bool {
			return !slices.ContainsFunc(all, func(b band) bool { return b.Until > next.From })
		})

		// If all are in force, forget them all: the page then does not know since when their budgets are closed.
		if len(p.closed) >= mostInShard {
			clear(p.closed)
		}
	}

	// The oldest band that is over makes room. A band in force says since when the budget is closed, so it goes only if none is over.
	isOver := func(b band) bool { return b.Until <= next.From }
	if len(own) > mostBands {
		oldest := max(0, slices.IndexFunc(own, isOver))
		own = slices.Delete(own, oldest, oldest+1)
	}
	p.closed[c.Budget.Key] = append(own, next)
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

// noteFor returns the note of the operator's pause that keeps a budget closed, or the zero note if no operator's pause does.
// paused is how long the budget stays closed, as the store says. Without a note of its own noteFor asks the wrapped store.
func (p *Process) noteFor(b store.Budget, paused time.Duration) store.PauseNote {
	p.mu.Lock()
	n, ok := p.notes[b.Key]
	p.mu.Unlock()

	switch {
	case !ok:
		return p.Store.PauseNote(b)
	case n.holds(paused, time.Now()):
		return n.PauseNote
	}
	return store.PauseNote{}
}

// noteOf returns the note of an operator's pause that has not run out, or the zero note. The mutex is held.
func (p *Process) noteOf(key [16]byte) store.PauseNote {
	if n, ok := p.notes[key]; ok && n.until.After(time.Now()) {
		return n.PauseNote
	}
	return store.PauseNote{}
}

// Observe records waiting times. Set it as [throttle.Config.Observe]. It
// allocates nothing and is safe for concurrent use.
func (p *Process) Observe(_ context.Context, e throttle.Event) { p.events.observe(&e) }

// A processReader reads a Process for one page and remembers the previous reading.
type processReader struct {
	process *Process
	budgets int // at most

	// The previous reading.
	last     map[[16]byte]tracked // records by key
	requests int64
	at       time.Time
}

// reader implements [Source].
func (p *Process) reader(budgets int) reader {
	return &processReader{process: p, budgets: budgets}
}

// read implements [reader]. It asks the store about each budget, and forgets what is too old to be shown.
func (s *processReader) read(ctx context.Context, _ bool) (*reading, error) {
	p := s.process
	all := p.counts.read()
	now := time.Now()
	p.events.step(now)

	// Ask the store before the mutex is taken.
	all, known, err := p.ask(ctx, all)
	if err != nil {
		return nil, err
	}
	rate := s.ratesOf(all, now)

	p.mu.Lock()
	defer p.mu.Unlock()

	r := &reading{At: now, Kind: kindProcess, Closed: make(map[string][]band)}
	for i := range all {
		t := &all[i]
		key := t.charge.Budget.Key
		b := budgetOf(&t.charge, known[key].status, average(float64(t.cost), float64(t.starts)), now)
		before := rate.last[key] // the zero tracked for a new budget
		b.Starts, b.Cost = rate.of(t.starts-before.starts), rate.of(t.cost-before.cost)

		note := known[key].note
		b.By, b.Reason = fleet.Clean(note.By, longestName), fleet.Clean(note.Reason, longestReason)
		b.Waits, b.Shadowed = p.events.of(t.charge.Budget.Policy, t.charge.Shadow)

		ended, last := splitBands(p.closed[key], now)
		b.Since, b.Closer = last.From, last.Closer

		// If a different program has ended the pause, nobody here knows since when and why the budget is closed.
		if b.Closer == fleet.ByOperator && note == (store.PauseNote{}) {
			b.Since, b.Closer = 0, ""
		}
		if len(ended) > 0 {
			r.Closed[b.ID] = append(r.Closed[b.ID], ended...)
		}
		r.Budgets = append(r.Budgets, b)
	}
	p.forgetClosed(now)

	// Count the budgets of the node before the list is cut.
	r.Nodes = []node{p.node(len(r.Budgets), rate.of(rate.requests))}
	sortBudgets(r.Budgets)
	r.cut(s.budgets)

	// A full shard has lost one budget at least.
	if p.counts.hasLost() {
		r.BudgetsLeftOut++
	}

	r.Acts = slices.Clone(p.acts)
	return r, nil
}

// A knownBudget is what the store knows of a budget, and why the budget was paused.
type knownBudget struct {
	status throttle.Status
	note   store.PauseNote
}

// ask asks the store about each budget, and forgets budgets that are open, have no callers in line, and have been idle for long. A budget that has not been idle for
// long is no longer urgent. It returns the budgets that are left, in the memory of the slice all, and by key what the store knows of each. After an error some
// budgets may be forgotten already.
func (p *Process) ask(ctx context.Context, all []tracked) ([]tracked, map[[16]byte]knownBudget, error) {
	known := make(map[[16]byte]knownBudget)
	kept := all[:0]
	for i := range all {
		t := &all[i]
		st, err := p.Status(ctx, t.charge)
		if err != nil {
			return nil, nil, err
		}

		// Only the store knows whether a budget that is idle is closed, or has callers in line.
		isQuiet := st.Paused == 0 && st.Waiting == 0
		if isQuiet && p.counts.forget(t) {
			continue
		}

		key := t.charge.Budget.Key
		known[key] = knownBudget{st, p.noteFor(t.charge.Budget, st.Paused)}
		kept = append(kept, *t)
	}
	return kept, known, nil
}

// splitBands returns the closures that are over, and the closure in force that ends last, or a zero band. A different
// closure in force counts as over from the beginning of last on.
func splitBands(all []band, now time.Time) (ended []band, last band) {
	for _, c := range all {
		if c.Until <= now.UnixMilli() {
			ended = append(ended, c)
		} else if c.Until >= last.Until {
			last = c
		}
	}

	// A closure that began before last, and is in force, ends where last begins.
	for _, c := range all {
		if c.Until > now.UnixMilli() && c.From < last.From {
			c.Until = last.From
			ended = append(ended, c)
		}
	}
	return ended, last
}

// cut cuts the list of budgets to a length, and counts the budgets that are left out. A closed shadow budget holds no
// request, so it does not count as closed.
func (r *reading) cut(length int) {
	length = min(length, len(r.Budgets))
	for _, b := range r.Budgets[length:] {
		r.BudgetsLeftOut++
		if b.Until > 0 && !b.Shadow {
			r.ClosedLeftOut++
		}
	}
	r.Budgets = r.Budgets[:length]
}

// forgetClosed forgets bands that ended a day ago, and notes of pauses that are over. The mutex is held.
func (p *Process) forgetClosed(now time.Time) {
	oldest := now.Add(-coarseKept).UnixMilli()
	for key, all := range p.closed {
		p.closed[key] = slices.DeleteFunc(all, func(b band) bool { return b.Until < oldest })
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

// rates turns counts since the previous reading into rates.
type rates struct {
	last     map[[16]byte]tracked // records of the previous reading, by key
	requests int64                // requests handed on since then
	span     time.Duration        // time since then
}

// ratesOf returns the rates since the previous reading, and remembers this reading.
func (s *processReader) ratesOf(all []tracked, now time.Time) rates {
	requests := s.process.counts.requests.Load()
	r := rates{s.last, requests - s.requests, now.Sub(s.at)}

	s.last, s.requests, s.at = make(map[[16]byte]tracked, len(all)), requests, now
	for _, t := range all {
		s.last[t.charge.Budget.Key] = t
	}
	return r
}

// unknown is an unknown rate.
const unknown = -1

// of returns a count as a rate per second. It returns unknown if there is no previous reading, or if the previous reading is
// older than the interval of Watch, with a margin.
func (r rates) of(n int64) float64 {
	if r.span <= 0 || r.span > seldom+5*every {
		return unknown
	}
	return math.Round(float64(max(0, n))/r.span.Seconds()*100) / 100
}

// node returns this program.
func (p *Process) node(budgets int, starts float64) node {
	host, _ := os.Hostname()
	return node{
		ID: "self", Program: fleet.Clean(filepath.Base(os.Args[0]), longestName), Host: fleet.Clean(host, longestName),
		PID: os.Getpid(), Since: p.begun.UnixMilli(), Off: p.off(), Budgets: budgets, Starts: starts,
	}
}

// off returns who turned throttle off in this program, and why, or "" while it is on.
func (p *Process) off() string {
	off, isOff := store.OffByEnvironment()
	if s := p.Traits().Switch; s != nil && !isOff {
		off, isOff = s.State()
	}

	if !isOff {
		return ""
	}
	return off.String()
}

// find returns the charge of a budget by its id, or a *fleet.TargetError.
func (p *Process) find(id string) (store.Charge, error) {
	for _, t := range p.counts.read() {
		if idOf(t.charge.Budget) == id {
			return t.charge, nil
		}
	}
	return store.Charge{}, &fleet.TargetError{Name: id, Why: "the program has no budget of this name"}
}

// pause implements [Source]. It logs the act, also if the store could not pause the budget. It does not log an unknown budget, a
// store that does not give the budget's status, and a longer pause in force, which is a *fleet.LongerError.
func (p *Process) pause(ctx context.Context, id string, d time.Duration, by, reason string) error {
	c, err := p.find(id)
	if err != nil {
		return err
	}

	st, err := p.Status(ctx, c)
	if err != nil {
		return err
	}

	key, now := c.Budget.Key, time.Now()
	p.mu.Lock()

	// The longer pause of a note stays, unless a different program has ended it. The pause of a young note may not have
	// reached the store yet.
	before, had := p.notes[key]
	ended := before.isEnded(st.Paused, now) && now.Sub(before.since) > youngNote
	if !ended && before.until.After(now.Add(d)) {
		p.mu.Unlock()
		return &fleet.LongerError{Note: fleet.Note{Policy: c.Budget.Policy, Budget: id, By: before.By, Reason: before.Reason, Until: before.until}}
	}

	// Set the note before the pause: a request refused in between should already carry the reason.
	note := store.PauseNote{By: by, Reason: reason}
	p.notes[key] = pausedBy{note, now, now.Add(d)}
	p.mu.Unlock()
	err = p.Store.Pause(ctx, c, d)
	if err == nil {
		p.noteClosed(&c, d, fleet.ByOperator, note)
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	// A pause that failed changes no note.
	switch {
	case err != nil && had:
		p.notes[key] = before
	case err != nil:
		delete(p.notes, key)
	}

	p.log(act{At: now.UnixMilli(), Act: "pause", What: id, By: by, Reason: reason, For: d.Milliseconds(), Failed: err != nil})
	return err
}

// resume implements [Source]. It logs the act, also if the store could not open the budget. It does not log an unknown budget, a
// store that does not give the budget's status, and a budget that no operator's pause keeps closed, which is a
// *fleet.NotPausedError.
func (p *Process) resume(ctx context.Context, id, by, reason string) error {
	c, err := p.find(id)
	if err != nil {
		return err
	}

	st, err := p.Status(ctx, c)
	if err != nil {
		return err
	}
	if p.noteFor(c.Budget, st.Paused) == (store.PauseNote{}) {
		return &fleet.NotPausedError{Budget: id, Closed: st.Paused}
	}

	err = p.Resume(ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()

	p.log(act{At: time.Now().UnixMilli(), Act: "resume", What: id, By: by, Reason: reason, Failed: err != nil})
	return err
}

// log notes an act. The mutex is held.
func (p *Process) log(a act) {
	p.acts = slices.Insert(p.acts, 0, a)
	p.acts = p.acts[:min(len(p.acts), mostActs)]
}

// A tracked is the record of a budget that the program has used.
type tracked struct {
	charge store.Charge // of cost 1
	starts int64        // starts handed on, ever
	cost   int64        // cost charged, ever
	last   time.Time    // latest demand
	urgent bool         // it was closed, or callers waited, at the latest look
}

// counts records the budgets of a program. It runs on each request's path: a lock per shard, and no
// allocation for a known budget.
type counts struct {
	shards [16]struct {
		mu  sync.Mutex
		all map[[16]byte]*tracked
	}
	lost     atomic.Pointer[time.Time] // when a budget found no room, at the latest; nil: never
	requests atomic.Int64              // requests handed on, ever
}

const (
	mostInShard = 256         // 4,096 budgets in all
	forgotten   = time.Hour   // idle time after which an open budget is forgotten
	soonAgain   = time.Minute // the same, for a full shard
)

// add counts the starts of a booking: 1 for a granted start, -1 for a start given back, 0 for neither. now
// means that the start is now: only then does it take slots.
func (c *counts) add(b *store.Booking, starts int64, now bool) {
	// A booking without a horizon only takes the slots of a start that was booked earlier, so it is no further
	// request, unless it has other charges.
	request := b.Horizon > 0
	for i := range b.Charges {
		charge, n := &b.Charges[i], starts
		countsSlots := charge.Limit.Kind() == store.KindConcurrency
		request = request || !countsSlots
		if countsSlots && !now {
			n = 0
		}

		c.change(charge, false, func(t *tracked) {
			t.starts += n
			t.cost += n * int64(charge.Cost)
			t.last = time.Now()
		})
	}

	if request {
		c.requests.Add(starts)
	}
}

// change updates the record of a charge's budget. urgent means that the budget is closed, or that a caller
// waits for it. A new budget gets a record, for which makeRoom may forget others. If its shard has no room,
// change only sets lost.
func (c *counts) change(charge *store.Charge, urgent bool, update func(*tracked)) {
	s := &c.shards[charge.Budget.Key[0]%16]
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.all[charge.Budget.Key]
	if t == nil {
		if len(s.all) >= mostInShard {
			makeRoom(s.all, urgent)
		}

		if len(s.all) >= mostInShard {
			now := time.Now()
			c.lost.Store(&now)
			return
		}

		if s.all == nil {
			s.all = make(map[[16]byte]*tracked)
		}

		t = new(tracked)
		s.all[charge.Budget.Key] = t
	}

	// Keep the terms of the budget, not the amounts of this request.
	own := *charge
	own.Cost, own.KeepFree, own.Pace = 1, 0, 0
	t.charge, t.urgent = own, t.urgent || urgent
	update(t)
}

// hasLost reports whether a budget found no room in the last minute. A budget that is used later than that
// finds the room of others that were idle meanwhile.
func (c *counts) hasLost() bool {
	lost := c.lost.Load()
	return lost != nil && time.Since(*lost) <= soonAgain
}

// makeRoom forgets the budgets of a shard that have been idle for longer than soonAgain. If none has, it forgets the
// longest idle budget, but only for an urgent budget. It never forgets urgent budgets.
func makeRoom(all map[[16]byte]*tracked, urgent bool) {
	var idlest *tracked
	for key, t := range all {
		switch {
		case t.urgent: // an operator looks for it, however rarely it is used
		case time.Since(t.last) > soonAgain:
			delete(all, key)
		case idlest == nil || t.last.Before(idlest.last):
			idlest = t
		}
	}

	isFull := len(all) >= mostInShard
	if urgent && isFull && idlest != nil {
		delete(all, idlest.charge.Budget.Key)
	}
}

// forget forgets a budget that was idle for longer than forgotten, and reports whether it did. A budget that was idle for
// less is no longer urgent. seen is the record of a budget that is open, and without callers in line. If the budget was
// used since, forget changes nothing.
func (c *counts) forget(seen *tracked) bool {
	key := seen.charge.Budget.Key
	s := &c.shards[key[0]%16]
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.all[key]
	if t == nil || t.last != seen.last {
		return false
	}

	t.urgent = false
	if time.Since(t.last) <= forgotten {
		return false
	}
	delete(s.all, key)
	return true
}

// read returns a copy of all records.
func (c *counts) read() (all []tracked) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, t := range s.all {
			all = append(all, *t)
		}
		s.mu.Unlock()
	}
	return all
}

// A histogram counts durations from a millisecond to almost eight hours, in buckets that grow by a fifth. It is
// safe for concurrent use.
type histogram [buckets]atomic.Int64

const buckets = 100

// perDouble is how many buckets a doubling spans.
const perDouble = 4

// add counts a duration in its bucket. Durations beyond the last bound count in the last bucket.
func (h *histogram) add(d time.Duration) {
	at := 0
	if ms := float64(d) / float64(time.Millisecond); ms > 1 {
		at = min(int(math.Ceil(perDouble*math.Log2(ms))), len(h)-1)
	}
	h[at].Add(1)
}

func (h *histogram) read() (n [buckets]int64) {
	for i := range h {
		n[i] = h[i].Load()
	}
	return n
}

// quantile returns a quantile of the durations counted between before and now, in milliseconds, and their
// number.
func quantile(before, now *[buckets]int64, share float64) (ms int64, count int) {
	var sum [buckets]int64
	total := int64(0)
	for i := range now {
		total += now[i] - before[i]
		sum[i] = total
	}

	// The first bucket holds durations of at most 1 ms and reads as 0. Bucket i ends at 2^(i/perDouble) ms.
	at := slices.IndexFunc(sum[:], func(n int64) bool { return float64(n) >= share*float64(total) })
	if total == 0 || at <= 0 {
		return 0, int(total)
	}
	return int64(math.Round(math.Exp2(float64(at) / perDouble))), int(total)
}

// lately measures how long requests were held in the last minute. Events are counted on the request's path,
// and readings subtract the counts of a minute ago. A reading more than a minute after the previous one shows no waits.
type lately struct {
	mu       sync.RWMutex
	policies map[string]*policyWaits
	steps    []step // of the last minute, oldest first
}

// policyWaits are the waiting times of a policy's requests.
type policyWaits struct {
	held   histogram // by the policy that held them last
	shadow histogram // additional waits under a shadow policy
}

// A step is a copy of the counts at a moment.
type step struct {
	at       time.Time
	policies map[string]waitCounts
}

type waitCounts struct{ held, shadow [buckets]int64 }

const (
	window       = time.Minute
	mostPolicies = 256
)

// observe records an event.
func (l *lately) observe(e *throttle.Event) {
	if e.Policy == "" {
		return // no policy held the request
	}

	switch e.Kind {
	case throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp:
		if p := l.policy(e.Policy); p != nil {
			p.held.add(e.Duration)
		}

	case throttle.EventShadowed:
		if p := l.policy(e.Policy); p != nil {
			p.shadow.add(e.Duration)
		}
	}
}

// policy returns the counts of a policy, which it makes if need be, or nil if there are too many policies.
func (l *lately) policy(name string) *policyWaits {
	l.mu.RLock()
	p := l.policies[name]
	l.mu.RUnlock()
	if p != nil {
		return p
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	// Look again: a different goroutine may have added the policy between the locks.
	p = l.policies[name]
	if p != nil || len(l.policies) >= mostPolicies {
		return p
	}
	if l.policies == nil {
		l.policies = make(map[string]*policyWaits)
	}

	p = new(policyWaits)
	l.policies[name] = p
	return p
}

// step appends a copy of the present counts to l.steps, and drops copies older than a minute, but never the last one. A
// reading calls step first and then [lately.of], which subtracts the oldest copy from the newest.
func (l *lately) step(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := step{now, make(map[string]waitCounts)}
	for name, p := range l.policies {
		s.policies[name] = waitCounts{p.held.read(), p.shadow.read()}
	}
	l.steps = append(l.steps, s)

	// The oldest copy that stays is what of subtracts.
	for len(l.steps) > 1 && now.Sub(l.steps[0].at) > window {
		l.steps = l.steps[1:]
	}
}

// of returns the waiting times of a policy's requests in the last minute or, for a shadow policy, the waits
// that it would have added.
func (l *lately) of(policy string, isShadow bool) (*waits, *shadow) {
	l.mu.RLock()
	defer l.mu.RUnlock()

	first := l.steps[0].policies[policy]
	last := l.steps[len(l.steps)-1].policies[policy]
	if isShadow {
		p99, n := quantile(&first.shadow, &last.shadow, 0.99)
		return nil, &shadow{n, p99}
	}

	median, n := quantile(&first.held, &last.held, 0.5)
	p99, _ := quantile(&first.held, &last.held, 0.99)
	return &waits{n, median, p99}, nil
}
