package sdktest

import "time"

// A budget is what the upstream counts for one limit.
type budget struct {
	recent      []arrival // within the window
	sum         int       // of recent
	total       int
	first, last time.Time
	limit       limit
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

// add counts an arrival and returns the sum of the window that ends with it: of the
// last interval, or of the clock's window.
func (b *budget) add(now time.Time, l limit) int {
	if l.cost == 0 {
		return 0
	}
	from := now.Add(-l.per)
	if l.clock {
		from = now.Truncate(l.per).Add(-1)
	}
	for len(b.recent) > 0 && !b.recent[0].at.After(from) {
		b.sum -= b.recent[0].cost
		b.recent = b.recent[1:]
	}
	b.recent = append(b.recent, arrival{now, l.cost})
	b.sum += l.cost
	if b.total == 0 {
		b.first = now
	}
	b.total += l.cost
	b.last, b.limit = now, l
	return b.sum
}

// used is the share of the limit that was used since the first arrival. The first
// window's worth may come at once, and so counts for nothing.
func (b *budget) used() float64 {
	windows := b.last.Sub(b.first).Seconds() / b.limit.per.Seconds()
	return float64(b.total-b.limit.n) / (float64(b.limit.n) * windows)
}
