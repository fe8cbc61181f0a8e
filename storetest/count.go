package storetest

import (
	"fmt"
	"slices"

	"github.com/fleetthrottle/throttle"
)

// excess counts the whole history of a budget, apart from the rules by which
// starts are judged one at a time. It returns a sentence about the first place
// where the limit is broken, or "".
func (l *ledger) excess(c throttle.Charge) string {
	if isOpen(c) {
		return ""
	}
	stays := slices.Clone(l.stays[c.Budget.Key])
	slices.SortFunc(stays, func(a, b stay) int { return int(a.at - b.at) })
	if c.Limit.Kind() == throttle.KindTokenBucket {
		return drained(c, stays)
	}
	for i, first := range stays {
		switch most := together(c, stays, first); {
		case c.Limit.Kind() == throttle.KindLeakyBucket && i > 0 && first.at < over(c, stays[i-1]):
			return fmt.Sprintf("budget %s: two starts are %d µs apart, too close for %s",
				c.Budget.Policy, first.at-stays[i-1].at, sentence(c))
		case c.Limit.Kind() != throttle.KindLeakyBucket && most > c.Limit.N():
			return fmt.Sprintf("budget %s: %d starts count together, too many for %s",
				c.Budget.Policy, most, sentence(c))
		}
	}
	return ""
}

// drained lets each start in turn arrive as late as it may, and all that come
// after it on time: the upstream's bucket, full before, must not run dry.
func drained(c throttle.Charge, stays []stay) string {
	tokens, each := c.Refill()
	for _, first := range stays {
		late := first.until + micros(c.Jitter)
		level := int64(c.Limit.Capacity()) * each
		for _, s := range stays {
			if s.until < first.until {
				continue
			}
			level -= int64(s.cost) * each
			if flown := tokens * max(0, s.at-late); level+flown < 0 {
				return fmt.Sprintf("budget %s: %d tokens are missing %d µs after another start, by %s",
					c.Budget.Policy, -(level+flown)/each, s.at-first.until, sentence(c))
			}
		}
	}
	return ""
}

// together sums what can be used in the same window as the first, or in the
// closed interval of length per and jitter that begins when its use ends.
func together(c throttle.Charge, stays []stay, first stay) (sum int) {
	from, last := first.until, first.until+int64((c.Limit.Per()+c.Jitter)/tick)
	if c.Limit.Kind() == throttle.KindFixedWindow {
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
