package ledger

import (
	"cmp"
	"math"
	"slices"
)

// The waiters of one priority stand in lanes, one for each share: see docs/internals/line.md. Within a
// lane the first to come is the first served. Between lanes the next turn is that of the
// lane which has had the least, in cost over weight. Only a turn that is served counts, so
// callers that leave cost their share nothing.

const (
	// commonShare has the waiters that a row as bytes only counts, because it has no room for the lanes of their shares.
	commonShare = 1

	// leadOfOne is by how much a cost of 1 makes a lane of weight 1 lead. It is so large that
	// costs over weights are whole numbers without much loss.
	leadOfOne = 1 << 20

	// newcomer is the arrival of a caller that stands in no line yet.
	newcomer = math.MaxInt64
)

// lanes are those of one priority: each has waiters, or leads.
type lanes []lane

// A lane is the waiters of one share. Its lead is how much more it has had than the lane that was served last
// had before that turn. So a lane that was away has no credit: nobody is behind that lane.
type lane struct {
	share  uint64
	weight int64
	lead   int64
	places []place // by arrival
	served int64   // the costs of the turns that it had
	costs  int64   // of all waiters
	beyond int64   // of those waiters that have no place, and are only counted
}

// A place is that of one waiter in a line.
type place struct {
	arrival int64 // an order that follows the clock
	cost    int64
	node    int64 // the node of the waiter; 0: one without a lease
	front   bool  // it had its turn, and goes before all that had none
}

// of returns the lane of a share; nil if it has none.
func (c lanes) of(share uint64) *lane {
	for i := range c {
		if c[i].share == share {
			return &c[i]
		}
	}
	return nil
}

// next returns the lane that is served next; nil if no waiter has a place.
func (c lanes) next() (next *lane) {
	for i := range c {
		if l := &c[i]; len(l.places) > 0 && (next == nil || l.goesBefore(next)) {
			next = l
		}
	}
	return next
}

// goesBefore compares lanes by their first waiters. One that had its turn already goes before all
// that did not.
func (l *lane) goesBefore(o *lane) bool {
	a, b := &l.places[0], &o.places[0]
	switch {
	case a.front != b.front:
		return a.front
	case a.front || l.lead == o.lead:
		return a.arrival < b.arrival
	}
	return l.lead < o.lead
}

// serve counts a start as a turn of one of the lanes.
func (c lanes) serve(l *lane, cost int64) {
	least := l.lead
	for i := range c {
		if c[i].costs > 0 {
			least = min(least, c[i].lead) // a lane that waits is never set back
		}
	}
	for i := range c {
		c[i].lead = max(0, c[i].lead-least)
	}
	l.lead = min(l.lead+l.step(cost), maxNumber)
	l.served = min(l.served+cost, maxNumber)
}

// unserve takes a turn back.
func (l *lane) unserve(cost int64) {
	l.lead, l.served = max(0, l.lead-l.step(cost)), max(0, l.served-cost)
}

// step is by how much a start makes the lane lead.
func (l *lane) step(cost int64) int64 {
	return min(cost, maxNumber/leadOfOne) * leadOfOne / l.weight
}

// costs sums the costs of all waiters.
func (c lanes) costs() (sum int64) {
	for i := range c {
		sum += c[i].costs
	}
	return sum
}

// beyond sums the costs of the waiters that are only counted.
func (c lanes) beyond() (sum int64) {
	for i := range c {
		sum += c[i].beyond
	}
	return sum
}

// tidy returns the lanes that have waiters, or lead others that have.
func (c lanes) tidy() lanes {
	if c.costs() == 0 {
		return nil
	}
	return slices.DeleteFunc(c, func(l lane) bool { return l.costs == 0 && l.lead == 0 })
}

// clone returns a copy that shares nothing.
func (c lanes) clone() lanes {
	c = slices.Clone(c)
	for i := range c {
		c[i].places = slices.Clone(c[i].places)
	}
	return c
}

// before returns the costs of the waiters that are served before a caller of a lane; nil: of one
// that there is not yet. Of the waiters in other lanes it is a guess: their costs may differ.
func (c lanes) before(own *lane, arrival int64, front bool) int64 {
	mine, reach := int64(0), 0.0
	if own != nil {
		mine = own.ahead(arrival)
		reach = float64(own.lead) + float64(mine)*leadOfOne/float64(own.weight)
	}
	sum := mine
	for i := range c {
		switch o := &c[i]; {
		case o == own || o.costs == 0:
		case front:
			sum += o.inFront(arrival)
		default:
			sum += max(o.inFront(newcomer), o.until(reach))
		}
	}
	return sum
}

// ahead returns the costs of the waiters that came before a caller of the same lane. Waiters that
// are only counted are taken to have come later than all that had a place.
func (l *lane) ahead(arrival int64) int64 {
	if arrival == newcomer {
		return l.costs
	}
	sum := l.costs - l.beyond
	for _, p := range slices.Backward(l.places) {
		if p.arrival < arrival {
			break
		}
		sum -= p.cost
	}
	return sum
}

// inFront returns the costs of the waiters that had their turn and came before a caller.
func (l *lane) inFront(arrival int64) (sum int64) {
	for _, p := range l.places {
		if !p.front || p.arrival >= arrival {
			break
		}
		sum += p.cost
	}
	return sum
}

// until returns the costs of the waiters whose turns come before the lane has such a lead, as if all
// of them cost what the first does.
func (l *lane) until(lead float64) int64 {
	left := lead - float64(l.lead)
	if left < 0 {
		return 0
	}
	first := int64(1)
	if len(l.places) > 0 {
		first = l.places[0].cost
	}
	turns := left * float64(l.weight) / leadOfOne / float64(first)
	return int64(min(float64(l.costs), float64(first)*(1+math.Floor(turns))))
}

// find returns where an arrival stands, or would stand.
func (l *lane) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.places, arrival, func(p place, a int64) int { return cmp.Compare(p.arrival, a) })
}

// insert puts a waiter in the lane.
func (l *lane) insert(p place) {
	i, _ := l.find(p.arrival)
	l.places = slices.Insert(l.places, i, p)
	l.costs += p.cost
}

// remove takes a waiter out of the lane. A waiter without a place is taken off the count.
func (l *lane) remove(p place) {
	if i, ok := l.find(p.arrival); ok {
		l.places = slices.Delete(l.places, i, i+1)
	} else {
		p.cost = min(p.cost, l.beyond)
		l.beyond -= p.cost
	}
	l.costs -= p.cost
}

// forget takes the places of a node out of the lane.
func (l *lane) forget(node int64) {
	l.places = slices.DeleteFunc(l.places, func(p place) bool {
		if p.node == node {
			l.costs -= p.cost
		}
		return p.node == node
	})
}
