package ledger

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Key names a budget: see Key in [store.Budget].
type Key = [16]byte

// A Row is one budget: docs/internals/booking.md says what it promises. The
// zero Row is a budget that was never used. All times are microseconds of the
// store's clock. A Row is not safe for concurrent use.
type Row struct {
	entries []entry // each begins later than the entry before, and ends no earlier
	total   int64   // the sum of their n

	seen   int64 // the time of the last request
	lost   int64 // no start later than this was forgotten. Zero means that no start was.
	span   int64 // for how many microseconds entries are kept
	most   int64 // upper bound on the starts in any half-open interval of a span
	until  int64 // entries need span and most until then, even if a caller's limit needs less
	paused int64 // the budget is closed until then. The end stays for the slow start afterwards. Zero means that the budget was never closed, or was resumed.
	last   penalty
	frozen int64 // starts up to then stay booked when they are cancelled

	level int64 // TokenBucket: units spent at the time lost; see the type level
	unit  int64 // units of a token in level. Negative means that other limits added to level. Zero means that the limit was never a bucket.

	ceiling ceiling        // what was learned of the upstream. Zero means nothing.
	note    note           // what the upstream has told. Zero means nothing.
	lifts   int64          // how many times Resume opened a closed budget
	tails   [classes]int64 // the last start that waiters of each class got, and behind which later callers keep
	pin     int64          // the last start that is, or was, beyond the horizon

	queue  *queue  // the line for starts, nil without waiters
	slots  *slots  // Concurrency: slots in use and the line for them, nil before the first caller
	leases []lease // of the nodes that hold slots or wait, except nodes without a lease
}

// An entry says that n starts, costs summed, lie in the closed interval
// [first, last].
type entry struct{ first, last, n int64 }

// A level is how full of spent tokens a bucket was at a moment. It is counted in
// units, so that all numbers are whole: a token is rule.micros units, and in each
// microsecond rule.tokens units flow back.
type level struct{ at, spent int64 }

// A penalty is what a row remembers of the last pause or penalty that closed it: see
// docs/internals/bans.md. The zero penalty is none.
type penalty struct {
	length int64 // for how many microseconds it closed the budget
	probe  int64 // for how many microseconds the first start afterwards is alone
	times  int64 // how many refusals in a row met it. Zero means that it was a pause.
}

// A ceiling is what was learned of how much the upstream allows. Its height at any
// moment follows from its fields, so the ceiling rises without being written. See
// docs/use/bans.md#learn-from-refusals.
type ceiling struct {
	top    float64 // the level that was refused, to which the ceiling rises back and beyond
	fell   int64   // when the ceiling fell
	window int64   // rule.learns of the rule for which this was learned
}

// A stored row lists at most maxPlaces waiters of its line for starts and
// maxSlotPlaces of its line for slots, if they fit, and counts the rest. When few
// of the listed waiters are left, the counted waiters are wanted: see Wants. Few is
// below fewPlaces in the line for slots, and below Row.few in the line for starts:
// half of maxPlaces is enough for all starts of a horizon of 350 ms at 700 a
// second. A lease or a lane takes the room of about leasePlaces places.
const (
	maxPlaces     = 512
	maxSlotPlaces = 128
	fewPlaces     = 64
	leasePlaces   = 4
)

// maxShares returns how many shares a stored row tells apart. All callers without a
// share count as one of them. For so many shares MaxBytes has room for the lane and
// its first place. Under a large limit costs are large numbers, so fewer fit.
func maxShares(limit int64) int {
	if limit > 100_000 {
		return 50
	}
	return 100
}

// Recall is the time within which a waiter without a place asks again. If for silence,
// three times as long and in microseconds, none of these waiters has come, left or asked
// again, all of them are forgotten.
const (
	Recall  = time.Second
	silence = 3 * int64(Recall/time.Microsecond)
)

// classes is how many priorities there are.
const classes = 3

// Class returns the class of a priority: 0 for the highest, which goes first.
// Priorities above and below all others count as the highest and the lowest.
func Class(p store.Priority) int {
	return int(store.PriorityHigh - max(store.PriorityLow, min(p, store.PriorityHigh)))
}

// A Place names the place of a waiter in the line of a budget.
type Place struct {
	Key     Key
	Arrival int64
	Node    int64
}

// Clone returns a deep copy, for readers such as Status that change the row they
// look at. The clone of a nil row is the zero Row.
func (r *Row) Clone() *Row {
	c := new(Row)
	if r == nil {
		return c
	}

	*c = *r
	c.entries, c.leases = slices.Clone(r.entries), slices.Clone(r.leases)
	if r.queue != nil {
		c.queue = r.queue.clone()
	}
	if r.slots != nil {
		l := *r.slots
		l.line = slices.Clone(l.line)
		c.slots = &l
	}
	return c
}

// times are the times of the row's head that move when the clock steps. A time of
// zero is none, and does not move. The field frozen is not among them, because it is
// compared with marks, which do not move, nor is seen, the time before the step.
func (r *Row) times() [9]*int64 {
	return [...]*int64{&r.lost, &r.until, &r.paused, &r.ceiling.fell, &r.tails[0], &r.tails[1], &r.tails[2], &r.pin, &r.note.heard}
}

// storedTimes is how many of the times are in every stored row. The last time is
// that of the note, and is only stored with it.
const storedTimes = 8

// numbers are the numbers of the row's head that are no times, all at least 0.
func (r *Row) numbers() [8]*int64 {
	return [...]*int64{
		&r.span, &r.most, &r.last.length, &r.last.probe, &r.last.times, &r.level, &r.ceiling.window, &r.lifts,
	}
}

// Size returns how many entries the row has, and for how many it has memory.
func (r *Row) Size() (entries, room int) { return len(r.entries), cap(r.entries) }

// IsBefore reports whether the row is an earlier state than other, if the clock
// was not set back between the two.
func (r *Row) IsBefore(other *Row) bool { return r.seen < other.seen }

// Busy reports whether a request is in flight, or a caller waits. Such a row must be
// kept beyond its Expiry for nodes without a lease: these hold slots and places for
// as long as they live.
func (r *Row) Busy() bool { return r.queue != nil || r.slots != nil && r.slots.busy() }

// Expiry returns the time, in microseconds, from which on nothing in the row
// matters, unless the row is Busy.
func (r *Row) Expiry() int64 {
	// The row matters until the latest of several ends.
	end := max(r.seen, r.ceiling.forgotten(), r.note.until())
	for i := range r.leases {
		end = max(end, r.leases[i].until)
	}

	// A row outlives its penalty by the probe and the slow start, and by the time in which a refusal meets the penalty again.
	if r.paused > 0 {
		end = max(end, r.paused+max(r.last.probe, r.last.step(), int64(len(steps))*r.span))
	}
	if k := len(r.entries); k > 0 {
		end = max(end, r.entries[k-1].last+r.span+Doubt)
	}

	// Reconcile must know that there were starts, even if they are forgotten.
	if r.lost > 0 {
		end = max(end, r.lost+r.span+Doubt)
	}
	return end
}

// Lists reports whether a waiter has its place in one of the row's lines. A row
// in memory lists all waiters; MarshalBinary lists the first of each line and
// counts the rest, so that a stored row has a bound.
func (r *Row) Lists(at Place) bool {
	if r.slots != nil {
		if _, ok := r.slots.find(at.Arrival, at.Node); ok {
			return true
		}
	}
	return r.queue != nil && r.queue.has(at.Arrival)
}

// ListsAll reports whether all waiters for starts have a place.
func (r *Row) ListsAll() bool {
	return r.queue == nil || !slices.ContainsFunc(r.queue.lanes[:], func(c lanes) bool { return c.beyond() > 0 })
}

// Wants reports whether waiters without a place should ask again now, because
// few waiters with a place are left.
func (r *Row) Wants() bool {
	if r.queue != nil && !r.ListsAll() {
		return r.queue.isShort(r.few())
	}
	return r.slots != nil && r.slots.beyond > 0 && len(r.slots.line) < fewPlaces
}

// few returns the number below which waiters with places are few in the line for
// starts: half of maxPlaces, less the places whose room leases and lanes take, and at
// least fewPlaces. The first lane of a class takes no room for itself.
func (r *Row) few() int {
	few := maxPlaces/2 - leasePlaces*len(r.leases)
	if r.queue != nil {
		for _, c := range r.queue.lanes {
			few -= leasePlaces * max(0, len(c)-1)
		}
	}
	return max(fewPlaces, few)
}

// Recalls reports whether a waiter for a start that stands in the row's line
// without a place takes one now. It does if the row has no line, if the waiter
// stands in no line, and if no waiter of its lane is without a place. Otherwise the
// waiter must have come before the last waiter with a place in its lane: the waiters
// of several nodes ask in any order. While few have places, the first to ask take
// places, too: more is added to the number that counts as few.
func (r *Row) Recalls(w *Waiter, more int) bool {
	if r.queue == nil || w.stand == nil {
		return true
	}

	// The row may have no lane for the waiter's share. Then the common lane counts the waiter, and the waiter takes a place if no waiter is only
	// counted any more, or while the row wants some.
	own := r.queue.lanes[w.stand.class].of(w.stand.share)
	if own == nil {
		return r.ListsAll() || r.Wants()
	}
	if own.beyond == 0 {
		return true
	}
	return !own.isBehindPlaces(w.stand.place.arrival) || r.queue.isLaneShort(w.stand.class, own, r.few()+more)
}

// StillWait notes that waiters without a place still wait.
func (r *Row) StillWait() {
	if r.queue != nil {
		r.queue.asked = r.seen
	}
}
