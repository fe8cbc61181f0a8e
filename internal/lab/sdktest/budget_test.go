package sdktest

import "time"

// A budget is what the upstream counts for one limit.
type budget struct {
	recent      []arrival // within the window
	sum         int       // of recent
	total       int
	first, last time.Time
	opened      time.Time // when the window began, if it is of that kind
}

type arrival struct {
	at   time.Time
	cost int
}

func (u *upstream) budget(name string) *budget {
	b := u.budgets[name]
	if b == nil {
		b = new(budget)
		u.budgets[name] = b
	}
	return b
}

// add counts an arrival and returns the sum of the window that it falls into; of a
// sliding one, of the interval that ends with it.
func (b *budget) add(now time.Time, l limit) int {
	if l.cost == 0 {
		return 0
	}
	var gone func(time.Time) bool
	switch l.kind {
	case sliding:
		gone = func(at time.Time) bool { return !at.After(now.Add(-l.per)) }
	case clock:
		gone = func(at time.Time) bool { return at.Before(now.Truncate(l.per)) }
	case opened:
		if now.Sub(b.opened) >= l.per {
			b.opened = now
		}
		gone = func(at time.Time) bool { return at.Before(b.opened) }
	}
	for len(b.recent) > 0 && gone(b.recent[0].at) {
		b.sum -= b.recent[0].cost
		b.recent = b.recent[1:]
	}
	b.recent = append(b.recent, arrival{now, l.cost})
	b.sum += l.cost
	if b.total == 0 {
		b.first = now
	}
	b.total += l.cost
	b.last = now
	return b.sum
}
