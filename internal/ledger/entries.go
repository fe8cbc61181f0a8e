package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// The entries of a row: the window of starts that still matter, in few bytes.
// First comes how entries are added, joined, bounded and dropped, then how a
// start is booked in them and taken out again.

const (
	// MaxEntries is the largest number of entries of a row, and EntryBytes the
	// largest number of bytes that they take in Redis. With its head a row takes at
	// most 4 KB there. Entries beside a line of waiters have less room in Redis. A
	// row of fewEntries fits in any case.
	MaxEntries = 224
	EntryBytes = 3204
	fewEntries = EntryBytes / tripleBytes

	// tripleBytes is the largest number of bytes that an entry takes.
	tripleBytes = 27

	// maxCount is the largest N of a limit, and so enough to fill any window.
	maxCount = 1 << 40
)

// blockEnd returns when the last unit of an entry is over. A unit is alone for the
// time unit, which is 0 unless the limit is a leaky bucket. An entry may have more
// units than it has time for. Then they count one after the other from its begin on,
// but no more than maxUnits of them, which is the limit: so many units take at least
// a window, and a start at the begin of the entry does not matter for longer.
func (e *entry) blockEnd(unit, maxUnits int64) int64 {
	return max(e.last+unit, e.first+min(e.n, maxUnits)*unit)
}

// join makes one entry of the entries i and i+1.
func (r *Row) join(i int) {
	r.entries[i].last = r.entries[i+1].last
	r.entries[i].n += r.entries[i+1].n
	r.entries = slices.Delete(r.entries, i+1, i+2)
}

// after returns the index of the first entry that ends at t or later, or the number
// of entries if there is none.
func (r *Row) after(t int64) int {
	i := len(r.entries)
	for i > 0 && r.entries[i-1].last >= t {
		i--
	}
	return i
}

// later sums the costs of all entries that end after t, and returns the index i of
// the first of these, or the number of entries if there is none.
func (r *Row) later(t int64) (sum int64, i int) {
	sum = r.total
	for i < len(r.entries) && r.entries[i].last <= t {
		sum -= r.entries[i].n
		i++
	}
	return sum, i
}

// push counts n starts in [first, last], where first is not before the begin of
// the row's final entry. If that entry begins at partStart or later, the starts share
// it. Otherwise push appends an entry for them. In both cases the row's final entry
// ends no earlier than before.
func (r *Row) push(first, last, n, partStart int64) {
	r.total += n
	if k := len(r.entries) - 1; k >= 0 {
		// No entry may end before the entry in front of it does.
		e := &r.entries[k]
		last = max(last, e.last)
		if e.first >= partStart {
			e.last, e.n = last, e.n+n
			return
		}
	}
	r.entries = append(r.entries, entry{first, last, n})
}

// one returns the index of the entry that has the start at t; found is false if
// there is no such entry. If several entries may have the start, one joins them
// first.
func (r *Row) one(t int64) (i int, found bool) {
	i = r.after(t)
	if i == len(r.entries) || r.entries[i].first > t {
		return 0, false
	}
	for i+1 < len(r.entries) && r.entries[i+1].first <= t {
		r.join(i)
	}
	return i, true
}

// add counts n starts in [first, last]. The entries that overlap this interval
// become one entry, which covers them and the interval. If there are none, the
// starts get an entry of their own.
func (r *Row) add(first, last, n int64) {
	i := r.after(first)
	r.total += n
	if i == len(r.entries) || r.entries[i].first > last {
		r.entries = slices.Insert(r.entries, i, entry{first, last, n})
		return
	}

	for i+1 < len(r.entries) && r.entries[i+1].first <= last {
		r.join(i)
	}
	e := &r.entries[i]
	e.first, e.last, e.n = min(e.first, first), max(e.last, last), e.n+n
}

// packed returns an upper bound on the bytes that a number takes in Redis, where
// rows are in MessagePack.
func packed(x int64) int {
	// A negative number needs a bit for the sign. Only numbers down to -32 take a single byte, so count two bytes at least.
	if x < 0 {
		x = max(1<<7, -2*x)
	}

	switch {
	case x < 1<<7:
		return 1
	case x < 1<<8:
		return 2
	case x < 1<<16:
		return 3
	case x < 1<<32:
		return 5
	}

	return 9
}

// isSmall reports whether the entries fit into MaxEntries and EntryBytes.
func (r *Row) isSmall() bool {
	e := r.entries
	k := len(e)

	// A row of few entries always fits, and a row of more than MaxEntries never does.
	switch {
	case k <= fewEntries:
		return true
	case k > MaxEntries:
		return false
	}

	// A quick upper bound. An entry is stored as three numbers: its distance from the entry before, its length and its count. No distance or length is
	// longer than the time from the first entry to the last, and no count is above the total. A distance below 0 counts double in packed.
	if 3*k*packed(max(2*(e[k-1].last-e[0].first), r.total)) <= EntryBytes {
		return true
	}

	// The quick bound was too high, so sum the sizes of the numbers themselves. last is the end of the entry before.
	bytes, last := 0, e[0].first
	for i := range e {
		bytes += packed(e[i].first-last) + packed(e[i].last-e[i].first) + packed(e[i].n)
		last = e[i].last
	}
	return bytes <= EntryBytes
}

// bound joins the closest neighbours until the entries are small enough. It
// begins with entries that end a span or more before the last entry does, because
// the entries behind these decide the next booking. An entry that is over is never
// joined with an entry that is not, whose starts may yet be cancelled.
func (r *Row) bound() {
	if r.isSmall() {
		return
	}

	tail := r.entries[len(r.entries)-1].last - r.span // where the last span begins
	for !r.isSmall() {
		// Join only a pair that is alike: both of its entries are over, or neither is. At most one pair of neighbours is unlike, so there is a pair to
		// join. A pair before the tail is better than a pair that reaches into the tail. Otherwise the narrower pair is better: joined, it closes less room.
		best, width, inTail := -1, int64(0), true
		for i := range len(r.entries) - 1 {
			e, next := &r.entries[i], &r.entries[i+1]
			w, reachesTail := next.last-e.first, next.last > tail
			alike := e.last > r.seen || next.last <= r.seen
			better := best < 0 || (inTail && !reachesTail) || (inTail == reachesTail && w < width)
			if alike && better {
				best, width, inTail = i, w, reachesTail
			}
		}
		r.join(best)
	}
}

// drop takes the first k entries out of the row.
func (r *Row) drop(k int) {
	for _, e := range r.entries[:k] {
		r.total -= e.n
	}
	r.entries = slices.Delete(r.entries, 0, k)
}

// widen returns the interval [first, last] of a new start, extended until it
// touches the neighbours that lie in the same part of the window,
// [partStart, partEnd): then add joins them. The neighbours are the entries i-1
// and i, where i is after(first). A start that begins within entry i needs no
// extension: add counts it in that entry.
func (r *Row) widen(i int, first, last, partStart, partEnd int64) (int64, int64) {
	if i < len(r.entries) && r.entries[i].first <= first {
		return first, last
	}

	// Entry i-1 ends before first, and entry i begins after first. An entry i that begins by last is joined by add in any case.
	if i > 0 && r.entries[i-1].first >= partStart {
		first = r.entries[i-1].last
	}
	if i < len(r.entries) && r.entries[i].last < partEnd && r.entries[i].first > last {
		last = r.entries[i].first
	}
	return first, last
}

// fuse returns the interval from the first unit to the last unit of a start of a
// leaky bucket, extended until it touches the blocks right before and right behind
// it: add then makes one entry of blocks without a gap between them. A block ends
// where its last unit begins, so two such blocks are a unit apart.
func (r *Row) fuse(first, last, unit int64) (int64, int64) {
	if i := r.after(first); i > 0 && r.entries[i-1].last == first-unit {
		first -= unit
	}
	if k := r.after(last + 1); k < len(r.entries) && r.entries[k].first == last+unit {
		last += unit
	}
	return first, last
}

// bookProbe counts a start at t of an unlimited budget, if the start or its spread
// lies in the time of the probe after a penalty. No row counts any other start of
// an unlimited budget.
func (r *Row) bookProbe(t int64, u *rule) {
	if t < r.paused+r.last.probe && t+u.length() >= r.paused {
		r.add(t, t+u.length(), 1)
		r.bound()
	}
}

// book counts the cost of a start at t, in an entry of its own or in an entry
// that the start shares with others.
func (r *Row) book(t int64, u *rule) {
	first, last := t, t+u.length()
	if u.unit > 0 {
		// Units of a leaky bucket without a gap between them are one block.
		first, last = r.fuse(first, last, u.unit)
	} else if u.aligned {
		// Months and days differ in length: keep entries for the longest of them.
		_, _, keep := u.window(t)
		r.span = max(r.span, keep)
	}

	// Under a large limit the starts of one part of the window share an entry. Otherwise each moment is a part of its own.
	partStart, partEnd := t, t
	if u.n > windowParts {
		partStart, partEnd = u.part(t)
	}

	switch k := len(r.entries); {
	// Blocks that touch or overlap become one.
	case u.unit > 0:
		r.add(first, last, u.cost)

	// Most starts begin no earlier than the last entry.
	case k == 0 || r.entries[k-1].first <= t:
		r.push(first, last, u.cost, partStart)

	// A start before others is widened to touch neighbours in the same part of the window.
	default:
		first, last = r.widen(r.after(t), first, last, partStart, partEnd)
		r.add(first, last, u.cost)
	}

	// Keep the span at least until this start no longer matters, even if a later caller's limit has a shorter one.
	r.until = max(r.until, last+r.span)
	r.bound()
}

// overfull reports whether a block has more units than it has time for: then
// taking out one of them frees no time.
func (e *entry) overfull(unit int64) bool {
	// Divide, because the product of e.n and unit could overflow.
	return e.n-1 > (e.last-e.first)/unit
}

// split puts back what is left of the block e, from which the booking at t was
// taken out: the part before the booking and the part behind it, if there are such
// parts. rest is how many units are left. Each part counts as many as it has time for, at
// least 1 and at most rest. Both counts together may be above rest, which is safe.
func (r *Row) split(e entry, rest, t int64, u *rule) {
	end := t + u.length() + u.unit
	if e.first < t {
		r.add(e.first, max(e.first, t-u.unit), max(1, min(rest, (t-e.first)/u.unit)))
	}
	if e.last >= end {
		r.add(end, e.last, max(1, min(rest, (e.last-end)/u.unit+1)))
	}
}

// remove takes the booking at t out again, and reports whether it did. It changes
// nothing if the booking is frozen, if no entry has it, or if it may have been
// forgotten: then an entry that overlaps it may hold only starts of other callers.
func (r *Row) remove(t int64, u *rule) bool {
	if t <= r.frozen || t+u.length() <= r.lost {
		return false
	}

	i, found := r.one(t)
	if !found {
		return false
	}

	e := r.entries[i]
	rest := max(0, e.n-u.cost)

	// The entry keeps its interval if starts remain that can be anywhere in it.
	if rest > 0 && (u.unit == 0 || e.overfull(u.unit)) {
		r.entries[i].n = rest
		r.total -= u.cost
		return true
	}

	r.entries = slices.Delete(r.entries, i, i+1)
	r.total -= e.n

	// In a block of a leaky bucket each unit has its own time, so the start leaves a gap.
	if u.unit > 0 {
		r.split(e, rest, t, u)
		r.bound()
	}

	return true
}

// counts reports whether a booking at t still counts at the time now.
func (u *rule) counts(t, now int64) bool {
	// In a fixed window the start itself counts. In other limits a booking counts until its last unit, or its spread, is over.
	if !u.aligned {
		t += u.length()
	}
	since, _, _ := u.window(now)
	return t >= since
}

// windowParts is into how many parts a window is cut when its limit is too large
// to keep every start by itself: starts of one part share an entry.
const windowParts = 128

// A rule is a charge in numbers. All its times are microseconds. Three files know
// the kinds of limits: this file says what each kind is, search.go how a start is
// found under it, and age.go how a told limit becomes a sliding window. All other
// files read the fields of the rule. A rule is called u.
type rule struct {
	limit   *store.Limit
	kind    store.Kind
	aligned bool  // the windows have edges. Otherwise a window ends at every moment.
	slots   bool  // requests in flight count, not starts
	tells   bool  // the limit is Told: see obeyNote
	adapts  bool  // the charge of a Told limit is Adaptive, so that a ceiling may lower the note
	n       int64 // the largest cost that ever fits
	cost    int64
	reserve int64 // how much the start must leave free
	room    int64 // how much may be in use beside the cost and the reserve
	span    int64 // no start matters to a start that is a span later; see Span of store.Charge
	jitter  int64 // see store.Charge
	pace    int64 // see store.Charge
	spread  int64 // see store.Booking
	most    int64 // n, or how much of n a ceiling allows

	// Fields that only some kinds have, like aligned and slots above.
	width  int64 // the length of the windows. Zero means that there are none, or they differ in length.
	unit   int64 // for how long each unit of a cost is alone. Zero means that units may start together.
	pad    int64 // by how much longer each unit is alone because of a ceiling
	tokens int64 // this many tokens flow into a bucket in micros. Zero means that there is no bucket.
	micros int64
	peak   int64 // upper bound on the starts in any half-open interval as long as entries are kept. Zero means that no start counts.

	learns int64   // see LearningPeriod of store.Charge
	rate   float64 // how much the limit allows in the time learns
}

// set makes u the rule of a charge in a booking with that spread. It sets all
// fields: u may have been the rule of a different charge. It returns no new rule,
// because a rule is so large that copying it takes time.
func (u *rule) set(c *store.Charge, spread time.Duration) {
	u.limit, u.kind = &c.Limit, c.Limit.Kind()
	u.n, u.cost = int64(c.Limit.Capacity()), int64(c.Cost)
	u.reserve, u.most = int64(c.KeepFree), u.n
	u.room = u.n - u.cost - u.reserve
	u.span = Micros(c.Span())
	u.jitter, u.pace, u.spread = Micros(c.Jitter), Micros(c.Pace), Micros(spread)
	u.learns, u.rate = Micros(c.LearningPeriod()), float64(u.n)
	u.tells, u.adapts = false, false
	u.setKind(c)
}

// setKind sets the fields that depend on the kind of limit.
func (u *rule) setKind(c *store.Charge) {
	// Begin with the values that mean that a kind has no such field.
	u.aligned, u.slots, u.width, u.unit, u.pad, u.tokens, u.micros, u.peak = false, false, 0, 0, 0, 0, 0, u.n

	switch u.kind {
	case store.KindSlidingWindow:
		u.width = u.span
	case store.KindFixedWindow:
		u.aligned, u.width, u.peak = true, Micros(u.limit.Per()), 2*u.n // a span can reach over an edge
	case store.KindLeakyBucket:
		u.unit, u.peak = u.span, 1
	case store.KindTokenBucket:
		u.tokens, u.micros = c.Refill()
		u.peak = 2 * u.n // a full bucket, and as much as flows in
		u.rate = float64(u.learns) * float64(u.tokens) / float64(u.micros)
	case store.KindConcurrency:
		u.slots = true
	case store.KindUnlimited:
		u.cost, u.peak = 1, 0 // a request counts as 1, whatever it costs
	case store.KindTold:
		u.kind, u.tells, u.peak = store.KindUnlimited, true, 0 // until the row has a note
		u.adapts, u.learns = c.Adaptive, 0
	}
}

// window returns since when starts matter to a start at t, from when on the start
// at t no longer matters, and for how long a start can matter. In a fixed window
// these are its begin, its end and its length.
func (u *rule) window(t int64) (since, until, keep int64) {
	if u.aligned {
		s, e := u.limit.Window(time.UnixMicro(t))
		since, until = s.UnixMicro(), e.UnixMicro()
		return since, until, until - since
	}
	return t - u.span + 1, t + u.span, u.span
}

// hasWindows reports whether starts are counted in windows.
func (u *rule) hasWindows() bool { return u.aligned || u.width > 0 }

// part returns the part of the time line around t in which starts may share an
// entry, as the half-open interval [start, end).
func (u *rule) part(t int64) (start, end int64) {
	// Parts are counted from the begin of a fixed window, and otherwise from the time 0.
	base, _, keep := u.window(t)
	if !u.aligned {
		base = 0
	}

	width := partOf(keep)
	start = t - (t-base)%width
	return start, start + width
}

// partOf returns the width of a part of a window.
func partOf(span int64) int64 { return (span + windowParts - 1) / windowParts }

// length returns how long a booking goes on behind its start: until its last unit
// begins, and for the spread.
func (u *rule) length() int64 { return (u.cost-1)*u.unit + u.spread }

// Micros returns a duration in microseconds. It rounds up, because a longer time
// keeps every promise that a shorter time keeps.
func Micros(d time.Duration) int64 {
	m := d / time.Microsecond
	if m*time.Microsecond < d {
		m++
	}
	return int64(m)
}

// A Constant is a number, or a list of numbers, that has the same value in the
// scripts of redisstore as in this package.
type Constant struct {
	Name  string // in the scripts
	Value any    // a number, or a list as the text of a Lua table. Lengths of time are in microseconds.
}

// Constants returns all constants by which both languages decide. Only this
// package defines them.
func Constants() []Constant {
	return []Constant{
		// What rows keep.
		{"MAX_ENTRIES", MaxEntries},
		{"ENTRY_BYTES", EntryBytes},
		{"TRIPLE", tripleBytes},
		{"WINDOW_PARTS", windowParts},
		{"MAX_COUNT", int64(maxCount)},
		{"MAX_NUMBER", int64(maxNumber)},
		{"MAX_LEVEL", int64(maxLevel)},

		// Clocks that are set back.
		{"STALL", Stall},
		{"MARKED", maxMarkAhead},

		// Penalties and the slow start after them.
		{"MIN_PROBE", MinProbe},
		{"MAX_PROBE", maxProbe},
		{"MAX_GROWN", maxGrown},
		{"MAX_STEP", maxStep},
		{"SLOW_STEPS", len(steps)},
		{"STEP_PARTS", "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(steps)), ", "), "[]") + "}"}, // {8, 2}

		// Ceilings.
		{"RISING_WINDOWS", risingWindows},
		{"MIN_RISING", minRising},
		{"CEILING_FALL", fall},
		{"CEILING_RISEN", risen},

		// What upstreams tell of their limits.
		{"MAX_TOLD", maxTold},
		{"MIN_TOLD_WINDOW", minToldWindow},
		{"MAX_TOLD_WINDOW", maxToldWindow},
		{"PREFERRED", preferred},
		{"NOTE_KEPT", noteKept},
		{"EVEN_PACE", Micros(store.MaxEvenPace)},

		// What upstreams say is left, and when waiters have their turn.
		{"DOUBT", Doubt},
		{"MAX_EVEN_WINDOW", maxEvenWindow},
		{"FAR_WINDOWS", farWindows},
	}
}

// The short way: the usual booking in a fraction of the steps of a Request.

// Few is an upper bound on the charges of nearly all bookings. Stores keep the
// rows of a booking with at most that number of charges on the stack.
const Few = 12

// BookShort books a start now for a caller without a Turn, and fills in g, which
// was zero. It decides like a Request, in a fraction of the steps, if each charge is
// Unlimited and has no row, or is under a sliding window and its row is plain and has
// room now. Most bookings are so. The rows are in the order of the charges, nil for a
// charge without a row.
//
// BookShort returns false, and has changed nothing, if any charge is different, is a
// Shadow charge with a row, or has the row of another charge. It returns false, too, if
// the booking has a NotBefore, or its caller had a start or a place before. Then a
// Request must decide.
func BookShort(now int64, b *store.Booking, rows []*Row, g *store.Grant) (decided bool) {
	charges := b.Charges
	if b.Returns || b.NotBefore != 0 || isSet(&b.Instead) {
		return false
	}

	// Change no row before all rows are known to be plain.
	for i := range charges {
		r, c := rows[i], &charges[i]
		if r == nil && c.Limit.Kind() == store.KindUnlimited {
			continue
		}
		if c.Limit.Kind() != store.KindSlidingWindow || c.Shadow || slices.Contains(rows[:i], r) {
			return false
		}

		span, n := shortSpan(c), int64(c.Limit.N())
		if !r.isPlain(now, span) || !r.hasRoom(now, span, n-int64(c.Cost)-int64(c.KeepFree)) {
			return false
		}
	}

	// All budgets have room, so book in all of them. The stamp is 1 and the number of pauses that were lifted: see Usable.
	stamp, spread := int64(1), Micros(b.Spread)
	for i := range charges {
		r, c := rows[i], &charges[i]
		if r == nil {
			continue
		}

		r.bookPlain(now, shortSpan(c), int64(c.Limit.N()), int64(c.Cost), spread)
		stamp += r.lifts
	}

	g.OK, g.HeldBy, g.Handle.Start, g.Handle.Stamp = true, store.NotHeld, now, stamp
	return true
}

// shortSpan returns what Charge.Span returns for a sliding window, in microseconds.
func shortSpan(c *store.Charge) int64 { return Micros(c.Limit.Per()+c.Jitter) + 1 }

// isSet reports whether a handle is not the zero handle. A comparison by == takes
// twice as long.
func isSet(h *store.Handle) bool {
	return h.Start|h.Place|h.Stamp != 0 || h.Local || h.Node != nil
}

// isPlain reports whether nothing but its starts decides a booking now in a row
// under a sliding window of that span.
func (r *Row) isPlain(now, span int64) bool {
	return now >= r.seen && // the clock did not step back
		(span == r.span || now >= r.until) && r.lost <= now-span && // no history is missing: see remember
		(r.paused == 0 || r.slowEnd(span) <= now) && // the slow start is over
		max(r.tails[0], r.tails[1], r.tails[2]) <= now && // there is no start to keep behind
		r.ceiling.top == 0 && // the whole limit counts
		r.queue == nil && r.slots == nil && len(r.leases) == 0 // nobody waits, and no node can have died
}

// slowEnd returns when the probe and the slow start in a sliding window of that
// span are over.
func (r *Row) slowEnd(span int64) int64 {
	return r.paused + max(r.last.probe, int64(len(steps))*min(r.last.step(), span))
}

// hasRoom reports whether a start may be booked now behind all entries: none of
// them begins later than now, and those that count now sum up to at most room.
func (r *Row) hasRoom(now, span, room int64) bool {
	e, total := r.entries, r.total
	if k := len(e); k > 0 && e[k-1].first > now {
		return false
	}

	// Subtract the entries that are over from the total, until the rest leaves room.
	for i := 0; total > room; i++ {
		if i == len(e) || e[i].last+span > now {
			return false
		}
		total -= e[i].n
	}
	return true
}

// sliding is the rule that bookPlain passes to prune, which asks only for units and
// tokens. A sliding window has neither.
var sliding rule

// bookPlain does with a plain row what advance and book do, for a start now.
func (r *Row) bookPlain(now, span, n, cost, spread int64) {
	// As in remember: the span and the bound of an older limit count until no entry needs them.
	if now >= r.until || r.isBlank() {
		r.span, r.most = span, n
	} else {
		r.most = max(r.most, n)
	}
	r.seen = now

	// Mostly the first entry is not over, and prune would drop nothing.
	if len(r.entries) > 0 && r.isOver(&r.entries[0], now) {
		r.prune(now, &sliding)
	}

	// As in book: under a large limit the starts of one part of the window share an entry.
	partStart := now
	if n > windowParts {
		partStart -= now % partOf(span)
	}
	r.push(now, now+spread, cost, partStart)
	r.until = max(r.until, now+spread+span)
	r.bound()
}
