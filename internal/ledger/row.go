package ledger

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Key names a budget: [store.Budget].Key.
type Key = [16]byte

// A Row is one budget: see docs/internals/booking.md for what it promises. The zero Row is a budget
// that was never used. All times are microseconds of the store's clock.
type Row struct {
	entries []entry // each begins later than the one before, and ends no earlier
	total   int64   // the sum of their n

	seen   int64 // the latest time that anybody asked
	lost   int64 // no start later than this was forgotten; 0: none was
	span   int64 // entries are kept for so long
	most   int64 // no half-open interval of a span holds more than this
	until  int64 // span and most are needed until then, even if a caller's limit is smaller
	paused int64 // closed until then; kept for the slow start after it
	last   penalty
	frozen int64 // starts up to then stay booked when they are cancelled

	level int64 // TokenBucket: what was spent of it at lost, in units; see bucket.go
	unit  int64 // units of a token in level; negative: other limits added to it; 0: it was no bucket

	ceiling ceiling        // what was learned of the upstream; zero: nothing
	lifts   int64          // how many pauses ended before their time
	tails   [classes]int64 // the last start that waiters of each priority got
	pin     int64          // the last start that is, or was, beyond the horizon

	queue  *queue  // the waiters for a start; nil: none
	slots  *slots  // Concurrency: what is in flight and waits; nil: nothing yet
	leases []lease // of the nodes that hold slots or wait, but for those without one
}

// An entry says that n starts, costs summed, lie in [first, last].
type entry struct{ first, last, n int64 }

// A level is what was spent of a bucket at some moment. It is counted in units
// that make all arithmetic whole: a token is rule.micros units, and each
// microsecond rule.tokens units flow back.
type level struct{ at, spent int64 }

// A penalty is what a row remembers of the last one; see docs/internals/bans.md.
type penalty struct {
	length int64 // for how long it closed the budget
	probe  int64 // for how long the first start after it is alone
	times  int64 // how often in a row it was met; 0: it was no refusal
}

// A ceiling is what was learned of how much the upstream allows: the level of use that
// was refused, when the ceiling fell from there, and the window that both are about. How
// high it is at any moment follows from that, so that it rises without being written.
// See docs/learning.md.
type ceiling struct {
	top    float64
	fell   int64
	window int64
}

// maxPlaces is how many waiters a row lists in its line for starts when it is bytes, if they fit, and maxSlotPlaces how many in that for slots. The
// others are counted. If fewer than fewPlaces are left of those that are listed, others are wanted.
const (
	maxPlaces     = 512
	maxSlotPlaces = 128
	fewPlaces     = 64
)

// maxShares is how many shares, and callers without one, a row as bytes tells apart: each has a lane and its first place in MaxBytes. Large costs
// are large numbers.
func maxShares(limit int64) int {
	if limit > 100_000 {
		return 50
	}
	return 100
}

// Recall is how often a waiter without a place has to ask again, at the least. If none of
// them does for three times as long, they are forgotten.
const (
	Recall  = time.Second
	silence = 3 * int64(Recall/time.Microsecond)
)

// classes is how many priorities there are.
const classes = 3

// class returns the index of a priority; 0 goes first.
func class(p store.Priority) int {
	return int(store.PriorityHigh - max(store.PriorityLow, min(p, store.PriorityHigh)))
}

// A queue is the line of a budget for starts: see docs/internals/line.md.
type queue struct {
	lanes  [classes]lanes
	called []place // of waiters that had their turn, and come for slots too
	began  int64   // since when it has had waiters
	asked  int64   // when a waiter came or left last
	guard  int64   // the node that goes through the line at a time, if no other does before; 0: none. See Pass
	until  int64   // that time
}

// slots is what a Concurrency budget has in flight, and the line for it. It is not known when there will
// be room, so waiters are told no time: they are called when it is there.
type slots struct {
	held   int64      // the costs of what runs
	aside  int64      // the costs of waiters that were called and have not come yet
	line   []slotWait // by arrival
	beyond int64      // the costs of those waiters that have no place, and are only counted
	asked  int64      // when a waiter came or left last
}

// A Place names the place of a waiter in the line of a budget.
type Place struct {
	Key     Key
	Arrival int64
	Node    int64
}

// A slotWait is a place in the line for slots.
type slotWait struct {
	place
	room   int64 // what may be taken besides the cost and what must stay free
	whole  int64 // what may be taken besides the cost
	called bool
	silent bool // it stands aside until its node speaks; see Row.lapseSlots
}

// A lease is for how long a node is believed to live.
type lease struct {
	node  int64
	until int64
	held  int64 // the costs of its slots
	asked int64 // since when it is to come because of a waiter; 0: it is not, or has come. See Pass
}

// Clone returns a copy of the row for Status, which changes it; a row that does not exist
// is nil.
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

// times are those of the row's head that move with the clock; 0 is none. Frozen is about
// marks, which do not, and seen is what they are compared with.
func (r *Row) times() [8]*int64 {
	return [...]*int64{&r.lost, &r.until, &r.paused, &r.ceiling.fell, &r.tails[0], &r.tails[1], &r.tails[2], &r.pin}
}
