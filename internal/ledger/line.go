package ledger

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// How a caller waits for a start: the memory that it keeps of the lines that it
// stood in, how it comes to stand in one, and how it is served there.

// A Waiter is the memory of a caller that waits, or waited, for a start: it has
// one arrival for each line in which the caller stood. The store that the caller
// called keeps it in memory: if that store dies, so does the caller. The zero
// Waiter has stood in no line.
type Waiter struct {
	class    int
	first    int64     // its arrival in lines where it has not been, after it gave up a start or lost a place. Zero means that it gets a new arrival there.
	arrivals []arrival // where it has been
	passed   []Key     // where it had its turn, and has not been booked since
	turn     Key       // where it had its last turn, or asked again before its turn
	stand    *stand    // where it stands. It is nil if the waiter stands in no line.
	hadStart bool      // it gave up a start: it goes before the waiters that had no turn, and does not keep behind the starts of others
	counted  []Key     // where its turn was counted as a turn of its share
}

// An arrival is a waiter's number in the line of one budget: an order, and no
// time.
type arrival struct {
	key Key
	at  int64
}

// A stand is a place in one of the lines.
type stand struct {
	key   Key
	class int
	share uint64 // the lane in which it stands
	place place
}

// inFront is an arrival before all others.
const inFront = -1 << 62

// Clone returns a copy, for a step that may fail.
func (w *Waiter) Clone() Waiter {
	c := *w
	c.arrivals, c.passed, c.counted = slices.Clone(w.arrivals), slices.Clone(w.passed), slices.Clone(w.counted)
	return c
}

// Line returns the budget in whose line the waiter stands, and the arrival that
// names its place. ok is false if it stands in no line.
func (w *Waiter) Line() (key Key, arrival int64, ok bool) {
	if w.stand == nil {
		return Key{}, 0, false
	}
	return w.stand.key, w.stand.place.arrival, true
}

// isCalled reports whether the waiter has had its turn, and is to come.
func (w *Waiter) isCalled() bool { return len(w.passed) > 0 && w.stand == nil }

// Keeps reports whether rows know of the waiter.
func (w *Waiter) Keeps() bool { return w.stand != nil || w.passed != nil || w.counted != nil }

// front reports whether the waiter goes before the waiters in a budget's line that
// had no turn yet.
func (w *Waiter) front(key Key) bool { return w.hadStart || slices.Contains(w.counted, key) }

// Come notes that the caller asks with the booking b. The waiter still stands
// where it stood.
func (w *Waiter) Come(b *store.Booking) {
	// A called waiter comes for its slots, and has given up nothing.
	givesUp := b.Returns && !w.isCalled()

	switch {
	// The caller comes before its turn, and keeps behind the starts of waiters that had theirs: see keepsBehind.
	case w.stand != nil:
		w.turn = w.stand.key

	case givesUp:
		w.hadStart = true
	}

	w.class = Class(b.Priority)

	// A caller that gave up a start or a place keeps its rank by its oldest arrival. If it stood in no line, it gets an arrival before all others, in the
	// order of the starts that were given up.
	if givesUp && w.first == 0 {
		w.first = inFront + b.Instead.Start
		if len(w.arrivals) > 0 {
			w.first = w.oldest()
		}
	}
}

// arrival returns the waiter's arrival in the line of a budget or, if it has not
// been there, the arrival that it brings along. known is false if it has neither.
func (w *Waiter) arrival(key Key) (at int64, known bool) {
	for i := range w.arrivals {
		if w.arrivals[i].key == key {
			return w.arrivals[i].at, true
		}
	}
	return w.first, w.first != 0
}

// noteArrival notes the waiter's arrival in the line of a budget.
func (w *Waiter) noteArrival(key Key, at int64) {
	i := slices.IndexFunc(w.arrivals, func(a arrival) bool { return a.key == key })
	if i < 0 {
		i = len(w.arrivals)
		w.arrivals = append(w.arrivals, arrival{})
	}
	w.arrivals[i] = arrival{key, at}
}

// pass notes that the waiter had its turn in a row.
func (w *Waiter) pass(key Key) {
	w.turn = key
	if !slices.Contains(w.passed, key) {
		w.passed = append(w.passed, key)
	}
}

// oldest returns the smallest of the waiter's arrivals, of which there is at least
// one.
func (w *Waiter) oldest() int64 {
	oldest := w.arrivals[0].at
	for _, a := range w.arrivals {
		oldest = min(oldest, a.at)
	}
	return oldest
}

// keptSize is how many bytes a kept arrival takes.
const keptSize = len(Key{}) + 8

// Keep appends to b the arrivals of a waiter that stands in no line, for a
// caller that leaves with its place. [Waiter.Restore] reads them.
func (w *Waiter) Keep(b []byte) []byte {
	for _, a := range w.arrivals {
		b = binary.BigEndian.AppendUint64(append(b, a.key[:]...), uint64(a.at))
	}
	return b
}

// Restore gives a new waiter the arrivals that Keep wrote, each of them moved into
// the range from 1 to now: even if somebody changed the bytes, later callers come
// behind the waiter. Restore returns false if the length is not that of one arrival
// or more.
func (w *Waiter) Restore(b []byte, now int64) bool {
	if len(b) == 0 || len(b)%keptSize != 0 {
		return false
	}
	for ; len(b) > 0; b = b[keptSize:] {
		at := int64(binary.BigEndian.Uint64(b[len(Key{}):keptSize]))
		w.noteArrival(Key(b[:len(Key{})]), max(1, min(at, now)))
	}
	return true
}

// Leave takes a waiter out of the line in which it stands, if any, and ends its
// turns, because its caller asks again, or gives up. It notes the lines that move.
// The request has the rows of the caller's last booking.
func (q *Request) Leave(w *Waiter) {
	if w.stand != nil {
		q.note().Moved = append(q.note().Moved, w.stand.key)
		q.stepOut(w)
	}

	// The lines in which the waiter was called have stood still for it, and go on.
	q.note().Moved = append(q.note().Moved, w.passed...)
	q.endTurns(w)
}

// GiveUp is Leave for a waiter that does not come again. Its share gets back the
// turns that were counted for the waiter.
func (q *Request) GiveUp(w *Waiter) {
	q.Leave(w)
	q.uncount(w)
}

// Again gives a waiter a place in line anew, because the row may not list the old
// one: see Row.Lists. It books a start at once if there is one by now. A waiter that
// needs slots must take them by itself, so it only gets its place.
func (q *Request) Again(w *Waiter) {
	i := -1 // the charge in whose line the waiter stands
	if w.stand != nil {
		i = q.indexOf(w.stand.key)
	}

	// The waiter leaves its old place first, or it would keep behind itself.
	q.recalls = true
	q.Dismiss(w)
	if q.needsSlots && i >= 0 {
		q.lineUp(w, i)
		return
	}
	q.Stand(w)
}

// Dismiss takes a waiter out of the line in which it stands, if any. It does not end
// the waiter's turns: the caller is to ask again.
func (q *Request) Dismiss(w *Waiter) {
	if w.stand != nil {
		q.stepOut(w)
	}
}

// stepOut takes a waiter out of the line in which it stands. The row may have
// forgotten the line.
func (q *Request) stepOut(w *Waiter) {
	if r := q.row(w.stand.key); r != nil && r.queue != nil {
		listed := r.queue.leave(w.stand.class, w.stand.share, w.stand.place)

		// A waiter that is only counted leaves, so the counted waiters are not silent: see forgetSilent. In a recall the store says so by StillWait.
		if !listed && !q.recalls {
			r.queue.asked = r.seen
		}
	}
	w.stand = nil
}

// endTurns ends the turns of a waiter that is booked or refused, asks again, or
// gives up: no line stands still for it any more.
func (q *Request) endTurns(w *Waiter) {
	for _, key := range w.passed {
		if r := q.row(key); r != nil && r.queue != nil {
			at, _ := w.arrival(key) // no other waiter of this line has it: see Row.lineUp
			r.queue.called = slices.DeleteFunc(r.queue.called, func(p place) bool { return p.arrival == at })
		}
	}
	w.passed = nil
}

// Book tries BookNow for a caller that has no Turn yet, and returns false if
// BookNow has decided. Otherwise it calls Stand and returns true: the waiter is
// the caller's Turn. Call Book after Waiter.Come for the same booking, and after
// Leave if the caller stood in a line.
func (q *Request) Book(w *Waiter) (turn bool) {
	if q.Booking.Turn == nil && q.BookNow() {
		return false
	}

	// BookNow may have moved the searches ahead, and written to the grant, so begin with new ones.
	for i := range q.Searches {
		// The row untouched stands for a missing one, which Open takes as nil.
		r := q.Searches[i].row
		if r == &untouched {
			r = nil
		}
		q.Searches[i] = Search{}
		q.Open(i, r)
	}
	*q.Grant = store.Grant{}
	q.Stand(w)
	return true
}

// Stand books a start for a waiter that stands in no line, puts it in a line for
// starts or for slots, or refuses it. It gives back the handle that the booking
// replaces.
func (q *Request) Stand(w *Waiter) { q.stand(w, Key{}) }

// stand does the work of Stand. turn is the budget in whose line the waiter just had
// its turn. The zero Key means that it had none.
func (q *Request) stand(w *Waiter, turn Key) {
	if turn != (Key{}) {
		w.pass(turn)
	}

	// Give back the old start before the search, or the caller would keep behind it.
	q.giveBackInstead()
	q.beginSearches(w)

	held, wait := q.hold(w, turn)
	if held < 0 {
		// No line holds the caller: book its start, which counts as a turn of its share.
		q.start(q.find(q.soonest()))
		if q.Grant.OK {
			q.count(w)
		}
	} else if refused := q.refuse(held, wait) || q.refuseCrowd(w, held, wait); !refused {
		q.lineUp(w, held)
		q.answerHeld(held, wait)
	}
	q.passOnPlace()

	// A caller that waits neither for a start nor for slots ends its turns, and the lines that stood still for it go on.
	if !q.Waits {
		q.endTurns(w)
	}
}

// beginSearches begins the search of each charge for a start of the waiter.
func (q *Request) beginSearches(w *Waiter) {
	soonest := q.soonest()
	for i := range q.Searches {
		s := &q.Searches[i]
		q.begin(s, soonest)
		if w.keepsBehind(q.key(i)) {
			s.behind(q.Booking)
		}

		// Pass.Due found the waiter's start behind the room of earlier waiters that have not booked yet, so do not search before that start.
		if q.early != 0 && q.key(i) == q.earlyKey {
			s.tail = max(s.tail, q.early)
		}
	}
}

// keepsBehind reports whether the waiter keeps behind the starts for which others
// waited in a budget. A newcomer does. So does a waiter that had its last turn in the
// budget's line, or asked again before its turn there: the others had theirs before. A
// waiter with an arrival in this line that had its last turn in a different line does
// not, nor does a caller that gave up a start: both keep their rank.
func (w *Waiter) keepsBehind(key Key) bool {
	_, known := w.arrival(key)
	return !w.hadStart && (!known || w.turn == key)
}

// answerHeld tells a caller that is not booked that the charge held holds it, for
// how long, and whether its budget is closed.
func (q *Request) answerHeld(held int, wait time.Duration) {
	q.Grant.HeldBy, q.Grant.Wait, q.Grant.Paused = held, wait, q.isPaused(held)
}

// soonest returns the earliest start to look for: the later of NotBefore and Notice, from now. Notice does not count for a caller that may not wait so
// long, nor for a caller that needs slots: it gets them only with a start that is now.
func (q *Request) soonest() int64 {
	b := q.Booking
	from := Micros(b.NotBefore)
	if !q.needsSlots && (b.MaxWait < 0 || q.Notice < Micros(b.MaxWait)) {
		from = max(from, q.Notice)
	}
	return q.Now + from
}

// refuse refuses a caller whose MaxWait ends before its turn in the line of the
// charge held, which is about wait away, or before the start that all budgets have
// together. It reports whether it did.
func (q *Request) refuse(held int, wait time.Duration) bool {
	b := q.Booking
	if b.MaxWait < 0 {
		return false
	}

	// All budgets together may have room later than the estimate. Then find has noted in HeldBy which charge puts the start off.
	if together := waitOf(q.find(q.Now+Micros(b.NotBefore)) - q.Now); together > wait {
		held, wait = q.Grant.HeldBy, together
	}

	// A caller that may not wait at all gets no place, whatever the estimate.
	if b.MaxWait > 0 && wait <= b.MaxWait {
		return false
	}
	q.answerHeld(held, wait)
	return true
}

// refuseCrowd refuses a caller whose share gets no lane in the line of the charge
// held, because a bounded row has as many lanes as it can have. wait is an estimate
// of the caller's wait. It reports whether it did.
func (q *Request) refuseCrowd(w *Waiter, held int, wait time.Duration) bool {
	s, shares := &q.Searches[held], maxShares(q.Searches[held].rule.n)
	if !q.Bounded || !s.row.queue.isCrowded(shares, w.class, q.Booking.Charges[held].Share.ID) {
		return false
	}
	q.answerHeld(held, wait)
	q.Grant.Shares = shares
	return true
}

// isPaused reports whether the budget of the i-th charge is closed when the caller
// may start at the earliest.
func (q *Request) isPaused(i int) bool { return q.Searches[i].row.paused > q.Searches[i].from }

// lineUp puts a waiter in the line of the i-th charge: by the arrival that it has
// there or brings along, and otherwise by a new one, behind the waiters that came
// before it.
func (q *Request) lineUp(w *Waiter, i int) {
	s, key := &q.Searches[i], q.key(i)
	at, known := w.arrival(key)
	if !known {
		// The clock of a different node may be ahead, so the arrival follows the newest waiter, too. If its step waited for others, the caller came earlier, by Late.
		at = q.Arrivals.next(max(q.Now, s.row.queue.newest()+1) - q.Late)
	}

	// The lease lets others forget the place if this node dies.
	s.row.lease(q.Node)
	p, share := s.row.lineUp(w.class, q.Booking.Charges[i].Share, place{at, s.rule.cost, q.Node.ID, w.front(key)}, q.recalls)
	w.stand = &stand{key, w.class, share, p}
	w.noteArrival(key, w.stand.place.arrival)
	q.Waits = true
}

// hold returns the index of the charge in whose line the waiter must stand, and an
// estimate of how long it will wait there. The index is below 0 if the waiter need
// not stand in a line. turn is the budget in whose line it just had its turn, or the
// zero Key. Shadow and Concurrency charges hold nobody in a line for starts, and
// without a horizon no line counts.
//
// A waiter that had its turn in one row, and finds that its start in a second
// row is not near any more, might never find both near. So it gets the first
// start that is possible in both, even if that is not near. Each row has only one
// such start at a time, its pin.
func (q *Request) hold(w *Waiter, turn Key) (held int, wait time.Duration) {
	held = -1
	if q.Booking.Horizon <= 0 {
		return held, 0
	}

	near := q.Booking.Horizon + q.Booking.NotBefore
	for i := range q.Searches {
		// The search is a copy, because the search of the request must not look ahead.
		s := q.Searches[i]
		key := q.key(i)
		if q.Booking.Charges[i].Shadow || s.rule.slots {
			continue
		}

		// before is the costs of the waiters that are served before this one. It is 0 where the waiter just had its turn.
		before := int64(0)
		if l := s.row.lively(lapse(q.Booking.Horizon)); l != nil && key != turn {
			came, known := w.arrival(key)
			if !known {
				came = newcomer
			}
			before = l.before(w.class, q.Booking.Charges[i].Share.ID, came, w.front(key))
		}

		t := s.earliest(s.from)
		if before > 0 {
			// The waiters before this one do not start now, so it waits for a microsecond at least: see store.Grant. After a penalty only
			// together counts the slow start.
			rank := before + s.rule.cost
			t = max(t, s.turnAt(rank), q.Now+1)
			if s.row.paused > 0 {
				t = max(t, s.together(rank))
			}
		}

		d := time.Duration(t-q.Now) * time.Microsecond

		// In the line where the caller just had its turn, its start counts as near: that is why it was served. Where it had a turn before, its start
		// counts as near unless the row has a pin that is far.
		far := d > near && key != turn
		if far && slices.Contains(w.passed, key) {
			far = s.row.pin > q.Now+Micros(near)
		}

		// Of several lines, the caller stands in the line with the longest wait.
		if (before > 0 || far) && (held < 0 || d > wait) {
			held, wait = i, d
		}
	}

	return held, wait
}

// HasLine reports whether the row has a line for starts.
func (r *Row) HasLine() bool { return r.queue != nil }

// Head returns the place of the waiter that is served next in the row's line. key is
// the row's budget. ok is false if no waiter has a place. It is false, too, as long as
// a called waiter has not come: that waiter serves the line when it comes. Head forgets
// a line without waiters.
func (r *Row) Head(key Key) (at Place, ok bool) {
	if r.queue == nil {
		return Place{}, false
	}
	if r.queue.empty() {
		r.queue = nil
		return Place{}, false
	}
	p, ok := r.queue.head()
	return Place{key, p.arrival, p.node}, ok && len(r.queue.called) == 0
}

// Due returns in how long the first start in a budget is within the horizon of
// the waiter at the head of its line. The result is 0 if the start is within the
// horizon now, or no charge has that budget.
func (q *Request) Due(w *Waiter, key Key) time.Duration {
	i := q.indexOf(key)
	if i < 0 {
		return 0
	}

	// The search is a copy, because the search of the request must not look ahead.
	s := q.Searches[i]
	q.begin(&s, q.Now)
	if !w.hadStart {
		s.behind(q.Booking)
	}
	wait := time.Duration(s.earliest(q.Now)-q.Now) * time.Microsecond
	return max(0, wait-q.Booking.Horizon)
}

// Serve takes the waiter at the head of a budget's line out of it, and counts a turn
// of its share. It books for the waiter, puts it in a second line or refuses it. A
// waiter that needs slots must take them by itself: Serve calls it and returns true,
// and the line stands still until it has come.
func (q *Request) Serve(w *Waiter, key Key) (called bool) {
	// A waiter leaves the line before it books, or it would keep behind itself.
	stood := *w.stand
	q.stepOut(w)
	q.countIn(w, key)

	if !q.needsSlots {
		q.stand(w, key)
		return false
	}

	// Note the place among the called waiters, for which the line stands still.
	w.pass(key)
	r := q.row(key)
	r.queue.called = append(r.queue.called, stood.place)
	return true
}

// count counts the start of a waiter as a turn of its share in all rows in which
// callers of its class wait.
func (q *Request) count(w *Waiter) {
	for i := range q.Searches {
		if !q.Booking.Charges[i].Shadow && !q.Searches[i].rule.slots {
			q.countIn(w, q.key(i))
		}
	}
}

// countIn counts a turn of a waiter for its share in the line of a budget, unless
// the waiter's turn was counted there before, or no shares take turns there.
func (q *Request) countIn(w *Waiter, key Key) {
	i := q.indexOf(key)
	l := q.Searches[i].row.queue
	if l == nil || slices.Contains(w.counted, key) {
		return
	}

	// Nobody takes turns in a class without lanes, or whose only lane is that of callers without a share.
	c, share := &l.lanes[w.class], q.Booking.Charges[i].Share
	withoutShares := len(*c) == 1 && (*c)[0].share == 0 && share.ID == 0
	if len(*c) == 0 || withoutShares {
		return
	}

	// The turn counts even if the share has no other waiters: then open makes its lane anew. tidy drops lanes that need no tag.
	own := l.open(w.class, share)
	c.serve(own, q.Searches[i].rule.cost)
	*c = c.tidy()
	w.counted = append(w.counted, key)
}

// uncount takes back the turns that were counted for a waiter's share in any row,
// because the waiter did not use them.
func (q *Request) uncount(w *Waiter) {
	for i := range q.Searches {
		if !slices.Contains(w.counted, q.key(i)) || q.Searches[i].row.queue == nil {
			continue
		}
		c := &q.Searches[i].row.queue.lanes[w.class]
		if own := c.of(q.Booking.Charges[i].Share.ID); own != nil {
			own.unserve(q.Searches[i].rule.cost)
			*c = c.tidy()
		}
	}
	w.counted = nil
}
