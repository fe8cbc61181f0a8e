package memstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/store"
)

// This file has the callers that wait in this process, and serves their lines. [node.Caller] has the state of each caller, as in the stores that keep rows for
// many nodes. A memstore is the only node, and each change is final at once. So a line is served one caller at a time, under the locks of the caller's budgets
// alone, and callers of other budgets are not held up.

// A budget is a row, and the watches and waiters that are told of its changes.
type budget struct {
	ledger.Row
	*audience // nil if there are none
}

// An audience is the watches and waiters that are told of the changes of a row.
type audience struct {
	watches node.Watches
	slots   map[int64]chan struct{} // by arrival, of the waiters for slots
	line    map[int64]*waiter       // by arrival, of the waiters for a start
	timer   timer                   // serves the line
}

// expiry returns when nothing in the budget can matter any more: now at the earliest if the budget
// is busy or watched.
func (b *budget) expiry(now int64) int64 {
	end := b.Expiry()
	if b.Busy() || b.audience != nil && len(b.watches) > 0 {
		end = max(end, now)
	}
	return end
}

// takeSlotWaiter takes the waiter for slots with an arrival out of the audience, which is not nil. It returns
// the waiter's channel, or nil if there is no such waiter.
func (b *budget) takeSlotWaiter(arrival int64) (ready chan struct{}) {
	ready = b.slots[arrival]
	delete(b.slots, arrival)
	return ready
}

// A waiter is a caller that waits, or waited, for a start. Whoever changes it holds the lines of its shards.
type waiter struct {
	node.Caller
	shards shardSet // of the charges of the caller's booking
}

// step is changeRows for a waiter's booking. It notes in which line the waiter stands afterwards, and returns
// the news of the step. The lines of the waiter's shards are locked.
func (s *Store) step(w *waiter, do func(*ledger.Request)) ledger.News {
	return s.changeRows(w.Booking(), func(q *ledger.Request) {
		// The waiter's place may change: forget the old one, and note the new one afterwards.
		if key, at, waits := w.Line(); waits {
			delete(s.shards[key[0]].budgets[key].line, at)
		}
		do(q)
		if key, at, waits := w.Line(); waits {
			s.audience(key).line[at] = w
		}
	})
}

// bookInLine is Book for a caller that may have to wait in line, or has waited in a line.
func (s *Store) bookInLine(b *store.Booking) store.Grant {
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}
	g, moved := s.stand(w, b)
	s.serve(moved)
	return g
}

// stand answers a waiter with the start that was booked for it meanwhile, or books for it, puts it in a line or
// refuses it. It returns the lines in which there may be room now, among them the waiter's own line if the waiter is at its head.
func (s *Store) stand(w *waiter, b *store.Booking) (g store.Grant, moved []ledger.Key) {
	// The waiter may still stand in a line of its last booking, whose shards can be different.
	shards := shardsOf(b.Charges)
	held := shards.with(w.shards)
	s.lockLines(held)
	defer s.unlockLines(held)

	g, booked := w.Deliver(b, s.clock.now(), node.Punctual)
	if booked {
		g.Turn = w
		return g, nil
	}

	w.Come(b)

	// The waiter leaves before Ask replaces its last booking, by which step finds the rows that it stands in.
	if w.IsKnown() {
		moved = s.step(w, w.Leave).Moved
	}

	// The waiter stands in no line now, so its shards may change.
	w.Ask(b, s.clock.now())
	w.shards = shards
	s.step(w, func(q *ledger.Request) {
		// Stand gives back the caller's place in the line for slots, if it has one, and may give it a new one.
		s.unslot(b, b.Instead)
		q.Stand(&w.Waiter)
		s.standBy(q)
		g = w.Answer(q)
	})
	g.Turn = w

	// A waiter at the head of its line may be due already.
	if key, _, waits := w.Line(); waits {
		if head, _ := s.head(key); head == w {
			moved = append(moved, key)
		}
	}

	return g, moved
}

// giveUp has a waiter leave its line for good.
func (s *Store) giveUp(w *waiter) {
	var moved []ledger.Key
	s.lockLines(w.shards)
	if w.IsKnown() {
		moved = s.step(w, w.GiveUp).Moved
	}
	s.unlockLines(w.shards)

	s.serve(moved)
}

// serve serves the callers at the heads of lines, as far as their starts are within the horizon. It sets the timer of
// each line for when the next caller is due. The caller of serve holds no locks.
func (s *Store) serve(lines []ledger.Key) {
	for len(lines) > 0 {
		// All budgets of the waiter are to be locked, so find out first which waiter it is.
		key := lines[0]
		w, shards := s.head(key)
		if w == nil {
			lines = lines[1:]
			continue
		}

		s.lockLines(shards)

		// Others may have served the waiter, or its caller may have left, before the lines were locked: then look again who is the head.
		if head, headShards := s.head(key); head == w && headShards == shards {
			next, done := s.serveHead(key, w)
			if done {
				lines = lines[1:]
			}

			// The waiter may stand in the line for a second budget now, which is served next.
			lines = append(lines, next...)
		}

		s.unlockLines(shards)
	}
}

// serveHead serves w, the waiter at the head of a line, if it is due: the waiter is woken, unless it stands in the line for a
// second budget afterwards, which serveHead then returns. If the waiter is not due, nobody in the line can be served yet: then
// serveHead sets the line's timer, and done is true. The lines of the waiter's shards are locked.
func (s *Store) serveHead(key ledger.Key, w *waiter) (next []ledger.Key, done bool) {
	var later time.Duration
	var ready chan struct{}
	s.step(w, func(q *ledger.Request) {
		// Ask and serve in one step: after a penalty between the two the waiter would be booked far behind the penalty's end.
		later = q.Due(&w.Waiter, key)
		if later == 0 {
			ready = w.Served(q, q.Serve(&w.Waiter, key))
		}
	})

	// The other waiters in line come after this waiter, and wait until it is due.
	if later > 0 {
		s.lookAgain(key, later)
		return nil, true
	}

	// A second budget holds the waiter, so it stands in that line now, and is not woken.
	if ready == nil {
		second, _, _ := w.Line()
		return []ledger.Key{second}, false
	}

	s.clock.wake(ready)
	return nil, false
}

// head returns the waiter that is served next in the line of a budget, and the shards of its charges. If nobody waits, or a called
// waiter is still to come, it returns nil and stops the line's timer.
func (s *Store) head(key ledger.Key) (*waiter, shardSet) {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()

	b := sh.budgets[key]
	if b == nil {
		return nil, shardSet{}
	}

	at, ok := b.Head(key)
	if !ok {
		// A called waiter serves the line when it comes, so there is nothing to look at later.
		if b.audience != nil && b.timer != nil {
			b.timer.Stop()
		}
		return nil, shardSet{}
	}

	w := b.line[at.Arrival]
	return w, w.shards
}

// lookAgain has the line of a budget served in the time later. A time that an earlier call has set is replaced.
func (s *Store) lookAgain(key ledger.Key, later time.Duration) {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	if b.timer == nil {
		b.timer = s.clock.afterFunc(later, func() { s.serve([]ledger.Key{key}) })
	} else {
		b.timer.Reset(later)
	}
}

// dismiss summons each waiter whose MaxWait ends before its closed budget opens. The waiter books
// again and is refused at once. The caller of dismiss holds no locks.
func (s *Store) dismiss(closed []ledger.Closed) {
	for _, c := range closed {
		for _, before := range s.impatient(c) {
			s.lockLines(before.shards)

			// The waiter may have been served, or have left, before its lines were locked.
			if w := before.w; s.stands(c.Key, &before) {
				var ready chan struct{}
				s.step(w, func(q *ledger.Request) { ready = w.Dismiss(q) })
				s.clock.wake(ready)
			}

			s.unlockLines(before.shards)
		}
	}
}

// A standing is a waiter in the line of a budget, as it stood when the budget's shard was locked.
type standing struct {
	arrival int64
	w       *waiter
	shards  shardSet // of the waiter's charges
}

// stands reports whether a waiter still stands in the line of a budget as it stood before. Only then do the lines of before.shards, which were locked meanwhile,
// guard it.
func (s *Store) stands(key ledger.Key, before *standing) bool {
	sh := &s.shards[key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.budgets[key]
	return b != nil && b.audience != nil && b.line[before.arrival] == before.w && before.w.shards == before.shards
}

// impatient returns the waiters in the line of a closed budget whose MaxWait ends before the budget opens.
func (s *Store) impatient(c ledger.Closed) (all []standing) {
	sh := &s.shards[c.Key[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()

	b := sh.budgets[c.Key]
	if b == nil || b.audience == nil {
		return nil
	}

	// The waiters are collected here, because dismiss locks their shards only after this shard is unlocked.
	for at, w := range b.line {
		if w.EndsBefore(c.Until) {
			all = append(all, standing{at, w, w.shards})
		}
	}

	return all
}

// A watching is the watch over the start of a booking, until it is used or given back.
type watching struct {
	node.Watch
	store   *Store
	charges []store.Charge
}

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &watching{store: s, charges: b.Charges}
	w.Begin(b.Charges, g, news)

	held := s.lock(b.Charges)
	defer s.unlock(held)

	for i := range b.Charges {
		if c := &b.Charges[i]; !c.Shadow {
			s.audience(c.Budget.Key).watches[&w.Watch] = struct{}{}
		}
	}

	// The start may have become useless between its booking and this watch.
	if !w.usable() {
		w.Tell()
	}

	return w
}

// Confirm implements [store.Watch].
func (w *watching) Confirm(context.Context, time.Duration) (bool, error) {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	return w.usable(), nil
}

// Stop implements [store.Watch].
func (w *watching) Stop() {
	held := w.store.lock(w.charges)
	defer w.store.unlock(held)
	for i := range w.charges {
		if b := w.budget(w.charges[i].Budget.Key); b != nil && b.audience != nil {
			delete(b.watches, &w.Watch)
		}
	}
}

// usable reports whether the start may be used. The shards are locked.
func (w *watching) usable() bool {
	return w.Usable(func(key ledger.Key) *ledger.Row {
		if b := w.budget(key); b != nil {
			return &b.Row
		}
		return nil
	})
}

// budget returns the budget of a key, or nil if there is none. Its shard is locked.
func (w *watching) budget(key ledger.Key) *budget { return w.store.shards[key[0]].budgets[key] }
