package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// The stored form: a version, the head, entries, leases and both lines, in
// numbers of variable length. Times are distances to seen.

const (
	// MaxBytes bounds the stored form of a row, whatever its limit and however
	// many callers wait.
	MaxBytes = 4096

	// The first byte of the stored form is its version. A row in which no share
	// waits is stored as rows were before there were shares.
	version       = 1
	versionShares = 2 // a row with lanes of shares
	versionAsked  = 2 // is added if isAsked
	versionNote   = 4 // is added if the row has a note

	// maxNumber bounds the numbers of a stored row, so that sums of a few of them
	// do not overflow. It is more than the microseconds from 1970 to 2250.
	maxNumber = 1 << 53
)

// ErrCorrupt says that bytes are no row, or no record.
var ErrCorrupt = errors.New("ledger: not a row")

// A TooManyNodesError says that more nodes hold slots of one budget than a row
// can name.
type TooManyNodesError struct{ Nodes int }

func (e *TooManyNodesError) Error() string {
	return fmt.Sprintf("ledger: %d nodes hold slots of one budget, more than a row can name", e.Nodes)
}

// MarshalBinary returns the row in at most [MaxBytes]. Waiters for which there
// is no room are counted in the bytes, and not listed: see [Row.Lists]. The row does
// not change. The only error is a *[TooManyNodesError].
func (r *Row) MarshalBinary() ([]byte, error) {
	if r.queue == nil && r.slots == nil {
		return r.append(nil), nil // always small enough: see bound
	}

	// List fewer and fewer waiters until the row fits. If it does not fit without any, too many nodes hold slots: their leases cannot be left out.
	for places := maxPlaces; ; places /= 2 {
		short := r.shortened(places)
		if b := short.append(nil); len(b) <= MaxBytes {
			return b, nil
		} else if places == 0 {
			return nil, &TooManyNodesError{len(short.leases)}
		}
	}
}

// shortened returns a copy of the row that lists at most that number of places
// in each line and counts the other waiters. Of the leases it keeps only those of
// nodes that hold slots or have a listed waiter.
func (r *Row) shortened(places int) *Row {
	c := r.Clone()

	// used has the nodes of listed waiters.
	used := make(map[int64]bool)
	use := func(p place) { used[p.node] = true }

	if c.queue != nil {
		c.queue.shorten(places)

		// If all waiters had places until now, those that are only counted from now on have the whole time of forgetSilent to ask.
		if r.ListsAll() {
			c.queue.asked = r.seen
		}

		for _, class := range c.queue.lanes {
			for i := range class {
				for _, p := range class[i].places {
					use(p)
				}
			}
		}

		for _, p := range c.queue.called {
			use(p)
		}
	}

	if c.slots != nil {
		c.slots.shorten(min(places, maxSlotPlaces))
		for _, w := range c.slots.line {
			use(w.place)
		}
	}

	c.leases = slices.DeleteFunc(c.leases, func(l lease) bool { return l.held == 0 && !used[l.node] })
	return c
}

// append appends the stored form to b.
func (r *Row) append(b []byte) []byte {
	w := writer{b: append(b, version), shares: r.queue.hasShares(), asked: r.isAsked()}
	if w.shares {
		w.b[len(b)] = versionShares
	}
	if w.asked {
		w.b[len(b)] += versionAsked
	}
	if r.note.n > 0 {
		w.b[len(b)] += versionNote
	}

	// All times are written as distances to seen.
	w.number(r.seen)
	for _, x := range r.numbers() {
		w.number(*x)
	}

	w.signed(r.unit)
	w.float(r.ceiling.top)

	times := r.times()
	for _, t := range times[:storedTimes] {
		w.time(*t, r.seen)
	}

	w.time(r.frozen, r.seen)
	if r.note.n > 0 {
		w.number(r.note.n)
		w.number(r.note.window)
		w.signed(r.note.heard - r.seen)
	}

	// Entries are in order of time: written as distances, most of their numbers are short.
	w.number(int64(len(r.entries)))
	last := r.seen
	for _, e := range r.entries {
		w.signed(e.first - last)
		w.number(e.last - e.first)
		w.number(e.n)
		last = e.last
	}

	// A row without lines needs no lease, and may have no room for many of them.
	leases := r.leases
	if r.queue == nil && r.slots == nil {
		leases = nil
	}
	w.number(int64(len(leases)))
	for _, l := range leases {
		w.signed(l.node)
		w.signed(l.until - r.seen)
		w.number(l.held)
		if w.asked {
			w.call(&l, r.seen)
		}
	}

	w.queue(r)
	w.slots(r)
	return w.b
}

// isAsked reports whether a node was asked to come, or comes by itself, or is the guard of the line. It is false
// for a row without lines, because nobody need come there.
func (r *Row) isAsked() bool {
	if r.queue == nil && r.slots == nil {
		return false
	}
	return r.queue != nil && r.queue.guard != 0 || slices.ContainsFunc(r.leases, func(l lease) bool { return l.asked != 0 || l.comes != 0 })
}

// UnmarshalBinary makes r the row on which MarshalBinary was called, as far as its
// bytes list the waiters. Bytes that are no row, or have an unknown version, are an
// [ErrCorrupt], and leave r as it was.
func (r *Row) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || len(b) > MaxBytes || b[0] < version || b[0] > versionShares+versionAsked+versionNote {
		return ErrCorrupt
	}

	// The version less the first version has a bit for each part that only some rows have.
	form := b[0] - version
	c := Row{}
	rd := reader{b: b[1:], shares: form&(versionShares-version) != 0, asked: form&versionAsked != 0, told: form&versionNote != 0}
	c.read(&rd)
	if rd.failed || len(rd.b) > 0 || !c.sound() {
		return ErrCorrupt
	}
	*r = c
	return nil
}

// read reads the stored form behind its version into the zero Row, in the order of
// append. If the bytes are not of that form the reader fails.
func (r *Row) read(rd *reader) {
	r.seen = rd.number()
	for _, x := range r.numbers() {
		*x = rd.number()
	}

	r.unit = rd.signed()
	r.ceiling.top = rd.float()

	times := r.times()
	for _, t := range times[:storedTimes] {
		*t = rd.time(r.seen)
	}

	r.frozen = rd.time(r.seen)
	if rd.told {
		r.note = note{rd.number(), rd.number(), r.seen + rd.signed()}
		rd.failed = rd.failed || !isNote(r.note.n, r.note.window)
	}

	// The bound MaxEntries limits the memory that bytes of unknown origin can take.
	if k := rd.count(MaxEntries); k > 0 {
		r.entries = make([]entry, k)
	}

	// The total is not stored, so that it cannot contradict the entries.
	last := r.seen
	for i := range r.entries {
		e := &r.entries[i]
		e.first = last + rd.signed()
		e.last = e.first + rd.number()
		e.n = rd.number()
		r.total += e.n
		last = e.last
	}

	for range rd.count(MaxBytes) {
		l := lease{node: rd.signed(), until: r.seen + rd.signed(), held: rd.number()}
		if rd.asked {
			rd.call(&l, r.seen)
		}
		r.leases = append(r.leases, l)
	}

	if rd.flag() {
		r.queue = rd.queue(r)
	}
	if rd.flag() {
		r.slots = rd.slots(r)
	}
}

// sound reports whether the row that was read has the properties on which requests rely: its bytes may be of unknown origin.
func (r *Row) sound() bool {
	for i, e := range r.entries {
		if e.n < 1 || e.last < e.first {
			return false
		}

		// Each time is the sum of all distances before it, so the bound of each number does not bound the time. Sums of times must not overflow.
		if e.first < -maxNumber || e.last > 4*maxNumber {
			return false
		}
		if i > 0 && (e.first <= r.entries[i-1].first || e.last < r.entries[i-1].last) {
			return false
		}
	}

	// A row that has starts, or has forgotten starts, divides by the span: see atMost.
	counts := len(r.entries) > 0 || r.lost != 0
	if counts && r.span < 1 {
		return false
	}

	// Any 8 bytes are a float. NaN fails here, because each comparison with NaN is false.
	if !(r.ceiling.top >= 0 && r.ceiling.top <= maxNumber) {
		return false
	}

	// Each node has one lease, and the leases together hold no more slots than the row says.
	held := int64(0)
	for i, l := range r.leases {
		if l.node == 0 || slices.ContainsFunc(r.leases[:i], func(o lease) bool { return o.node == l.node }) {
			return false
		}
		held += l.held
	}

	if r.slots == nil {
		return held == 0 && r.queue.sound()
	}

	inOrder := slices.IsSortedFunc(r.slots.line, func(a, b slotWait) int { return comparePlaces(a.place, b.place) })
	return held <= r.slots.held && inOrder && r.queue.sound()
}

// sound reports whether the line has the properties on which requests rely: among
// others, each lane of a class is of a different share.
func (l *queue) sound() bool {
	if l == nil {
		return true
	}
	for _, c := range l.lanes {
		for i := range c {
			if c[i].weight < 1 || c[i].weight > maxWeight || c.of(c[i].share) != &c[i] || !c[i].inOrder() {
				return false
			}
		}
	}
	return true
}

// inOrder reports whether the places are in the order of arrival.
func (l *lane) inOrder() bool {
	for i := 1; i < len(l.places); i++ {
		if l.places[i].arrival <= l.places[i-1].arrival {
			return false
		}
	}
	return true
}

// A writer appends numbers to bytes: small numbers take one byte.
type writer struct {
	b      []byte
	shares bool // the row has lanes of shares
	asked  bool // see isAsked
}

// number writes a number that is not negative.
func (w *writer) number(x int64) { w.b = binary.AppendUvarint(w.b, uint64(x)) }

// signed writes any whole number.
func (w *writer) signed(x int64) { w.b = binary.AppendVarint(w.b, x) }

// float writes a float in 8 bytes.
func (w *writer) float(x float64) {
	w.b = binary.BigEndian.AppendUint64(w.b, math.Float64bits(x))
}

// time writes a time by its distance to now. A time of 0 means none.
func (w *writer) time(t, now int64) {
	w.flag(t != 0)
	if t != 0 {
		w.signed(t - now)
	}
}

// A node that was asked to come does not come by itself, so a stored lease has at most one of the times asked and
// comes. One of these bytes says which.
const (
	hasNeither = iota
	hasAsked
	hasComes
)

// call writes since when a node was asked to come, or until when it comes by itself: see lease.
func (w *writer) call(l *lease, now int64) {
	switch {
	case l.asked != 0:
		w.b = append(w.b, hasAsked)
		w.signed(l.asked - now)
	case l.comes != 0:
		w.b = append(w.b, hasComes)
		w.signed(l.comes - now)
	default:
		w.b = append(w.b, hasNeither)
	}
}

// flag writes true as 1 and false as 0.
func (w *writer) flag(x bool) {
	if x {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

// queue writes the line for starts, if there is one.
func (w *writer) queue(r *Row) {
	l := r.queue
	w.flag(l != nil)
	if l == nil {
		return
	}

	// Earlier versions of this package read here since when the line has had waiters.
	w.signed(0)
	w.signed(l.asked - r.seen)

	if w.asked {
		w.signed(l.guard)
		w.time(l.until, r.seen)
	}

	w.places(r, l.called)

	for _, c := range l.lanes {
		// Without shares a class has one lane, and nothing of a share to store.
		if !w.shares {
			w.number(c.beyond())
			w.places(r, c.places())
			continue
		}

		w.number(int64(len(c)))
		for i := range c {
			w.number(int64(c[i].share))
			w.number(c[i].weight)
			w.number(c[i].finish)
			w.number(c[i].served)
			w.number(c[i].beyond)
			w.places(r, c[i].places)
		}
	}
}

// places writes places, each by its distance to the place before.
func (w *writer) places(r *Row, all []place) {
	w.number(int64(len(all)))
	last := r.seen
	for _, p := range all {
		w.place(r, p, last)
		if w.shares {
			w.flag(p.front)
		}
		last = p.arrival
	}
}

// place writes a place, with its arrival as the distance from the arrival last. An
// arrival may be so far before all times that the distance overflows: reading
// reverses that, because the sum overflows, too.
func (w *writer) place(r *Row, p place, last int64) {
	w.signed(p.arrival - last)
	w.number(p.cost)

	// The node is the number of its lease in the row, from 1 on. A node without a lease is not found, and becomes 0.
	w.number(int64(1 + slices.IndexFunc(r.leases, func(l lease) bool { return l.node == p.node })))
}

// slots writes the slots in use and the line for slots, if there are any.
func (w *writer) slots(r *Row) {
	s := r.slots
	w.flag(s != nil)
	if s == nil {
		return
	}

	// The places are in the order of arrivals, so each is written as the distance to the place before.
	w.number(s.held)
	w.number(s.beyond)
	w.signed(s.asked - r.seen)
	w.number(int64(len(s.line)))
	last := r.seen
	for _, p := range s.line {
		w.place(r, p.place, last)
		w.signed(p.room)
		w.number(p.whole)
		w.flag(p.called)
		last = p.arrival
	}
}

// A reader takes from bytes what a writer has written. It fails if bytes are
// missing, or a number is out of its bounds. After a failure it returns zeros.
type reader struct {
	b      []byte
	failed bool
	shares bool // the row has lanes of shares
	asked  bool // see isAsked
	told   bool // the row has a note
}

// took moves the reader on by the n bytes of a number, and reports whether it did.
// The reader fails if there was no number, so that n is below 1, or if ok is false
// because the number is out of its bounds.
func (rd *reader) took(n int, ok bool) bool {
	rd.failed = rd.failed || n <= 0 || n > len(rd.b) || !ok
	if rd.failed {
		return false
	}
	rd.b = rd.b[n:]
	return true
}

// number reads a number from 0 to maxNumber.
func (rd *reader) number() int64 {
	x, n := binary.Uvarint(rd.b)
	if !rd.took(n, x <= maxNumber) {
		return 0
	}
	return int64(x)
}

// signed reads a number from -maxNumber to maxNumber.
func (rd *reader) signed() int64 {
	x, n := binary.Varint(rd.b)
	if !rd.took(n, -maxNumber <= x && x <= maxNumber) {
		return 0
	}
	return x
}

// wrapped reads any whole number: see writer.place.
func (rd *reader) wrapped() int64 {
	x, n := binary.Varint(rd.b)
	if !rd.took(n, true) {
		return 0
	}
	return x
}

// count reads a number from 0 to limit.
func (rd *reader) count(limit int) int {
	x := rd.number()
	if x > int64(limit) {
		rd.failed = true
	}
	if rd.failed {
		return 0
	}
	return int(x)
}

// float reads a float of 8 bytes.
func (rd *reader) float() float64 {
	if len(rd.b) < 8 {
		rd.failed = true
		return 0
	}
	x := math.Float64frombits(binary.BigEndian.Uint64(rd.b))
	rd.b = rd.b[8:]
	return x
}

// flag reads one byte, which must be 0 or 1.
func (rd *reader) flag() bool {
	if len(rd.b) == 0 || rd.b[0] > 1 {
		rd.failed = true
		return false
	}
	x := rd.b[0] == 1
	rd.b = rd.b[1:]
	return x
}

// call reads what writer.call has written into l.
func (rd *reader) call(l *lease, now int64) {
	if len(rd.b) == 0 || rd.b[0] > hasComes {
		rd.failed = true
		return
	}

	has := rd.b[0]
	rd.b = rd.b[1:]
	switch has {
	case hasAsked:
		l.asked = now + rd.signed()
	case hasComes:
		l.comes = now + rd.signed()
	}
}

// time reads a time by its distance to now, or 0 for none.
func (rd *reader) time(now int64) int64 {
	if !rd.flag() {
		return 0
	}
	return now + rd.signed()
}

// queue reads the line for starts of the row r, whose leases were read before.
func (rd *reader) queue(r *Row) *queue {
	// The first number means nothing any more: see writer.queue.
	rd.signed()
	l := &queue{asked: r.seen + rd.signed()}
	if rd.asked {
		l.guard, l.until = rd.signed(), rd.time(r.seen)
	}
	l.called = rd.places(r)

	// Without shares a class has one lane. tidy drops it again if it has no waiters, as in the row that was stored.
	for k := range l.lanes {
		n := 1
		if rd.shares {
			n = rd.count(MaxBytes)
		}
		for range n {
			l.lanes[k] = append(l.lanes[k], rd.lane(r))
		}
		l.lanes[k] = l.lanes[k].tidy()
	}

	return l
}

// lane reads one lane. A row without lanes of shares has a lane of weight 1.
func (rd *reader) lane(r *Row) lane {
	l := lane{weight: 1}
	if rd.shares {
		l.share, l.weight, l.finish, l.served = uint64(rd.number()), rd.number(), rd.number(), rd.number()
	}
	l.beyond = rd.number()
	l.places = rd.places(r)

	// Sums are not stored, so that they cannot contradict the places.
	l.costs = l.beyond
	for _, p := range l.places {
		l.costs += p.cost
	}
	return l
}

// places reads a list of places, each by its distance to the place before.
func (rd *reader) places(r *Row) (all []place) {
	last := r.seen
	for range rd.count(MaxBytes) {
		p := rd.place(r, last)
		p.front = rd.shares && rd.flag()
		all, last = append(all, p), p.arrival
	}
	return all
}

// place reads a place whose arrival is counted from last. Its node is the number of a lease of the row r, or 0.
func (rd *reader) place(r *Row, last int64) place {
	p := place{arrival: last + rd.wrapped(), cost: rd.number()}
	if i := rd.count(len(r.leases)); i > 0 {
		p.node = r.leases[i-1].node
	}
	return p
}

// slots reads the slots in use and the line for slots of the row r, whose leases
// were read before. The sum aside is not stored, so that it cannot contradict the
// line.
func (rd *reader) slots(r *Row) *slots {
	s := &slots{held: rd.number(), beyond: rd.number(), asked: r.seen + rd.signed()}
	last := r.seen
	for range rd.count(MaxBytes) {
		w := slotWait{place: rd.place(r, last), room: rd.signed(), whole: rd.number(), called: rd.flag()}
		s.line, last = append(s.line, w), w.arrival
		if w.called {
			s.aside += w.cost
		}
	}
	return s
}
