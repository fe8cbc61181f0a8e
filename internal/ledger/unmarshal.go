package ledger

import (
	"slices"
)

// UnmarshalBinary makes r the row that MarshalBinary was called on. Bytes that are not of
// a row, or of another version, are an [ErrCorrupt].
func (r *Row) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || len(b) > MaxBytes || b[0] < version || b[0] > versionShares+versionAsked {
		return ErrCorrupt
	}
	rd, c := reader{b: b[1:], asked: b[0] > versionShares}, Row{}
	rd.shares = b[0] == versionShares || b[0] == versionShares+versionAsked
	c.read(&rd)
	if rd.failed || len(rd.b) > 0 || !c.sound() {
		return ErrCorrupt
	}
	*r = c
	return nil
}

func (r *Row) read(rd *reader) {
	r.seen = rd.number()
	for _, x := range r.numbers() {
		*x = rd.number()
	}
	r.unit = rd.signed()
	r.ceiling.top = rd.float()
	for _, t := range r.times() {
		*t = rd.time(r.seen)
	}
	r.frozen = rd.time(r.seen)
	if k := rd.count(MaxEntries); k > 0 {
		r.entries = make([]entry, k)
	}
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
			l.asked = rd.time(r.seen)
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

func (rd *reader) queue(r *Row) *queue {
	l := &queue{began: r.seen + rd.signed(), asked: r.seen + rd.signed()}
	if rd.asked {
		l.guard, l.until = rd.signed(), rd.time(r.seen)
	}
	l.called = rd.places(r)
	for k := range l.lanes {
		lanes := 1
		if rd.shares {
			lanes = rd.count(MaxBytes)
		}
		for range lanes {
			l.lanes[k] = append(l.lanes[k], rd.lane(r))
		}
		l.lanes[k] = l.lanes[k].tidy()
	}
	return l
}

func (rd *reader) lane(r *Row) lane {
	l := lane{weight: 1}
	if rd.shares {
		l.share, l.weight, l.lead, l.served = uint64(rd.number()), rd.number(), rd.number(), rd.number()
	}
	l.beyond = rd.number()
	l.places = rd.places(r)
	l.costs = l.beyond
	for _, p := range l.places {
		l.costs += p.cost
	}
	return l
}

func (rd *reader) places(r *Row) (all []place) {
	last := r.seen
	for range rd.count(MaxBytes) {
		p := rd.place(r, last)
		p.front = rd.shares && rd.flag()
		all, last = append(all, p), p.arrival
	}
	return all
}

func (rd *reader) place(r *Row, last int64) place {
	p := place{arrival: last + rd.wrapped(), cost: rd.number()}
	if i := rd.count(len(r.leases)); i > 0 {
		p.node = r.leases[i-1].node
	}
	return p
}

func (rd *reader) slots(r *Row) *slots {
	s := &slots{held: rd.number(), beyond: rd.number(), asked: r.seen + rd.signed()}
	last := r.seen
	for range rd.count(MaxBytes) {
		w := slotWait{place: rd.place(r, last), room: rd.signed(), whole: rd.number(), called: rd.flag()}
		if s.line, last = append(s.line, w), w.arrival; w.called {
			s.aside += w.cost
		}
	}
	return s
}

// sound reports whether the row is one that requests can have made, as far as they rely
// on it.
func (r *Row) sound() bool {
	for i, e := range r.entries {
		if e.n < 1 || e.last < e.first || e.first < -maxNumber || e.last > 4*maxNumber {
			return false
		}
		if i > 0 && (e.first <= r.entries[i-1].first || e.last < r.entries[i-1].last) {
			return false
		}
	}
	forgets := len(r.entries) > 0 || r.lost != 0
	if forgets && r.span < 1 || r.unit < -maxNumber || r.level > 2*maxLevel || !(r.ceiling.top >= 0 && r.ceiling.top <= maxNumber) {
		return false
	}
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

func (l *queue) sound() bool {
	if l == nil {
		return true
	}
	for _, c := range l.lanes {
		for i := range c {
			if c[i].weight < 1 || c[i].weight > mostWeight || c.of(c[i].share) != &c[i] || !c[i].inOrder() {
				return false
			}
		}
	}
	return true
}

// inOrder reports whether the places are by arrival.
func (l *lane) inOrder() bool {
	for i := 1; i < len(l.places); i++ {
		if l.places[i].arrival <= l.places[i-1].arrival {
			return false
		}
	}
	return true
}
