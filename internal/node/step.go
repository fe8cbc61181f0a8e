package node

import (
	"iter"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A step is the work of a node at one time, for all callers that have come together. It changes rows and nothing beside them: of the
// node's callers it makes drafts, and it notes which answers they are to see. When the rows are saved the drafts become the memory
// (see save), and callers are answered. A step whose rows were not saved leaves no trace (see forget), and there is nothing to undo.
//
// Invariant: the memory agrees at any time with the rows that were saved last, except after a step of which nobody knows whether it was saved.
type step struct {
	memory *memory // as the last step that was saved has left it
	rows   Rows
	now    int64
	late   int64 // how long the booking of the op that is decided on has waited for this step, in microseconds
	reply  reply // how the store's clock stands, for all answers of the step

	received time.Time // when the step had its rows
	told     Told

	news ledger.News // of this step, which the step itself has not looked at

	// The drafts: the memory as this step leaves it.
	touched  []*waiter // waiters that have drafts
	line     draft[waiter]
	slots    draft[slotWaiter]
	held     map[ledger.Key]holding // budgets of which callers hold more or less than before
	resolved int                    // how many of the memory's doubts this step ends

	// Done when the rows are saved.
	wake    []chan struct{}
	useless []ledger.Useless
	later   map[ledger.Key]time.Duration // when lines are looked at again. Below 0 means not again.
	passes  map[ledger.Key]passed
}

// A draft is waiters, by budget and arrival, as a step leaves them.
type draft[W any] struct {
	saved   places[W]
	changed places[W] // counts in place of saved. A nil waiter stands for nobody.
}

// put notes who has an arrival in the line of a budget, or with nil that nobody has.
func (d *draft[W]) put(key ledger.Key, arrival int64, w *W) {
	if d.changed[key] == nil {
		d.changed[key] = make(map[int64]*W)
	}
	d.changed[key][arrival] = w
}

// at returns who has an arrival in the line of a budget, or nil.
func (d *draft[W]) at(key ledger.Key, arrival int64) *W {
	if w, ok := d.changed[key][arrival]; ok {
		return w
	}
	return d.saved[key][arrival]
}

// in returns the waiters of a line, in no order.
func (d *draft[W]) in(key ledger.Key) iter.Seq2[int64, *W] {
	return func(yield func(int64, *W) bool) {
		// The step's own changes count in place of the saved state. A nil waiter has left.
		changed := d.changed[key]
		for at, w := range changed {
			if w != nil && !yield(at, w) {
				return
			}
		}

		for at, w := range d.saved[key] {
			if _, ok := changed[at]; !ok && !yield(at, w) {
				return
			}
		}
	}
}

// arrivals returns the arrivals of the waiters of a line, the earliest first.
func (d *draft[W]) arrivals(key ledger.Key) (all []int64) {
	for at := range d.in(key) {
		all = append(all, at)
	}
	slices.Sort(all)
	return all
}

// hasAny reports whether a line has waiters.
func (d *draft[W]) hasAny(key ledger.Key) bool {
	for range d.in(key) {
		return true
	}
	return false
}

// isAny reports whether there are waiters in any line.
func (d *draft[W]) isAny() bool {
	for _, all := range []places[W]{d.changed, d.saved} {
		for key := range all {
			if d.hasAny(key) {
				return true
			}
		}
	}
	return false
}

// save brings saved up to date.
func (d *draft[W]) save() {
	for key, line := range d.changed {
		for at, w := range line {
			d.saved.put(key, at, w)
		}
	}
}

// newStep returns a step of a node with a memory.
func newStep(m *memory) step {
	return step{
		memory: m, held: make(map[ledger.Key]holding), later: make(map[ledger.Key]time.Duration), passes: make(map[ledger.Key]passed),
		line: draft[waiter]{m.line, make(places[waiter])}, slots: draft[slotWaiter]{m.slots, make(places[slotWaiter])},
	}
}

// begin makes the step ready for rows, and forgets what it has done with earlier rows.
func (st *step) begin(rows Rows) {
	st.forget()
	st.rows, st.now, st.received = rows, rows.Now(), rows.Received()
	st.reply = reply{now: st.now, asked: rows.Asked(), received: st.received}.within(st.memory.clock)
}

// forget makes the step one that has done nothing.
func (st *step) forget() {
	for _, w := range st.touched {
		w.next, w.turns = nil, 0
	}

	// Slices and maps keep their memory for the next step.
	clear(st.touched)
	clear(st.line.changed)
	clear(st.slots.changed)
	clear(st.held)
	clear(st.wake)
	clear(st.later)
	clear(st.passes)
	*st = step{
		memory: st.memory, touched: st.touched[:0], line: st.line, slots: st.slots, held: st.held,
		wake: st.wake[:0], useless: st.useless[:0], later: st.later, passes: st.passes,
	}
}

// save makes the drafts the memory, when the rows are saved.
func (st *step) save() {
	m := st.memory
	m.clock = st.reply.orBetter(m.clock)

	// The drafts of waiters become their state. A caller that is booked now has its start by this step's reply.
	for _, w := range st.touched {
		w.now, w.next, w.turns = w.next, nil, 0
		if w.now.State() == Booked {
			w.reply = st.reply
		}
	}

	st.line.save()
	st.slots.save()

	// A budget of which no slots are held is forgotten.
	for key, h := range st.held {
		m.held[key] = h
		if h.n <= 0 {
			delete(m.held, key)
		}
	}

	// Only lines in which callers of this node wait have a last pass.
	maps.Copy(m.passes, st.passes)
	maps.DeleteFunc(m.passes, func(key ledger.Key, _ passed) bool { return len(m.line[key]) == 0 })
	m.doubts -= st.resolved
}

// askedFrom returns from when on other nodes may ask this node to come to a line, a time of the store's clock: the earliest of the times by which this node comes to its
// lines anyway. It is 0 if they may ask at any time. If no caller of this node waits in a line, waits is false, and from says nothing.
func (st *step) askedFrom() (from int64, waits bool) {
	from = math.MaxInt64

	// A line may have waiters only in saved, only in changed, or in both: hasAny looks at both.
	for _, all := range []places[waiter]{st.line.saved, st.line.changed} {
		for key := range all {
			if !st.line.hasAny(key) {
				continue
			}
			waits = true

			// The last pass has said when the node comes: a pass of this step, or of a step before.
			p, known := st.passes[key]
			if !known {
				p = st.memory.passes[key]
			}
			from = min(from, p.comes)
		}
	}

	return from, waits
}

// A waiter is a caller that waits in this node. It is the Turn of its caller.
type waiter struct {
	now   *Caller // as the last saved step has left it, or nil if it is new
	next  *Caller // the draft of the step under way, or nil if there is none
	turns int     // how often it was served in the step under way
	reply reply   // by which the node knows of the start of a caller that is booked

	asked atomic.Int64 // how often the caller has asked with this Turn
}

// A reply says how the store's clock stood in a step.
type reply struct {
	now             int64     // the time of the step, by the store's clock
	asked, received time.Time // times of this program's clock: the store's clock was read between the two
}

// A reply counts for clockFor. In this time the store's clock and the clock of this program run apart by at most the part drift: NTP has a clock run
// faster or slower by up to 500 parts in a million (RFC 5905), and both clocks may be corrected.
const (
	clockFor = 10 * time.Second
	drift    = 1.0 / 1000
)

// apart returns by how much the two clocks run apart at most while a time passes.
func apart(passed time.Duration) time.Duration { return time.Duration(float64(passed) * drift) }

// at returns a reply as if it had come at a different time of the store's clock.
func (r reply) at(now int64) reply {
	by := time.Duration(now-r.now) * time.Microsecond
	return reply{now, r.asked.Add(by), r.received.Add(by)}
}

// within returns the reply r with the bounds of a former reply in place of its own where these are closer: with the bounds of a slow answer alone the starts of this
// step would look old, and their callers would ask for new starts, just when the store is slow. It returns r itself if there is no former reply, if the former reply
// does not count any more, or if the two contradict each other, because the store's clock was set.
//
// If the store's clock was set by less than the answer took, the replies do not contradict each other. If it was set back, the callers of this step start too soon, but
// the row underestimates the time since earlier starts by as much: the distance to these is as large as the row says. If it was set forward, windows end early, with or
// without the former reply.
func (r reply) within(former reply) reply {
	if former.asked.IsZero() || r.received.Sub(former.received) > clockFor {
		return r
	}

	// The bounds of the former reply grow by the doubt about how far the clocks ran apart since.
	closer := former.at(r.now)
	doubt := apart(r.received.Sub(former.received))
	closer.asked, closer.received = closer.asked.Add(-doubt), closer.received.Add(doubt)

	// Take the closer bound on each side.
	if closer.asked.Before(r.asked) {
		closer.asked = r.asked
	}
	if closer.received.After(r.received) {
		closer.received = r.received
	}

	// The replies contradict each other.
	if closer.received.Before(closer.asked) {
		return r
	}
	return closer
}

// orBetter returns the former reply if it says more exactly how the clocks stand, and still counts. Otherwise it returns r.
func (r reply) orBetter(former reply) reply {
	// The clocks may have run apart in either direction since the former reply, so its bounds have become wider on both sides.
	passed := r.received.Sub(former.received)
	if passed <= clockFor && former.received.Sub(former.asked)+2*apart(passed) < r.received.Sub(r.asked) {
		return former
	}
	return r
}

// draft returns the draft of a waiter, and makes one if there is none.
func (st *step) draft(w *waiter) *Caller {
	switch {
	case w.next != nil:
		return w.next
	case w.now != nil:
		w.next = w.now.clone()
	default:
		w.next = new(Caller)
	}

	st.touched = append(st.touched, w)
	return w.next
}

// caller returns a waiter as the step has left it, to be read.
func (w *waiter) caller() *Caller {
	if w.next != nil {
		return w.next
	}
	return w.now
}

// changeCaller calls do with the draft of a waiter and a request for its booking. It notes the news, and in which line the waiter stands afterwards.
func (st *step) changeCaller(w *waiter, do func(*Caller, *ledger.Request)) {
	// The caller's place may change: forget the old one, and note the new one afterwards.
	c := st.draft(w)
	if key, at, waits := c.Line(); waits {
		st.line.put(key, at, nil)
	}
	st.change(&c.booking, func(q *ledger.Request) { do(c, q) })
	if key, at, waits := c.Line(); waits {
		st.line.put(key, at, w)
	}
}

// row returns the row of a charge. If there is none it makes one, except for an unlimited budget, for which it returns nil.
func (st *step) row(c *store.Charge) *ledger.Row {
	return st.rows.Row(c.Budget.Key, c.Limit.Kind() != store.KindUnlimited)
}

// usesSlots reports whether callers of this node hold slots, or wait for slots, as the step leaves them.
func (st *step) usesSlots() bool {
	// Slots that the step has not changed are in the memory alone, and new ones in the step alone.
	for key := range st.memory.held {
		if st.holding(key).n > 0 {
			return true
		}
	}
	for _, h := range st.held {
		if h.n > 0 {
			return true
		}
	}
	return st.slots.isAny()
}

// request returns a request for the booking b, whose answer goes to g, with the rows of all its charges. It tells these rows how many slots callers of this node hold.
func (st *step) request(b *store.Booking, g *store.Grant) *ledger.Request {
	q := &ledger.Request{
		Now: st.now, Late: st.late, Notice: ledger.Micros(st.memory.saving), Far: st.memory.isFar(), Bounded: true,
		Node: st.memory.node, Arrivals: st.memory.arrivals, Booking: b, Grant: g, Searches: make([]ledger.Search, len(b.Charges)),
	}

	// Load all rows at once, before each is looked at alone.
	st.rows.Fetch(b.Charges)
	for i := range b.Charges {
		c := &b.Charges[i]
		r := st.row(c)
		q.Open(i, r)

		// The node knows better than the row how many slots its callers hold: others may have ended its lease in the row. But as long as there are
		// doubts whether earlier steps were saved, the node does not know either.
		isSure := st.memory.doubts == st.resolved
		if h := st.holding(c.Budget.Key); isSure && h.n > 0 && c.Limit.Kind() == store.KindConcurrency {
			r.Holds(int64(h.n), st.memory.node)
		}
	}

	return q
}

// change calls do with a request for a booking, and notes the news. The request's grant is for do alone.
func (st *step) change(b *store.Booking, do func(*ledger.Request)) {
	q := st.request(b, new(store.Grant))
	do(q)
	if q.HasNews() {
		Append(&st.news, q.News())
	}
}

// holding returns what callers of this node hold of a budget, as the step leaves it.
func (st *step) holding(key ledger.Key) holding {
	if h, ok := st.held[key]; ok {
		return h
	}
	return st.memory.held[key]
}

// noteHeld notes that a caller takes the slots of a booking, with the sign 1, or gives them back, with the sign -1.
func (st *step) noteHeld(b *store.Booking, sign int) {
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Limit.Kind() != store.KindConcurrency {
			continue
		}
		st.held[c.Budget.Key] = holding{*c, max(0, st.holding(c.Budget.Key).n+sign*c.Cost)}
	}
}

// holdsSlots reports whether a start of the booking holds slots.
func holdsSlots(b *store.Booking) bool {
	return slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency })
}

// maxShortcut is the largest number of charges with which a booking takes the short way of step.book, which loads each row by itself.
const maxShortcut = 4

// book decides on the booking b of a caller, and writes the answer to g: a start, a place in line or a refusal. It notes where the caller waits, and which slots
// it holds.
func (st *step) book(b *store.Booking, g *store.Grant) {
	*g = store.Grant{}

	// Most bookings are plain, and are decided without a waiter and a request. This short way cannot give newcomers the notice that they need where saving
	// takes long: see ledger.Request.Far.
	if b.Turn == nil && len(b.Charges) <= maxShortcut && !st.memory.isFar() {
		var few [maxShortcut]*ledger.Row
		rows := few[:0]
		for i := range b.Charges {
			rows = append(rows, st.row(&b.Charges[i]))
		}

		if ledger.BookShort(st.now, b, rows, g) {
			return
		}
	}

	// A caller that waited before has its waiter in Turn.
	w, _ := b.Turn.(*waiter)
	if w == nil {
		w = new(waiter)
	}

	// A start may have been booked for the caller while it waited. It is still good if the caller comes in time.
	c := st.draft(w)
	delivered, ok := c.Deliver(b, st.now, latest(b))
	if ok {
		*g = delivered
		g.Turn = w
		return
	}

	// The caller asks anew: forget its place in the line for slots.
	st.unslot(b, b.Instead)

	c.Come(b)

	// The caller leaves before Ask replaces its last booking, by which changeCaller finds the rows that the caller stands in.
	if c.IsKnown() {
		st.changeCaller(w, (*Caller).Leave)
	}

	c.Ask(b, st.now)
	st.changeCaller(w, func(c *Caller, q *ledger.Request) {
		hasTurn := q.Book(&c.Waiter)
		st.standBy(q)
		*g = c.Answer(q)
		if hasTurn {
			g.Turn = w
		}
	})

	key, _, waits := c.Line()
	if waits {
		// It may be the caller's turn already, so the line is served later in this step.
		st.news.Moved = append(st.news.Moved, key)
	} else if g.Ready != nil {
		// The caller waits for slots.
		key = b.Charges[g.HeldBy].Budget.Key
	}

	// The first caller of this node in a line frees what dead nodes left there.
	if g.Ready != nil {
		st.meet(b, key)
	}

	// Only a start that is now has taken its slots.
	if g.OK && g.Wait == 0 && holdsSlots(b) {
		st.noteHeld(b, 1)
	}
}

// punctualPart is the part of Jitter by which a caller may come later than its start, if this is more than Punctual: a grant may be as old as this when it is used.
const punctualPart = 2.0 / 7

// latest returns by how much the caller of a booking may come later than its start. A caller that comes later is booked anew.
func latest(b *store.Booking) time.Duration {
	// The smallest jitter decides, even that of a Concurrency charge or acquire.ClockJitter. Package acquire passes over these two, because there a new start
	// costs one more call of the store.
	jitter := time.Duration(math.MaxInt64)
	for i := range b.Charges {
		if c := &b.Charges[i]; c.Jitter > 0 && !c.Shadow {
			jitter = min(jitter, c.Jitter)
		}
	}

	// No charge has a jitter.
	if jitter == math.MaxInt64 {
		return Punctual
	}

	// The spread is room behind the start, like the jitter.
	return max(Punctual, time.Duration(float64(jitter)*punctualPart)+b.Spread)
}

// standBy notes the waiter of a request that got a place in the line for slots, and sets the Ready of its grant. For any other request it does nothing.
func (st *step) standBy(q *ledger.Request) {
	if place := q.Grant.Handle.Place; q.Waits && place != 0 {
		w := &slotWaiter{make(chan struct{}), q.Booking, q.Grant.HeldBy}
		st.slots.put(q.Booking.Charges[w.charge].Budget.Key, place, w)
		q.Grant.Ready = w.ready
	}
}

// unslot forgets the waiter for slots whose place the handle h names, because its caller asks again, or leaves. b is the caller's booking. A handle without a place
// names no waiter.
func (st *step) unslot(b *store.Booking, h store.Handle) {
	if h.Place == 0 {
		return
	}

	// The handle does not say in which line the place is. Arrivals are unique within a store, so no line has a different waiter with this arrival.
	for i := range b.Charges {
		if key := b.Charges[i].Budget.Key; st.slots.at(key, h.Place) != nil {
			st.slots.put(key, h.Place, nil)
		}
	}
}

// cancel gives back the grant g of a booking b, or the place in line that g stands for. asked is how often the caller had asked with its Turn when it gave g back.
func (st *step) cancel(b *store.Booking, g store.Grant, asked int64) {
	st.unslot(b, g.Handle)

	// A waiter's place, and a start that was booked for it meanwhile, are not in the grant's handle. But an undo whose step has failed is done a second later. If
	// the caller has asked again by then, its new booking has given back the old place, and the waiter must keep its new one.
	if w, ok := g.Turn.(*waiter); ok && w.asked.Load() == asked && w.caller().IsKnown() {
		st.changeCaller(w, (*Caller).GiveUp)
	}
	st.change(b, func(q *ledger.Request) { q.Cancel(g) })
	if g.OK && g.Wait == 0 && holdsSlots(b) {
		st.noteHeld(b, -1)
	}
}

// What an op decides in a step.

// book is [Store.Book].
func book(st *step, o *op) {
	// A booking that waited for others, or for the lock of the rows, keeps the rank that it had when its caller came.
	st.late = max(0, ledger.Micros(st.rows.Asked().Sub(o.came)))
	st.book(&o.booking, &o.grant)
	st.late = 0
}

// cancel gives back the grant of an op.
func cancel(st *step, o *op) { st.cancel(&o.booking, o.grant, o.nth) }

// release ends what an op holds of its Concurrency charges.
func release(st *step, o *op) {
	st.change(&o.booking, (*ledger.Request).Release)
	st.noteHeld(&o.booking, -1)
}

// withdraw is decided in place of a booking whose caller has left: it books nothing, and gives back what the booking would have replaced.
func withdraw(st *step, o *op) {
	st.cancel(&o.booking, store.Grant{Handle: o.booking.Instead, Turn: o.booking.Turn}, o.nth)
	o.grant = store.Grant{}
}

// ownUndo returns an op of the node's own, which nobody waits for, that gives back the grant of a caller's op.
func ownUndo(decide func(*step, *op), o *op) *op {
	own := &op{decide: decide, booking: o.booking, grant: o.grant, nth: o.nth, isUndo: true}
	own.booking.Charges = slices.Clone(o.booking.Charges)
	return own
}

// owedBy returns what the node still owes after a step with the op o has failed: an op of the node's own that gives back what o was to give back.
// It returns nil if o gives nothing back. unsure says that the rows may have been saved. Then the owed op changes the memory alone: a start that is
// given back twice would be taken from a different caller, and slots need not be given back, because the leases that the node had in the rows are over.
func owedBy(o *op, unsure bool) *op {
	decide := o.decide
	switch {
	// A booking that replaces something still has to give it back.
	case o.books && o.gives():
		decide = withdraw

	// The op gives nothing back.
	case !o.isUndo:
		return nil
	}

	if unsure {
		decide = withoutRows(decide)
	}

	return ownUndo(decide, o)
}

// withoutRows returns a decide that changes the memory as the given one does, and no rows.
func withoutRows(decide func(*step, *op)) func(*step, *op) {
	return func(st *step, o *op) {
		// A table that is forgotten afterwards takes the changes of rows.
		rows, scratch := st.rows, NewTable(nil)
		scratch.Begin(rows.Now(), rows.Asked(), rows.Received(), true)
		st.rows = &scratch
		decide(st, o)
		st.rows = rows
		st.resolved++ // by now the memory has what was in doubt
	}
}

// places are waiters by budget and arrival. A line without waiters has no entry.
type places[W any] map[ledger.Key]map[int64]*W

// put sets who has an arrival in the line of a budget. If w is nil, nobody has it any more.
func (all places[W]) put(key ledger.Key, arrival int64, w *W) {
	switch line := all[key]; {
	case w != nil && line == nil:
		all[key] = map[int64]*W{arrival: w}
	case w != nil:
		line[arrival] = w
	default:
		delete(line, arrival)
		if len(line) == 0 {
			delete(all, key)
		}
	}
}
