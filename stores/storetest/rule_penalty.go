package storetest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A penalty is the last penalty of a budget: its fields decide how the budget
// comes back, and whether the next penalty is the same penalty, met again.
type penalty struct {
	end    int64 // 0 if there was no penalty
	length int64 // for how long it closed the budget
	probe  int64 // for how long the first start after it is alone
	times  int64 // how many refusals in a row have met it, or 0 for a pause
}

// longestGrown is the most that a penalty grows to because it was met again.
const longestGrown = time.Hour

// step is how long each of the two steps of the slow start after the penalty lasts at
// the most: half as long as the penalty did, and at most longestStep.
func (p penalty) step() int64 { return min(p.length/2, micros(longestStep)) }

// forgotten is when the penalty is forgotten: a refusal that comes later has nothing to do with it.
func (p penalty) forgotten() int64 { return p.end + max(p.step(), p.probe) }

// grown is the longest time that a penalty of a length grows to: its length, multiplied by its whole
// seconds, and at most an hour.
func grown(length int64) int64 {
	hour := micros(longestGrown)
	length = min(length, hour)
	return min(length*(length/micros(sec)), hour)
}

// then returns the penalty after p when the budget is closed for a length at the time now. Without a length it is p. ago
// is how long ago the refused request was sent, or 0 for a pause. took is how long the refusal took. A request that was
// sent before the last half of p is late: its refusal belongs to p. If a request that was sent later is refused at the end
// of p or after it, it has met p again, unless p is a pause: the clocks of nodes drift, so it may seem to have been sent before
// the end.
func (p penalty) then(now, length, ago, took int64) penalty {
	if length <= 0 {
		return p
	}
	if now >= p.forgotten() {
		p = penalty{}
	}

	isLate := ago > 0 && now-ago < p.end-p.length/2

	// The first refusal counts as one, and a pause as none.
	next := penalty{length: length, times: min(ago, 1)}

	// Met again: twice as long, within bounds.
	bothRefusals := ago > 0 && p.times > 0
	if bothRefusals && !isLate && now >= p.end {
		next.length = max(length, min(2*p.length, grown(length)))
		next.times = p.times + 1
	}

	next.end = max(p.end, now+next.length)
	next.probe = probeOf(next.length, took)

	// A late refusal belongs to p, and penalties that overlap are one: the longer times of both count.
	if isLate || now < p.end {
		next.length = max(p.length, next.length)
		next.probe = max(p.probe, next.probe)
		next.times = max(p.times, next.times)
	}

	return next
}

// repeated is how often a penalty was met again, or 0 once it is forgotten.
func (p penalty) repeated(now int64) int {
	if now >= p.forgotten() {
		return 0
	}
	return int(max(0, p.times-1))
}

// shut closes a budget for d, unless it is closed for longer, because a request that was sent ago before now was
// refused. ago is 0 for a pause. Without a length, d, it does nothing.
func (l *ledger) shut(c store.Charge, now int64, d, ago time.Duration) {
	l.shutLate(c, now, d, ago, ago)
}

// shutLate is shut for a store that hears of the refusal some time after the answer. took is how long
// the answer took.
func (l *ledger) shutLate(c store.Charge, now int64, d, ago, took time.Duration) {
	key := c.Budget.Key
	next := l.penalty(key).then(now, micros(d), micros(ago), micros(took))
	l.closed[key], l.bans[key] = next.end, next
}

// penalty returns the last penalty of a budget, or one with an end of 0 if there was none.
func (l *ledger) penalty(key [16]byte) penalty {
	p := l.bans[key]
	p.end = l.closed[key]
	if p.end != 0 {
		p.probe = max(p.probe, micros(shortestProbe))
	}
	return p
}

// A gap is the time after a penalty in which one start is alone, the probe: its answer may be a
// further penalty.
type gap struct{ begin, end int64 }

// A probe is alone for twice as long as the refusal took, within these bounds, and not
// for longer than the penalty lasted unless that is less than the least.
const (
	shortestProbe = 250 * time.Millisecond
	longestProbe  = 5 * time.Second
)

// probeOf is for how long the probe after a penalty of a length is alone. took is how long the
// refusal took, or 0 without a refusal.
func probeOf(length, took int64) int64 {
	return max(micros(shortestProbe), min(2*took, micros(longestProbe), length))
}

// gapOf returns the gap after a penalty, or a zero gap as long as no booked start, the probe, can begin in it. A leaky bucket has
// no gap, because it spaces its starts anyway, and a Concurrency limit has no starts to space.
func gapOf(c store.Charge, stays []stay, p penalty) gap {
	g := gap{p.end, p.end + p.probe}
	hasGap := p.end != 0 && c.Limit.Kind() != store.KindLeakyBucket && !inFlight(c)
	if !hasGap || !slices.ContainsFunc(stays, g.holds) {
		return gap{}
	}
	return g
}

// holds reports whether something booked can begin in the gap.
func (g gap) holds(s stay) bool { return s.at < g.end && s.until >= g.begin }

// allows reports whether a start lies outside the gap.
func (g gap) allows(s stay) bool { return s.at < g.begin || s.at >= g.end }

// A ramp is the slow start of a charge after a penalty: from its begin until its
// end a start must fit next to its stays, too.
type ramp struct {
	begin, end int64
	stays      []stay // the booked starts, and what is taken from the limit as if it were booked

	// A slow start has two steps. Steps that are shorter than the window count the starts of
	// intervals as long as a step.
	step  int64 // length of a step, or 0 if each step is a window
	parts int   // how many steps a window has
}

// longestStep is the longest step of a slow start.
const longestStep = 20 * time.Second

// rampOf returns the slow start after a penalty, next to the booked starts. It is zero without a penalty, and for a limit without
// windows that is no TokenBucket.
func rampOf(c store.Charge, stays []stay, p penalty) ramp {
	switch length := width(c); {
	case p.end == 0:
		return ramp{}
	case c.Limit.Kind() == store.KindTokenBucket:
		return rampOfBucket(c, stays, p.end)
	case length == 0:
		return ramp{}
	case p.step() < length:
		return rampOfSteps(c, since(stays, p.end-length), p, length, shares)
	default:
		return rampOfWindows(c, stays, p.end, shares)
	}
}

// shares are the parts of a limit that the first windows, or steps, have: an eighth, a half.
func shares(n int) []int { return []int{(n + 7) / 8, (n + 1) / 2} }

// rampOfWindows is rampOf with windows as steps: each of the first windows begins as if all of it
// except its share were booked.
func rampOfWindows(c store.Charge, stays []stay, closed int64, sharesOf func(n int) []int) ramp {
	r := ramp{begin: closed, end: closed, stays: slices.Clone(stays)}
	for _, share := range sharesOf(c.Limit.N()) {
		booked := stay{at: r.end, until: r.end, cost: c.Limit.N() - share}
		r.stays = append(r.stays, booked)
		r.end = over(c, booked)
	}
	return r
}

// rampOfSteps is rampOf with steps that are shorter than the window. A step has the part of the limit that a
// window of its length would have, and of that its share. length is that of the window. A penalty that is too short for steps has no
// slow start.
func rampOfSteps(c store.Charge, stays []stay, p penalty, length int64, sharesOf func(n int) []int) ramp {
	r := ramp{begin: p.end, end: p.end, stays: stays, step: p.step()}
	if r.step == 0 {
		return ramp{}
	}
	r.parts = int(length / r.step)
	n := part(c.Limit.N(), r.parts)
	for _, share := range sharesOf(n) {
		r.stays = append(r.stays, stay{at: r.end, until: r.end, cost: n - share})
		r.end += r.step
	}
	return r
}

// since returns a copy of the starts that can still be used at a moment, or later.
func since(stays []stay, t int64) []stay {
	return slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.until < t })
}

// part returns n divided by parts, rounded up.
func part(n, parts int) int { return (n + parts - 1) / parts }

// over is when a start no longer counts in the steps of the ramp, which may be later than for the
// limit: a fixed window can end within a step. It is 0 without steps.
func (r ramp) over(s stay) int64 {
	if r.step == 0 {
		return 0
	}
	return s.until + r.step
}

// rampOfBucket: at the end of the penalty, closed, the bucket has a single token, whatever was spent of it before. The
// ramp ends when the bucket would have filled up.
func rampOfBucket(c store.Charge, stays []stay, closed int64) ramp {
	booked := stay{at: closed, until: closed, cost: c.Limit.Capacity() - 1}
	r := ramp{begin: closed, end: over(c, booked), stays: []stay{booked}}
	for _, s := range stays {
		if s.until >= closed {
			r.stays = append(r.stays, s)
		}
	}
	return r
}

// allows reports whether the ramp has room for a start.
func (r ramp) allows(c store.Charge, s stay) bool {
	switch {
	case s.at < r.begin || s.at >= r.end:
		return true
	case r.step == 0:
		return fits(c, r.stays, s)
	}
	return fitsSpan(r.stays, s, r.step, part(c.Limit.N(), r.parts)-part(c.KeepFree, r.parts))
}

// next returns the first moment after t at which the ramp may begin to have room, or math.MaxInt64 if nothing changes any more.
func (r ramp) next(c store.Charge, t int64) int64 {
	first := int64(math.MaxInt64)
	if t < r.end {
		first = r.end
	}

	for _, s := range r.stays {
		end := s.until + r.step
		if r.step == 0 {
			end = over(c, s)
		}
		if end > t {
			first = min(first, end)
		}
	}

	return first
}

// doubt is by how much a reset may be too late: upstreams give it in whole
// seconds, and an answer travels for a while.
const doubt = 2 * sec

// A statement is a Quota in a ledger's terms.
type statement struct {
	left  int64
	then  int64 // the upstream had counted all starts up to this time, and no later ones
	since int64 // starts that could be used from this time on were spent of the same window
	at    int64 // the time at which others are taken to have spent the unknown part
	end   int64 // the statement says nothing of starts from this time on
}

// statementOf returns what a Quota says, at the time now, about the present window of a charge. ok is false if the charge counts
// no windows, if the Quota has no reset or is about a different window, or if a fixed window lasts longer than MaxPenalty from now.
func statementOf(c store.Charge, q store.Quota, now int64) (s statement, ok bool) {
	reset := micros(min(q.Reset, store.MaxPenalty))
	s.left, s.then = int64(max(0, q.Left)), now-micros(q.Age)

	if c.Limit.Kind() == store.KindFixedWindow {
		s.since, s.end = window(c.Limit, now)
		s.at = s.since
		rest := s.end - now

		// A window that began after the answer, or that still lasts more than twice as long as the reset, is not the window of the Quota.
		isOfWindow := s.then >= s.since && rest <= 2*reset
		isShort := rest <= micros(store.MaxPenalty) // the cost that is booked for others must be over within MaxPenalty
		return s, reset > 0 && isOfWindow && isShort
	}

	// A statement about a sliding window is about the present one, which ends at the reset, and a length from now at the latest.
	length := width(c)
	s.end = now + min(reset, length)
	s.at = s.end - length

	// The window may end earlier than s.end: the upstream may count the reset from its answer (s.then), not from now, and the reset
	// may be up to doubt too long. A start counts until length after its last moment, and no longer at that time, hence + 1.
	earliestEnd := s.then + max(0, s.end-micros(doubt)-now)
	s.since = earliestEnd - length + 1

	return s, reset > 0 && length > 0
}

// reconcile books what others have spent, if the upstream says that less is left
// than the ledger has. It returns the times between which the booked starts no longer fit, or 0 and 0 if it books nothing.
func (l *ledger) reconcile(c store.Charge, q store.Quota, now int64) (from, until int64) {
	if c.Limit.Kind() == store.KindTokenBucket {
		return l.reconcileBucket(c, q, now)
	}
	s, ok := statementOf(c, q, now)
	if !ok {
		return 0, 0
	}
	return l.settleUp(c, s, now)
}

// settleUp is reconcile for a charge that counts windows.
func (l *ledger) settleUp(c store.Charge, s statement, now int64) (from, until int64) {
	past, coming := l.bookedIn(s, c, now)

	// A store may have forgotten a start that no longer counts, or not, so book nothing.
	if slices.ContainsFunc(past, func(o stay) bool { return over(c, o) <= now }) {
		return 0, 0
	}

	// The upstream has not counted later starts, so these lower the number that it says is left.
	known := s.countedUntil(c, now)
	later := slices.DeleteFunc(slices.Clone(past), func(o stay) bool { return o.at <= known })
	left := max(0, s.left-sumOf(later))

	// What is neither left nor spent by own starts, others have spent.
	others := int64(c.Limit.N()) - sumOf(past) - left
	if others <= 0 {
		return 0, 0
	}

	from = l.lastOf(c, now, s.end, sumOf(coming)-left)
	l.spend(c, s.at, others)
	return from, s.end
}

// bookedIn returns the bookings of a charge that a statement is about: past is those that have started by now, and
// coming those that start before the statement ends.
func (l *ledger) bookedIn(s statement, c store.Charge, now int64) (past, coming []stay) {
	for _, o := range l.stays[c.Budget.Key] {
		hasStarted := o.at <= now
		if hasStarted && o.until >= s.since {
			past = append(past, o)
		}
		if !hasStarted && o.at < s.end {
			coming = append(coming, o)
		}
	}
	return past, coming
}

// countedUntil returns the time up to which all own starts count as counted by the upstream. What others have spent is
// booked close behind s.at, and is no start of the time since s.then.
func (s statement) countedUntil(c store.Charge, now int64) int64 {
	if c.Limit.Kind() == store.KindFixedWindow {
		return max(s.then, s.at)
	}
	return max(s.then, s.at+micros(doubt)+now-s.then)
}

// spend books that others have spent n.
func (l *ledger) spend(c store.Charge, at, n int64) {
	l.stays[c.Budget.Key] = append(l.stays[c.Budget.Key], stay{at, at, int(n)})
}

// lastOf goes through the starts to come, from the last before an end backwards, until their costs reach excess. It returns
// when the start that it reaches begins, or the end if excess is 0 or less.
func (l *ledger) lastOf(c store.Charge, now, end, excess int64) int64 {
	stays := slices.Clone(l.stays[c.Budget.Key])
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(b.at, a.at) })
	from := end
	for i := 0; i < len(stays) && excess > 0; i++ {
		if s := stays[i]; now < s.at && s.at < end {
			from = s.at
			excess -= int64(s.cost)
		}
	}
	return from
}

// reconcileBucket is reconcile for a token bucket. A difference that flows in
// within a second is ignored. The booked starts no longer fit from now until the
// difference has flowed in.
func (l *ledger) reconcileBucket(c store.Charge, q store.Quota, now int64) (from, until int64) {
	tokens, each := c.Refill()
	then := now - micros(q.Age)
	for _, o := range l.stays[c.Budget.Key] {
		if over(c, o) <= now && o.until > then-micros(c.Jitter) {
			return 0, 0 // a store may have forgotten it, or not
		}
	}

	// What others have spent is what was believed to be left, less what the upstream says, and no more than there is now.
	others := min(l.tokens(c, then)-int64(max(0, q.Left)), l.tokens(c, now))
	if others <= 0 || others <= micros(time.Second)*tokens/each {
		return 0, 0
	}

	l.spend(c, then, others)
	return now + 1, then + (others*each+tokens-1)/tokens
}

// tokens returns the largest cost that could start at a time if nothing started later. KeepFree does not count.
func (l *ledger) tokens(c store.Charge, now int64) int64 {
	past := slices.DeleteFunc(slices.Clone(l.stays[c.Budget.Key]), func(s stay) bool { return s.at > now })
	past = full(c, past)
	c.KeepFree = 0
	for cost := c.Limit.Capacity(); cost > 0; cost-- {
		if fits(c, past, stay{now, now, cost}) {
			return int64(cost)
		}
	}
	return 0
}
