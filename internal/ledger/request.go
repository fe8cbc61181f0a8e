package ledger

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Request is one step: a booking, and the rows of its charges. The store fills
// in the fields, except Waits, and opens each search with its row. Then the store
// calls methods that change the rows. They leave the answer to the caller in Grant
// and Waits, and what concerns others in News. Charges of one budget have the same
// row. A Request is not safe for concurrent use.
type Request struct {
	Now      int64 // microseconds of the store's clock
	Node     Node
	Arrivals *Arrivals
	Booking  *store.Booking // is only read, except by a Pass
	Searches []Search       // in the order of the charges

	// SummonsWaiters says that waiters are called right before their starts, so
	// that their horizon may be nearer than the distance between two starts: see
	// store.Traits.
	SummonsWaiters bool

	// Bounded says that rows are stored as bytes, which tell a limited number of
	// shares apart: a caller of a share beyond that is refused, as Grant.Shares
	// says.
	Bounded bool

	// Grant is the answer to a booking, without Ready and Turn.
	Grant *store.Grant

	// Waits says that the caller got a place in line. If Grant.Handle names a
	// place, it is in the line for the slots of the charge at Grant.HeldBy,
	// otherwise in the line in which its Waiter stands.
	Waits bool

	news *News // nil without news

	// Late is how many microseconds ago the caller came, if its booking waited
	// for others to share a step. Its arrival is earlier by Late.
	Late int64

	// Notice is how many microseconds pass, at the least, until a caller in line hears of a start that is booked now, because the rows are saved first.
	// Such a caller gets no earlier start: it could not use one in time.
	Notice int64

	// Far says that rows take so long to be saved that Notice is for newcomers as well. Without Far a newcomer that finds room starts at once: it may
	// come later than its start by Notice.
	Far bool

	early    int64 // the start that Pass.Due found behind the room of earlier waiters that have not booked yet. Zero means that there are none.
	earlyKey Key   // the budget in whose line these waiters stand

	needsSlots bool // a charge is a Concurrency limit
	recalls    bool // the waiter takes a place, though waiters without a place may have come before
}

// News is how a request has changed what concerns other callers. The lists are
// in the order in which waiters are to be told.
type News struct {
	Called  []Place   // waiters for slots whose turn has come: they book again
	Useless []Useless // starts that may not be used, or need not
	Closed  []Closed  // budgets that are closed: some waiters cannot wait until they open
	Moved   []Key     // budgets in whose line a start may be nearer now: see Due
}

// Useless are booked starts in a budget, with marks from From on and before
// Before. Callers need not keep starts that are Lifted: there may be an earlier
// start.
type Useless struct {
	Key          Key
	From, Before int64
	Lifted       bool
}

// Closed is a budget that is closed until a time.
type Closed struct {
	Key   Key
	Until int64
}

// Arrivals numbers the waiters of one store: each number is new, and follows the
// clock, so that the waiters of several stores are nearly in order as well. The
// zero Arrivals is ready to use, also by several goroutines at once.
type Arrivals struct{ last atomic.Int64 }

// next returns a new arrival, at least now.
func (a *Arrivals) next(now int64) int64 {
	for {
		last := a.last.Load()
		if next := max(last+1, now); a.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// NewRequest returns a request for a booking with open searches. The rows are in
// the order of the charges.
func NewRequest(now int64, by Node, a *Arrivals, b *store.Booking, rows []*Row) *Request {
	q := &Request{Now: now, Node: by, Arrivals: a, Booking: b, Searches: make([]Search, len(rows)), Grant: new(store.Grant)}
	for i, r := range rows {
		q.Open(i, r)
	}
	return q
}

// Open makes the search of the i-th charge ready, and brings its row r to the
// time now. It notes in the row that the node has come, and calls waiters for slots
// that have become free. It leaves the row as it is if passesBy returns true. The
// row may be nil for an Unlimited charge that has none.
func (q *Request) Open(i int, r *Row) {
	s := &q.Searches[i]
	s.rule.set(&q.Booking.Charges[i], q.Booking.Spread)

	// Only an unlimited budget, whose peak is 0, can let every start pass.
	if s.rule.peak == 0 && s.passesBy(r, q.Now) {
		return
	}

	s.row = r

	// advance may end the lease of a dead node, whose slots are free then.
	leases := len(r.leases)
	r.advance(q.Now, &s.rule)
	leaseEnded := len(r.leases) < leases

	switch {
	// The budget may still be open: passesBy is only sure of some rows.
	case s.rule.peak == 0:
		s.free = r.isFree(q.Now)
	case s.rule.slots:
		q.needsSlots = true
		if r.slots == nil {
			r.slots = new(slots)
		}
	}

	// Call waiters for slots if a dead or silent node has made room, or if this node has come after it was asked to: its own waiters are not passed over any
	// more.
	wasAsked := r.spoke(q.Node.ID)
	if lapsed := r.lapseSlots(); lapsed || wasAsked || leaseEnded {
		q.setAside(i)
	}
}

// untouched stands for the missing row of an unlimited budget that was never
// closed. It is never written to: all stores of a program share it.
var untouched Row

// passesBy reports whether the row r of an unlimited budget shows, as it is, that
// every start passes now, and sets s.free to the result. It does not change the row,
// and sets s.row to r, or to untouched if r is nil. After false the row must be
// brought to the time now, and may still show that the budget is open.
func (s *Search) passesBy(r *Row, now int64) bool {
	if r == nil {
		r = &untouched
	}
	s.row = r

	// In a line, waiters may have to be forgotten. If the clock was set back, all times of the row have to be moved.
	needsAdvance := r.queue != nil || now < r.seen

	// A budget under the limit Told is unlimited only as long as its row has no note.
	hasNote := s.rule.tells && r.note.n > 0

	s.free = !needsAdvance && !hasNote && r.isFree(now)
	return s.free
}

// wake brings the row of a free search to the time now, because the row is about
// to be changed. Open has done so for all other searches. The row must not be
// untouched: a store makes a missing row before it changes a budget.
func (s *Search) wake(now int64) {
	if s.free {
		s.row.advance(now, &s.rule)
	}
}

// begin has a search look for starts from a time on. It sets from, and the fields
// that follow from the booking as a whole: horizon, single and steady.
func (q *Request) begin(s *Search, from int64) {
	s.from, s.horizon = from, Micros(q.Booking.Horizon)

	// Only a start that one budget alone decides may be moved to the begin of a part: see even.
	deciding := 0 // searches that look for a start in a row
	for i := range q.Searches {
		if o := &q.Searches[i]; !o.rule.slots && !o.free {
			deciding++
		}
	}
	s.single = deciding == 1

	// Waiting starts keep their distance from the starts to come. If waiters are called right before their starts, and the horizon holds a single start,
	// there is no start to come. Then a start keeps its distance from past starts, too: otherwise all waiters would start at once. Callers with a share
	// in one budget are called like that: see summonHorizon in internal/acquire.
	sharesOneBudget := len(q.Searches) == 1 && q.Booking.Charges[0].Share.ID != 0
	s.steady = q.SummonsWaiters && sharesOneBudget && s.row.queue != nil && s.isBrief()
}

// isBrief reports whether the horizon may hold no start beside the next one: a
// horizon of two distances between starts always holds a second start. Without a
// horizon it returns false.
func (s *Search) isBrief() bool {
	distance := s.rule.span / max(1, s.rule.most)

	// Under a large limit starts are at the begin of the window's parts.
	if s.rule.n > windowParts {
		distance = partOf(s.rule.span)
	}
	return 0 < s.horizon && s.horizon < 2*distance
}

// key returns the budget of the i-th charge.
func (q *Request) key(i int) Key { return q.Booking.Charges[i].Budget.Key }

// indexOf returns the index of the first charge of a budget, -1 if no charge has it.
func (q *Request) indexOf(key Key) int {
	for i := range q.Searches {
		if q.key(i) == key {
			return i
		}
	}
	return -1
}

// row returns the row of a budget, nil if no charge has it.
func (q *Request) row(key Key) *Row {
	if i := q.indexOf(key); i >= 0 {
		return q.Searches[i].row
	}
	return nil
}

// BookNow decides for a caller that need not stand in a line for starts: it books,
// refuses the caller, or gives it a place in a line for slots. It decides every
// booking without a horizon. With a horizon it returns false, and has changed no
// row, if a caller waits for a start in one of the budgets, if the caller comes
// again, or if its start is beyond the horizon and within MaxWait.
func (q *Request) BookNow() (decided bool) {
	b := q.Booking

	// A caller that comes again, or that finds others waiting, must stand in line: a start booked here could come before the starts of earlier waiters.
	comesAgain := b.Returns || b.Instead != (store.Handle{})
	if b.Horizon > 0 && (comesAgain || q.inLine()) {
		return false
	}

	// Only a booking without a horizon can still have something to give back.
	q.giveBackInstead()

	from := q.Now + Micros(b.NotBefore)
	if q.Far { // then Notice is for newcomers as well
		from = q.soonest()
	}
	for i := range q.Searches {
		s := &q.Searches[i]
		q.begin(s, from)
		s.behind(b)
	}

	t := q.find(from)
	if isFar(b, t-q.Now) {
		return false
	}
	q.book(t)
	return true
}

// inLine reports whether a caller waits for a start in one of the budgets.
func (q *Request) inLine() bool {
	for i := range q.Searches {
		if q.Searches[i].row.queue != nil {
			return true
		}
	}
	return false
}

// isFar reports whether a start that is wait microseconds away is beyond the
// horizon of a booking, and the caller may wait that long. Without a horizon no
// start is far.
func isFar(b *store.Booking, wait int64) bool {
	mayWait := b.MaxWait < 0 || wait <= Micros(b.MaxWait)
	return b.Horizon > 0 && mayWait && wait > Micros(b.Horizon+b.NotBefore)
}

// giveBackInstead gives back the handle that the booking replaces, if any. Call it
// before behind, or the caller would keep behind its own old start.
func (q *Request) giveBackInstead() {
	if q.Booking.Instead == (store.Handle{}) {
		return
	}
	listed := q.isListed(q.Booking.Instead)
	for i := range q.Searches {
		q.Searches[i].replace(q.Booking.Instead, q.Node, listed)
	}
}

// isListed reports whether a place stands in the line for slots of a row of the request. A waiter stands in one line, so
// it is not among those that other rows only count.
func (q *Request) isListed(h store.Handle) bool {
	for i := range q.Searches {
		if q.Searches[i].isListed(h, q.Node) {
			return true
		}
	}
	return false
}

// isListed reports whether a place stands in the line for slots of the row.
func (s *Search) isListed(h store.Handle, by Node) bool {
	if s.free || !s.rule.slots || h.Place == 0 {
		return false
	}
	_, ok := s.row.slots.find(h.Place, by.ID)
	return ok
}

// find returns the earliest start not before the time from that has room in the
// budgets of all charges except Shadow charges. It sets HeldBy of the grant to the
// charge that put the start off last, or to NotHeld, and Paused to whether the budget
// of that charge is closed at the time from. Each answer of a search is a lower bound
// for all budgets, so find ends when a whole round moves nothing.
func (q *Request) find(from int64) int64 {
	t := from
	g := q.Grant
	g.HeldBy = store.NotHeld

	// still counts the searches that followed each other without moving t. Shadow charges count among them.
	for still := 0; still < len(q.Searches); {
		for i := range q.Searches {
			still++
			if q.Booking.Charges[i].Shadow {
				continue
			}

			// A later start begins a new round with this search as its first: the other searches may have no room for the later start.
			if next := q.Searches[i].earliest(t); next > t {
				t, still, g.HeldBy = next, 1, i
				g.Paused = q.Searches[i].row.paused > from
			}
		}
	}
	return t
}

// book does the work of start, and calls the waiters for slots for which the
// caller has made room.
func (q *Request) book(t int64) {
	q.start(t)
	q.passOnPlace()
}

// passOnPlace calls the next waiters for slots if the booking replaces a place in
// their line: the slots that were set aside for that place are free.
func (q *Request) passOnPlace() {
	if q.Booking.Instead.Place != 0 {
		for i := range q.Searches {
			q.setAside(i)
		}
	}
}

// start books the start at t in all budgets, takes the slots of a start that is
// now, and grants it. It books nothing if t is further away than MaxWait or
// MaxAhead: then the grant has only the wait. It books nothing if slots are
// missing: then the caller may get a place in the line for them, see acquire.
func (q *Request) start(t int64) {
	b, g := q.Booking, q.Grant
	g.Wait = waitOf(t - q.Now)
	if g.Wait == store.Never || b.MaxWait >= 0 && g.Wait > b.MaxWait {
		return
	}

	// Only a start that is now takes slots: nobody knows how many will be free later.
	if t == q.Now && q.needsSlots && !q.acquire() {
		return
	}

	// The stamp is 1 and, added below, the number of pauses that were lifted: see store.Handle.
	g.OK, g.Handle = true, store.Handle{Start: t, Stamp: 1}

	// Callers that come later keep behind a start that had to wait.
	switch {
	// Without a horizon no line counts, and a start that no charge holds did not wait.
	case b.Horizon <= 0 || g.HeldBy < 0:

	// Waiters before this one have not booked yet, and must not keep behind it.
	case q.early != 0 && q.key(g.HeldBy) == q.earlyKey:

	case t-q.Now <= Micros(b.Horizon+b.NotBefore):
		// A row of slots has no starts to keep behind.
		if held := &q.Searches[g.HeldBy]; !held.rule.slots {
			held.row.keepBehind(Class(b.Priority), t)
		}

	// A waiter for several budgets may book beyond its horizon: see hold.
	default:
		q.pin(t)
	}

	// Book in each row.
	for i := range q.Searches {
		c, s := &b.Charges[i], &q.Searches[i]

		// A Shadow charge is booked like the others, but holds nobody back: note how much later the start would have been.
		if c.Shadow {
			q.noteOver(i, s.earliest(t)-t)
		} else {
			g.Handle.Stamp += s.row.lifts
		}

		switch {
		// An open unlimited budget counts nothing.
		case s.free:

		case s.rule.peak == 0:
			s.row.bookProbe(t, &s.rule)
		case !s.rule.slots:
			s.row.book(t, &s.rule)

		// The slots of a later start are taken by a second booking, when the start has come.
		case t == q.Now:
			s.row.hold(s.rule.cost, q.Node)
		}
	}
}

// waitOf returns a wait in microseconds as callers are told it: beyond MaxAhead
// it is Never.
func waitOf(micros int64) time.Duration {
	if micros > Micros(store.MaxAhead) {
		return store.Never
	}
	return time.Duration(micros) * time.Microsecond
}

// noteOver notes by how many microseconds the start would have been later if the
// i-th charge, a Shadow charge, counted.
func (q *Request) noteOver(i int, late int64) {
	if late == 0 {
		return
	}
	if q.Grant.Over == nil {
		q.Grant.Over = make([]time.Duration, len(q.Searches))
	}
	q.Grant.Over[i] = time.Duration(late) * time.Microsecond
}

// pin notes a start beyond the horizon in the rows of its budgets, except open
// unlimited budgets, which count nothing.
func (q *Request) pin(start int64) {
	for i := range q.Searches {
		if !q.Searches[i].free {
			q.Searches[i].row.pin = start
		}
	}
}

// acquire reports whether all Concurrency charges except Shadow charges have room:
// then start takes the slots. Otherwise the first charge without room is HeldBy of
// the grant, and a caller with a MaxWait other than 0 gets a place in its line.
func (q *Request) acquire() bool {
	b := q.Booking

	// A caller that has waited keeps its arrival.
	arrival := b.Instead.Place
	for i := range q.Searches {
		s := &q.Searches[i]
		if !s.rule.slots || b.Charges[i].Shadow {
			continue
		}

		// A waiter that was called goes before all others, if its room is still there.
		l := s.row.slots
		mayGoFirst := s.called && l.taken() <= s.rule.room
		if mayGoFirst || l.admits(&s.rule, arrival) {
			continue
		}

		// This charge has no room. A caller that may wait stands in its line.
		q.Grant.HeldBy = i
		if b.MaxWait != 0 {
			// A different node's clock may be ahead, so the arrival follows the newest place, too.
			if arrival == 0 {
				arrival = q.Arrivals.next(max(q.Now, l.newest()+1))
			}

			// The lease lets others forget the place if this node dies.
			s.row.lease(q.Node)
			l.lineUp(&s.rule, arrival, q.Node.ID)
			l.asked = q.Now // a waiter came
			q.Grant.Handle, q.Waits = store.Handle{Place: arrival}, true
		}

		return false
	}

	return true
}

// giveBack takes a start, or a place in the line for slots, out of the row. For a
// place it sets s.called to whether slots were set aside for the place. A request in
// flight keeps its slots: see release. listed says whether the place stands in the
// line of some row of the request: see Request.isListed.
func (s *Search) giveBack(h store.Handle, by Node, listed bool) {
	switch {
	// An open unlimited budget has counted nothing.
	case s.free:

	case !s.rule.slots:
		if s.row.remove(h.Start, &s.rule) {
			s.row.untail(h.Start)
		}

	// A place that stands in the line of a different row is not among those that this row only counts.
	case h.Place != 0 && (!listed || s.isListed(h, by)):
		s.row.slots.asked = s.row.seen // a waiter leaves
		s.called = s.row.slots.leave(h.Place, by.ID, s.rule.cost)
	}
}

// replace is giveBack for a caller that books again at once. If its start is past, because the store's answer came late, later callers still keep behind
// the other booked starts: otherwise they would pass the waiters to whom these belong. The caller itself need not keep behind them: s.late says so to behind.
func (s *Search) replace(h store.Handle, by Node, listed bool) {
	if s.free || s.rule.slots || h.Start > s.row.seen {
		s.giveBack(h, by, listed)
		return
	}

	if s.row.remove(h.Start, &s.rule) {
		s.late = true
		s.row.trimTails(h.Start)
	}
}

// release ends the hold of a node on the slots of the charge.
func (s *Search) release(by Node) {
	if s.rule.slots {
		s.row.release(s.rule.cost, by)
	}
}

// Cancel gives back a grant that was not used, or a place in the line for slots,
// calls waiters for the slots that become free, and notes the lines that may move.
func (q *Request) Cancel(g store.Grant) {
	listed := q.isListed(g.Handle)
	for i := range q.Searches {
		s := &q.Searches[i]
		s.giveBack(g.Handle, q.Node, listed)

		// A start that is still to come has taken no slots.
		if g.OK && g.Wait == 0 {
			s.release(q.Node)
		}
		q.setAside(i)
	}
	q.noteMoved()
}

// Release frees the slots that a granted booking holds of its Concurrency
// charges, calls waiters for them, and notes the lines that may move.
func (q *Request) Release() {
	for i := range q.Searches {
		q.Searches[i].release(q.Node)
		q.setAside(i)
	}
	q.noteMoved()
}

// settle changes the cost of the start at t from u.cost to cost, if the start still
// counts. A higher cost is booked even without room for it, because it was spent. A
// start that cannot be told apart from others keeps at least its old cost.
func (r *Row) settle(t int64, u *rule, cost int64) {
	if !u.counts(t, r.seen) {
		return
	}

	// The next caller may use the room of a lower cost.
	if cost < u.cost {
		r.untail(r.seen)
	}

	// Take the start out, to book it anew. If that fails, add only the cost beyond the booked cost. In a leaky bucket it goes behind the booked units: other
	// limits have a unit of 0.
	if !r.remove(t, u) {
		cost -= u.cost
		t += u.cost * u.unit
	}

	// The units of a leaky bucket take at most MaxAhead, however high the cost is.
	if u.unit > 0 {
		cost = min(cost, (Micros(store.MaxAhead)+u.unit-1)/u.unit)
	}
	if cost > 0 {
		v := *u
		v.cost = cost
		r.book(t, &v)
	}
}

// Settle changes the cost of a granted start to costs[i] for the i-th charge, and
// notes the lines that may move. Charges that count no starts keep their cost.
func (q *Request) Settle(g store.Grant, costs []int) {
	for i := range q.Searches {
		s := &q.Searches[i]
		if !s.rule.slots && s.rule.peak > 0 {
			s.row.settle(g.Handle.Start, &s.rule, int64(costs[i]))
		}
	}
	q.noteMoved()
}

// Usable reports whether a booked start may be used: no budget is closed at its
// time, and no pause of a budget was lifted since the booking. Shadow charges do not
// count. row returns the row of the i-th charge, or nil if there is none.
func Usable(charges []store.Charge, g store.Grant, row func(i int) *Row) bool {
	stamp := int64(1)
	for i := range charges {
		if r := row(i); r != nil && !charges[i].Shadow {
			if r.paused > g.Handle.Start {
				return false
			}
			stamp += r.lifts
		}
	}

	// A stamp of 0 does not tell how many pauses were lifted before the booking.
	return g.Handle.Stamp == 0 || g.Handle.Stamp == stamp
}

// News returns how the request has changed what concerns other callers.
func (q *Request) News() News {
	if q.news == nil {
		return News{}
	}
	return *q.news
}

// HasNews reports whether News has anything to tell.
func (q *Request) HasNews() bool { return q.news != nil }

// note returns the news, to be added to.
func (q *Request) note() *News {
	if q.news == nil {
		q.news = new(News)
	}
	return q.news
}

// setAside sets room aside for waiters for slots in the i-th charge's row, as far
// as there is room, and calls them.
func (q *Request) setAside(i int) {
	if s := q.Searches[i].row.slots; s != nil {
		s.setAside(func(p place) {
			// Each called waiter is news, whether or not its node was asked before.
			q.Searches[i].row.ask(p.node, q.Now)
			q.note().Called = append(q.note().Called, Place{q.key(i), p.arrival, p.node})
		})
	}
}

// noteMoved notes the rows in whose line a start may be nearer now, or whose waiters
// without a place should ask again.
func (q *Request) noteMoved() {
	for i := range q.Searches {
		if r := q.Searches[i].row; r.queue != nil || r.Wants() {
			q.note().Moved = append(q.note().Moved, q.key(i))
		}
	}
}

// noteUseless notes starts in the i-th charge's row as useless: see Useless.
func (q *Request) noteUseless(i int, from, before int64, lifted bool) {
	q.note().Useless = append(q.note().Useless, Useless{q.key(i), from, before, lifted})
}

// A Record is what a store keeps of a caller's last call, beside the rows and
// changed in the same step: so a call whose answer was lost can be made again,
// and is done once. The calls of a caller, made one after the next, have growing
// numbers; a call that is repeated keeps its number, and its tries are counted.
// The zero Record is of a caller that made no call.
type Record struct {
	call int64
	try  int64
}

// A Verdict is what a Record says of a try of a call.
type Verdict int

const (
	Do   Verdict = iota // the call is to be done, and is recorded
	Done                // the call was done before, by the try that Tried returns
	Late                // the caller has made later calls: no caller waits for this one
)

// Begin says whether a try of a call is to be done, and records the call if it
// is. It comes first in the step that does the call.
func (r *Record) Begin(call, try int64) Verdict {
	switch {
	case call < r.call:
		return Late
	case call == r.call:
		return Done
	}
	r.call, r.try = call, try
	return Do
}

// IsBefore reports whether the record is of an earlier call. The zero Record is of
// no call.
func (r *Record) IsBefore(call int64) bool { return 0 < r.call && r.call < call }

// Tried returns which try of the last call was done: the caller has the answer
// to that try.
func (r *Record) Tried() int64 { return r.try }

// MarshalBinary returns the record in at most 32 bytes.
func (r *Record) MarshalBinary() ([]byte, error) {
	return binary.AppendVarint(binary.AppendVarint([]byte{version}, r.call), r.try), nil
}

// UnmarshalBinary makes r the record on which MarshalBinary was called. Bytes
// that are no record are an [ErrCorrupt].
func (r *Record) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || b[0] != version {
		return ErrCorrupt
	}
	call, n := binary.Varint(b[1:])
	if n <= 0 {
		return ErrCorrupt
	}
	try, m := binary.Varint(b[1+n:])
	if m <= 0 || 1+n+m != len(b) {
		return ErrCorrupt
	}
	*r = Record{call, try}
	return nil
}
