package storetest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A stay is one booked start in one budget: it begins at some moment of
// [at, until] in microseconds since the Unix epoch and has a cost.
type stay struct {
	at, until int64
	cost      int
}

// fits is the definition of all limits but Concurrency, which line.go defines. It
// reports whether the charge's limit, less the charge's KeepFree, allows the start s
// next to the given starts, in whatever order they were booked. It may reorder others.
func fits(c store.Charge, others []stay, s stay) bool {
	switch c.Limit.Kind() {
	case store.KindSlidingWindow:
		return fitsSliding(c, others, s)
	case store.KindFixedWindow:
		return fitsAligned(c, others, s)
	case store.KindLeakyBucket:
		return fitsPaced(c, others, s)
	case store.KindTokenBucket:
		return fitsBucket(c, others, s)
	default:
		return true // Unlimited, and Concurrency, whose slots are not booked for later: see line.go
	}
}

// fitsSliding: a start counts from its first moment until a span after its last one.
func fitsSliding(c store.Charge, others []stay, s stay) bool {
	return fitsSpan(others, s, span(c), c.Limit.N()-c.KeepFree)
}

// fitsSpan reports whether at every moment at which s counts, the starts that count cost at most n
// together, s included. Each counts from its first moment until a length after its last one. The sum rises only where a start
// begins to count, so only these moments are looked at.
func fitsSpan(others []stay, s stay, length int64, n int) bool {
	if counting(others, s.at, length)+s.cost > n {
		return false
	}
	for _, o := range others {
		if s.at < o.at && o.at < s.until+length && counting(others, o.at, length)+s.cost > n {
			return false
		}
	}
	return true
}

// counting sums the costs of the starts that count at the moment t, for a length each.
func counting(stays []stay, t, length int64) (cost int) {
	for _, o := range stays {
		if o.at <= t && t < o.until+length {
			cost += o.cost
		}
	}
	return cost
}

// fitsAligned: the starts that begin in the window of s, s included, cost at most the limit less KeepFree, and s
// cannot arrive in the next window.
func fitsAligned(c store.Charge, others []stay, s stay) bool {
	from, to := window(c.Limit, s.at)
	cost := s.cost
	for _, o := range others {
		if from <= o.at && o.at < to {
			cost += o.cost
		}
	}
	return s.until+micros(c.Jitter) < to && cost <= c.Limit.N()-c.KeepFree
}

// fitsPaced: each start occupies a block from its first moment until its cost times the pace after its
// last one, and blocks do not overlap.
func fitsPaced(c store.Charge, others []stay, s stay) bool {
	unit := pace(c)
	end := func(s stay) int64 { return s.until + int64(s.cost)*unit }
	for _, o := range others {
		if s.at < end(o) && o.at < end(s) {
			return false
		}
	}
	return true
}

// over returns when a start no longer counts for later starts. In a bucket it may still be the reason why
// the bucket is not full: see ask.
func over(c store.Charge, s stay) int64 {
	switch c.Limit.Kind() {
	case store.KindSlidingWindow:
		return s.until + span(c)
	case store.KindFixedWindow:
		_, to := window(c.Limit, s.at)
		return to
	case store.KindTokenBucket:
		return s.until + drain(c)
	case store.KindUnlimited:
		return s.until
	default:
		return s.until + int64(s.cost)*pace(c)
	}
}

// together sums the costs of the starts that can be used in one window with first. A FixedWindow has the
// window in which first begins. For other limits it is the closed interval of length per and jitter that
// begins at the last moment of first.
func together(c store.Charge, stays []stay, first stay) (cost int) {
	from, last := first.until, first.until+int64((c.Limit.Per()+c.Jitter)/tick)
	if c.Limit.Kind() == store.KindFixedWindow {
		start, end := window(c.Limit, first.at)
		from, last = start, end-1
	}
	for _, s := range stays {
		if s.until >= from && s.at <= last {
			cost += s.cost
		}
	}
	return cost
}

// width is how long the windows of a charge are, or 0 if it has no windows or they differ in length.
func width(c store.Charge) int64 {
	switch c.Limit.Kind() {
	case store.KindSlidingWindow:
		return span(c)
	case store.KindFixedWindow:
		return micros(c.Limit.Per())
	default:
		return 0
	}
}

// span is how far apart two starts must be to never share a closed interval
// of length per and jitter.
func span(c store.Charge) int64 { return micros(c.Limit.Per()+c.Jitter) + 1 }

// drain is how long a start counts in a bucket: as long as it takes to fill an
// empty one, and the jitter.
func drain(c store.Charge) int64 {
	f := flowOf(c)
	return (int64(c.Limit.Capacity())*f.micros+f.tokens-1)/f.tokens + f.jitter
}

// pace is how long a start of cost 1 keeps the next one away.
func pace(c store.Charge) int64 {
	n := int64(c.Limit.N())
	return (micros(c.Limit.Per()+c.Jitter) + n - 1) / n
}

// window returns the first moment of the window that holds t, and of the next.
func window(l store.Limit, t int64) (from, to int64) {
	start, end := l.Window(time.UnixMicro(t))
	return start.UnixMicro(), end.UnixMicro()
}

// micros rounds up to whole microseconds.
func micros(d time.Duration) int64 { return int64((d + tick - 1) / tick) }

// The definition of an unlimited budget is the common definition, with two differences: every start fits, and no start is
// kept but a probe. A probe is kept until the budget is resumed.

// isOpen reports whether the charge's limit is Unlimited.
func isOpen(c store.Charge) bool { return c.Limit.Kind() == store.KindUnlimited }

// isProbe reports whether a start of an unlimited budget at t may begin in the gap after the last penalty, as the probe. A
// penalty that is forgotten counts, too.
func (l *ledger) isProbe(c store.Charge, spread time.Duration, t int64) bool {
	p := l.penalty(c.Budget.Key)
	g := gap{p.end, p.end + p.probe}
	return p.end != 0 && g.holds(stayOf(c, spread, t))
}

// resume opens a budget, and forgets its last penalty, and its ceiling. An unlimited budget forgets its probe, too, unless it has had
// a limit with a number: then starts of that time go on counting.
func (l *ledger) resume(c store.Charge) {
	delete(l.closed, c.Budget.Key)
	delete(l.bans, c.Budget.Key)
	delete(l.learnt, c.Budget.Key)
	if isOpen(c) && !l.counted[c.Budget.Key] {
		delete(l.stays, c.Budget.Key)
	}
}

// A flow is the limit of a bucket in whole units. A token has as many units as
// the Refill has microseconds. In each microsecond as many units flow in as the
// Refill has tokens.
type flow struct {
	room           int64 // the burst, less what must stay free
	tokens, micros int64 // the Refill
	jitter         int64
}

// flowOf returns the flow of a TokenBucket charge.
func flowOf(c store.Charge) flow {
	tokens, each := c.Refill()
	return flow{int64(c.Limit.Capacity() - c.KeepFree), tokens, each, micros(c.Jitter)}
}

// holds reports whether an interval of length d may hold starts of a cost.
func (f flow) holds(cost, d int64) bool {
	return (cost-f.room)*f.micros <= f.tokens*max(0, d-f.jitter)
}

// after returns the length of the shortest interval that may hold starts of a
// cost that is more than the bucket holds at once.
func (f flow) after(cost int64) int64 {
	return f.jitter + ((cost-f.room)*f.micros+f.tokens-1)/f.tokens
}

// A mark is a moment at which an interval can begin, or end. outside is the cost of the starts that are not in the interval
// because they are over before it begins, or begin after its end.
type mark struct{ t, outside int64 }

// fitsBucket: in each interval that holds s, the starts that can be used in it cost at most the burst less KeepFree, plus what
// flows in while the interval lasts, without the jitter. Only intervals from a beginning to an ending are looked at: in between
// the sums do not change. The others are joined by full, and a ramp adds what it takes from the limit. fitsBucket reorders others.
func fitsBucket(c store.Charge, others []stay, s stay) bool {
	f := flowOf(c)
	begins, ends := beginnings(others, s), endings(others, s)
	total := int64(s.cost) + sumOf(others)
	for _, a := range begins {
		for _, b := range ends {
			// Starts that are over before a, or begin after b, are not in the interval.
			if a.t <= b.t && !f.holds(total-a.outside-b.outside, b.t-a.t) {
				return false
			}
		}
	}
	return true
}

// nextBucket returns the first moment after s.at at which s, moved to that moment, may begin to fit: enough
// has flowed in since some interval began, or another start begins or can no longer be used.
func nextBucket(c store.Charge, others []stay, s stay) int64 {
	f, next := flowOf(c), int64(math.MaxInt64)
	consider := func(t int64) {
		if t > s.at {
			next = min(next, t)
		}
	}

	// Something changes when a start begins, and behind its last moment.
	begun := int64(s.cost)
	for _, o := range others {
		consider(o.at)
		consider(o.until + 1)
		if o.at <= s.at {
			begun += int64(o.cost)
		}
	}

	// From each beginning, wait until enough has flowed in.
	for _, a := range beginnings(others, s) {
		if cost := begun - a.outside; cost > f.room {
			consider(a.t + f.after(cost))
		}
	}

	return next
}

// beginnings are the moments at which an interval that holds s can begin, with
// the costs of starts that can no longer be used then. It reorders all.
func beginnings(all []stay, s stay) []mark {
	slices.SortFunc(all, func(a, b stay) int { return cmp.Compare(a.until, b.until) })
	var marks []mark
	gone := int64(0)
	for _, o := range all {
		if o.until > s.until {
			break
		}
		marks = append(marks, mark{o.until, gone})
		gone += int64(o.cost)
	}
	return append(marks, mark{s.until, gone})
}

// endings are the moments at which an interval that holds s can end, with the costs of
// starts that only begin later. If s can be used for a while, the last moment of another start may come
// meanwhile: then an interval can end there, too. It reorders all.
func endings(all []stay, s stay) []mark {
	marks := []mark{{s.at, 0}, {s.until, 0}}
	for _, o := range all {
		if o.at > s.at {
			marks = append(marks, mark{o.at, 0})
		}
		if s.at < o.until && o.until < s.until {
			marks = append(marks, mark{o.until, 0})
		}
	}

	slices.SortFunc(all, func(a, b stay) int { return cmp.Compare(b.at, a.at) })
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(b.t, a.t) })

	// Go through the moments from the last to the first, and sum the starts behind each.
	i, later := 0, int64(0)
	for m := range marks {
		for ; i < len(all) && all[i].at > marks[m].t; i++ {
			later += int64(all[i].cost)
		}
		marks[m].outside = later
	}

	return marks
}

// full joins starts that can be used at the same moments to one: whatever they cost after they were
// settled, they take at most a full bucket. It overwrites stays.
func full(c store.Charge, stays []stay) []stay {
	slices.SortFunc(stays, func(a, b stay) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.until, b.until))
	})
	joined := stays[:0]
	for _, s := range stays {
		last := len(joined) - 1
		if last < 0 || joined[last].at != s.at || joined[last].until != s.until {
			joined = append(joined, stay{s.at, s.until, 0})
			last++
		}

		joined[last].cost = min(joined[last].cost+s.cost, c.Limit.Capacity())
	}

	return joined
}

// sumOf adds up the costs.
func sumOf(stays []stay) (all int64) {
	for _, s := range stays {
		all += int64(s.cost)
	}
	return all
}

// A ceiling is the definition of a learned limit. The zero value is none.
type ceiling struct {
	top    float64       // how much of the limit was refused
	fell   int64         // when that was
	window time.Duration // the LearningPeriod of the limit
}

// isOf reports whether the ceiling is about the charge's limit.
func (l ceiling) isOf(c store.Charge) bool {
	return l.top > 0 && c.LearningPeriod() == l.window
}

// at returns how much of the charge's limit the ceiling leaves: an eighth less than its top at first, its top
// after a minute and twelve windows, and then more and more. The whole limit is left after four times as long, and if
// the ceiling is of another limit.
func (l ceiling) at(c store.Charge, now int64) float64 {
	whole := allowed(c)
	if !l.isOf(c) {
		return whole
	}
	rising := micros(time.Minute + 12*l.window)
	x := float64(now-l.fell-rising) / float64(rising)
	if x >= 3 {
		return whole
	}
	return min(whole, l.top+float64(l.top/8*x*x*x))
}

// shown is the ceiling in a Status, or 0 if the whole limit is left.
func (l ceiling) shown(c store.Charge, now int64) float64 {
	if level := l.at(c, now); level < allowed(c) {
		return thousandths(level)
	}
	return 0
}

// lower returns the charge with the limit that the ceiling leaves of it, but never less
// than its cost and its KeepFree.
func (l ceiling) lower(c store.Charge, now int64) store.Charge {
	level := l.at(c, now)
	if level >= allowed(c) {
		return c
	}

	// The part of the limit that the ceiling leaves.
	share := level / allowed(c)
	n := max(1, int(float64(c.Limit.Capacity())*share), c.Cost+c.KeepFree)

	switch c.Limit.Kind() {
	case store.KindSlidingWindow:
		c.Limit = store.SlidingWindow(n, c.Limit.Per())
	case store.KindFixedWindow:
		c.Limit = store.FixedWindow(n, c.Limit.Per())
	case store.KindLeakyBucket: // a start keeps the next one away for longer
		unit := time.Duration(float64(pace(c))/share) * tick
		c.Limit = store.LeakyBucket(c.Limit.N(), time.Duration(c.Limit.N())*unit-c.Jitter)
	case store.KindTokenBucket: // less flows into a smaller one
		tokens, each := c.Refill()
		c.Limit = store.TokenBucket(max(1, int(float64(tokens)*share)), time.Duration(each)*tick, n)
	}

	return c
}

// learn lowers the ceiling of a budget after the refusal of a start at a time, and returns the
// ceiling before and after, cut off after three decimals. It lowers nothing if the start is still to come, if it was before
// the ceiling fell last, or before the end of the last penalty and its probe, or if the budget was more than full. For a charge
// that learns nothing both are 0.
func (l *ledger) learn(c store.Charge, at, now int64) (from, to float64) {
	if c.LearningPeriod() == 0 {
		return 0, 0
	}

	old := l.learnt[c.Budget.Key]
	from = old.at(c, now)
	to = from
	last := l.penalty(c.Budget.Key)

	used := l.used(c, at)
	isNew := at > old.fell && at <= now
	wasOpen := last.end == 0 || at >= last.end+last.probe
	if isNew && wasOpen && used <= allowed(c) {
		top := max(1, min(from, used))

		// A refusal far below the ceiling may have a different cause, so the ceiling falls by a quarter only.
		if max(1, used) < from/2 {
			top = max(1, from*3/4)
		}

		next := ceiling{top, now, c.LearningPeriod()}
		l.learnt[c.Budget.Key] = next
		to = min(from, next.at(c, now))
	}

	return thousandths(from), thousandths(to)
}

// used is how much of the limit was in use at a start, including the start itself. Of a pace and a
// bucket it is the whole limit, because only their rate is learned.
func (l *ledger) used(c store.Charge, at int64) (cost float64) {
	if k := c.Limit.Kind(); k == store.KindLeakyBucket || k == store.KindTokenBucket {
		return allowed(c)
	}
	for _, s := range l.stays[c.Budget.Key] {
		if s.at <= at && over(c, s) > at {
			cost += float64(s.cost)
		}
	}
	return cost
}

// allowed is how much the limit allows in the window that the charge learns by.
func allowed(c store.Charge) float64 {
	if c.Limit.Kind() != store.KindTokenBucket {
		return float64(c.Limit.N())
	}
	tokens, each := c.Refill()
	return float64(micros(c.LearningPeriod())) * float64(tokens) / float64(each)
}

// thousandths cuts a level off after three decimals.
func thousandths(level float64) float64 { return math.Floor(level*1000) / 1000 }
