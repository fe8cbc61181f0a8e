package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A ledger is the full history of some budgets: everything booked and not
// given back, and every penalty. It answers by trying, so it is slow and easy
// to believe.
type ledger struct {
	// By the key of the budget.
	stays   map[[16]byte][]stay
	closed  map[[16]byte]int64   // until when the last penalty lasts, or lasted
	bans    map[[16]byte]penalty // the last penalties
	learnt  map[[16]byte]ceiling
	counted map[[16]byte]bool // some start was under a limit with a number

	// rampOf and gapOf, unless a test has the definition wrong.
	ramp func(c store.Charge, stays []stay, p penalty) ramp
	gap  func(c store.Charge, stays []stay, p penalty) gap
}

// newLedger returns a ledger without history.
func newLedger() *ledger {
	return &ledger{
		stays: make(map[[16]byte][]stay), closed: make(map[[16]byte]int64), bans: make(map[[16]byte]penalty),
		learnt: make(map[[16]byte]ceiling), counted: make(map[[16]byte]bool), ramp: rampOf, gap: gapOf,
	}
}

// earliest returns the first start that every charge of a booking, made now, has
// room for. Shadow charges are not asked.
func (l *ledger) earliest(k store.Booking, now int64) int64 {
	var questions []question
	for _, c := range k.Charges {
		if !c.Shadow {
			questions = append(questions, l.ask(c, k, now))
		}
	}

	t := soonest(k, now)
	for i := 0; i < len(questions); i++ {
		if q := questions[i]; !q.allows(t) {
			t = q.next(t)
			i = -1 // ask all charges about the later time
		}
	}

	return t
}

// soonest is the earliest start that a booking, made now, asks for.
func soonest(k store.Booking, now int64) int64 { return now + micros(k.NotBefore) }

// A question is a charge of a booking with all facts that decide when it can start.
type question struct {
	charge store.Charge // with the limit that a ceiling leaves
	spread time.Duration
	stays  []stay // the starts that count
	closed int64  // until when a penalty lasts, or lasted
	gap    gap    // after the last penalty
	ramp   ramp   // the slow start after the last penalty
	clear  []stay // the starts from which a pace keeps its distance, or none without a pace
}

// setClear sets clear if the charge makes the booking wait, and has a pace, which only sliding windows have. The charge makes the
// booking wait if it does not allow a start at asked, the soonest time that the booking asks for.
func (q *question) setClear(now, asked int64) {
	if q.charge.Pace == 0 || q.charge.Limit.Kind() != store.KindSlidingWindow || q.allows(asked) {
		return
	}
	for _, s := range q.stays {
		if s.until > now {
			q.clear = append(q.clear, s)
		}
	}
}

// isClear reports whether a start at t keeps the distance of its pace from the starts in clear, behind each earlier one and before each
// later one.
func (q question) isClear(t int64) bool {
	unit := micros(q.charge.Pace)
	apart := int64(q.charge.Cost) * unit

	// A later start begins at end or later, and an earlier one is over by apart before t.
	end := max(stayOf(q.charge, q.spread, t).until+unit, t+apart)
	for _, o := range q.clear {
		if t < o.until+apart && o.at < end {
			return false
		}
	}
	return true
}

// ask returns the question for a charge of a booking made now. A bucket is
// asked with its whole history: what kept it from filling up may be long past.
func (l *ledger) ask(c store.Charge, k store.Booking, now int64) question {
	q := question{spread: k.Spread, closed: l.closed[c.Budget.Key]}
	q.charge = l.learnt[c.Budget.Key].lower(c, now)

	for _, s := range l.stays[c.Budget.Key] {
		if over(c, s) > now || c.Limit.Kind() == store.KindTokenBucket {
			q.stays = append(q.stays, s)
		}
	}

	if c.Limit.Kind() == store.KindTokenBucket {
		q.stays = full(c, q.stays)
	}

	p := l.penalty(c.Budget.Key)
	q.gap = l.gap(c, l.stays[c.Budget.Key], p)

	// A slow start has parts of the ceiling alone. lower would raise the limit to the cost of the charge, so hide the cost.
	slow := c
	slow.Cost, slow.KeepFree = 0, 0
	slow.Limit = l.learnt[c.Budget.Key].lower(slow, now).Limit
	slow.Cost, slow.KeepFree = c.Cost, c.KeepFree

	// The steps of a slow start do not end with a window, so they need the starts that a window has forgotten.
	q.ramp = l.ramp(slow, q.stays, p)
	if q.ramp.step > 0 {
		q.ramp = l.ramp(slow, l.stays[c.Budget.Key], p)
	}

	q.setClear(now, soonest(k, now))
	return q
}

// allows reports whether the charge could start at t: no penalty lasts, and there is room.
func (q question) allows(t int64) bool { return t >= q.closed && q.hasRoom(t) }

// hasRoom reports whether the limit alone allows a start at t, probes and slow
// starts included.
func (q question) hasRoom(t int64) bool {
	s := stayOf(q.charge, q.spread, t)
	return q.isClear(t) && q.gap.allows(s) && fits(q.charge, q.stays, s) && q.ramp.allows(q.charge, s)
}

// next returns the first moment after t at which the charge, which does not fit at t, may begin to fit: a
// penalty ends, or the gap after it, a window ends, a bucket has filled up, or a start no longer counts.
func (q question) next(t int64) int64 {
	switch {
	case t < q.closed:
		return q.closed
	case !q.gap.allows(stay{at: t}):
		return q.gap.end
	}

	// In a fixed window nothing changes before the window ends.
	switch q.charge.Limit.Kind() {
	case store.KindFixedWindow:
		_, to := window(q.charge.Limit, t)
		return min(to, q.ramp.next(q.charge, t))
	case store.KindTokenBucket:
		return q.nextBucket(stayOf(q.charge, q.spread, t))
	}

	// The earliest of the ramp's next step, the end of a pace, and the end of a start that counts.
	first := q.ramp.next(q.charge, t)
	for _, s := range q.clear {
		if end := s.until + int64(q.charge.Cost)*micros(q.charge.Pace); end > t {
			first = min(first, end)
		}
	}

	for _, s := range q.stays {
		if end := over(q.charge, s); end > t {
			first = min(first, end)
		}
	}

	return first
}

// nextBucket is next for a bucket, after the start s, which does not fit.
func (q question) nextBucket(s stay) int64 {
	first := nextBucket(q.charge, q.stays, s)
	if q.ramp.begin <= s.at && s.at < q.ramp.end {
		first = min(first, q.ramp.end, nextBucket(q.charge, q.ramp.stays, s))
	}
	return first
}

// add books a start in every budget, shadow or not. It books no slots, and of an unlimited budget only
// probes.
func (l *ledger) add(k store.Booking, t int64) {
	for _, c := range k.Charges {
		key := c.Budget.Key
		isKept := !isOpen(c) || l.isProbe(c, k.Spread, t)
		if isKept && !inFlight(c) {
			l.stays[key] = append(l.stays[key], stayOf(c, k.Spread, t))
			l.counted[key] = l.counted[key] || !isOpen(c)
		}
	}
}

// remove takes a booked start out of every budget in which the start still counts: for the limit, as a probe
// or in a slow start. Elsewhere it stays: the bucket of a store can no longer tell its spending of long ago.
func (l *ledger) remove(k store.Booking, t, now int64) {
	for _, c := range k.Charges {
		key, s := c.Budget.Key, stayOf(c, k.Spread, t)
		p := l.penalty(key)
		countsUntil := max(over(c, s), l.gap(c, []stay{s}, p).end, l.ramp(c, nil, p).over(s))
		if i := slices.Index(l.stays[key], s); i >= 0 && countsUntil > now {
			l.stays[key] = slices.Delete(l.stays[key], i, i+1)
		}
	}
}

// settle changes the cost of a start booked at t in every budget in which it still
// counts. With a cost of 0 the start is removed. A probe of an unlimited budget stays as it is.
func (l *ledger) settle(k store.Booking, t, now int64, costs []int) {
	for i, c := range k.Charges {
		stays, s := l.stays[c.Budget.Key], stayOf(c, k.Spread, t)
		switch j := slices.Index(stays, s); {
		case j < 0 || over(c, s) <= now || isOpen(c):
		case costs[i] == 0:
			l.stays[c.Budget.Key] = slices.Delete(stays, j, j+1)
		default:
			stays[j].cost = costs[i]
		}
	}
}

// stayOf is the start that a charge would book at t. An unlimited charge has a cost of 1, because its own means nothing.
func stayOf(c store.Charge, spread time.Duration, t int64) stay {
	s := stay{at: t, until: t + micros(spread), cost: c.Cost}
	if isOpen(c) {
		s.cost = 1
	}
	return s
}

// depth returns at how many different times there are starts that still count for the charge, and when
// the last of these starts no longer counts.
func (l *ledger) depth(c store.Charge, now int64) (starts int, end int64) {
	seen := make(map[int64]bool)
	for _, s := range l.stays[c.Budget.Key] {
		if until := over(c, s); until > now {
			seen[s.at] = true
			end = max(end, until)
		}
	}
	return len(seen), end
}

// forget drops starts that could be used for the last time before t.
func (l *ledger) forget(t int64) {
	for key, stays := range l.stays {
		l.stays[key] = slices.DeleteFunc(stays, func(s stay) bool { return s.until < t })
	}
}
