package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A stay is one booked start in one budget: it begins at some moment of
// [at, until] in microseconds since the Unix epoch and has a cost.
type stay struct {
	at, until int64
	cost      int
}

// fits is the definition of all limits: it reports whether the charge's limit,
// less its KeepFree, allows the start s next to the given starts, whatever order they
// came in.
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
		return true // unlimited; and slots are not booked for later: see line.go
	}
}

// fitsSliding: a start counts from its begin until a span after its end. What
// counts at one moment is at most n, at every moment that s counts. The sum
// can only rise where something begins to count, so only those are looked at.
func fitsSliding(c store.Charge, others []stay, s stay) bool {
	return fitsSpan(others, s, span(c), c.Limit.N()-c.KeepFree)
}

// fitsSpan is fitsSliding for any length and number.
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

// counting sums the costs that count at the moment t.
func counting(stays []stay, t, length int64) (sum int) {
	for _, o := range stays {
		if o.at <= t && t < o.until+length {
			sum += o.cost
		}
	}
	return sum
}

// fitsAligned: at most n begin in a window, and none so late that it could
// arrive in the next.
func fitsAligned(c store.Charge, others []stay, s stay) bool {
	from, to := window(c.Limit, s.at)
	sum := s.cost
	for _, o := range others {
		if from <= o.at && o.at < to {
			sum += o.cost
		}
	}
	return s.until+micros(c.Jitter) < to && sum <= c.Limit.N()-c.KeepFree
}

// fitsPaced: each start occupies a block, and blocks do not overlap.
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

// over is when an entry no longer counts: it has no influence on
// later starts, other than through its own window, or through its rest in
// a bucket.
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

// together sums the starts that can be used in the same window as the first, or in the
// closed interval of length per and jitter that begins when its use ends.
func together(c store.Charge, stays []stay, first stay) (sum int) {
	from, last := first.until, first.until+int64((c.Limit.Per()+c.Jitter)/tick)
	if c.Limit.Kind() == store.KindFixedWindow {
		start, end := window(c.Limit, first.at)
		from, last = start, end-1
	}
	for _, s := range stays {
		if s.until >= from && s.at <= last {
			sum += s.cost
		}
	}
	return sum
}

// width is how long the windows are, or 0 if there are no windows or they differ in length.
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

// The definition of an unlimited budget is the common definition, with two differences:
// every start fits, and nothing is kept but probes, until the budget is resumed.

// isOpen reports whether the charge's limit is Unlimited.
func isOpen(c store.Charge) bool { return c.Limit.Kind() == store.KindUnlimited }

// isProbe reports whether a start of an unlimited budget goes first after a penalty
// that is known. That it was over long ago makes no difference, because time does not
// go back.
func (l *ledger) isProbe(c store.Charge, spread time.Duration, t int64) bool {
	p := l.penalty(c.Budget.Key)
	g := gap{p.end, p.end + p.probe}
	return p.end != 0 && g.holds(stayOf(c, spread, t))
}

// resume opens a budget. An entry under a former limit goes on counting under it.
func (l *ledger) resume(c store.Charge) {
	delete(l.closed, c.Budget.Key)
	delete(l.bans, c.Budget.Key)
	delete(l.learnt, c.Budget.Key)
	if isOpen(c) && !l.counted[c.Budget.Key] {
		delete(l.stays, c.Budget.Key)
	}
}
