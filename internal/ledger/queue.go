package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// The line of a budget for starts: see docs/internals/line.md. The waiters of a
// class stand in lanes, one for each share. Within a lane the first to come is
// the first served. Between lanes, start-time fair queueing decides: the next
// turn is that of the lane with the least finish tag, which is the cost that it
// was served over its weight. Only a turn that is served counts, so callers that
// leave cost their share nothing.

const (
	// maxWeight is an upper bound on the weight of a share.
	maxWeight = 1000

	// commonShare is the share of the waiters that a stored row only counts,
	// because it has no room for the lanes of their shares.
	commonShare = 1

	// tagOfOne is how much a cost of 1 adds to the finish tag of a lane of weight
	// 1. It is large, so that costs over weights are whole numbers without much
	// loss.
	tagOfOne = 1 << 20

	// newcomer is the arrival of a caller that stands in no line yet.
	newcomer = math.MaxInt64
)

// A queue is the line of a budget for starts.
type queue struct {
	lanes  [classes]lanes
	called []place // of waiters that had their turn, and come for slots too
	asked  int64   // when a waiter without a place came, left or asked last
	guard  int64   // the node that goes through the line at the time until, if no node does before. Zero means none. See Pass.
	until  int64
}

// lanes are the lanes of one class. Each has waiters, or a finish tag above the
// virtual time, which is 0: see lane.
type lanes []lane

// A lane is the waiters of one share.
type lane struct {
	share  uint64
	weight int64
	finish int64   // its finish tag, counted from the virtual time, which is the tag of the lane served last, before that turn. Not negative, so a lane that was away has no credit.
	places []place // by arrival
	served int64   // the costs of the turns that it had
	costs  int64   // of all waiters
	beyond int64   // of the waiters without a place, which are only counted
}

// A place is the place of one waiter in a line.
type place struct {
	arrival int64 // a number that follows the clock
	cost    int64
	node    int64 // the node of the waiter. Zero means a node without a lease.
	front   bool  // the waiter had its turn, and goes before all waiters that had none
}

// of returns the lane of a share, nil if it has none.
func (c lanes) of(share uint64) *lane {
	for i := range c {
		if c[i].share == share {
			return &c[i]
		}
	}
	return nil
}

// next returns the lane that is served next, nil if no waiter has a place.
func (c lanes) next() (next *lane) {
	for i := range c {
		if l := &c[i]; len(l.places) > 0 && (next == nil || l.goesBefore(next)) {
			next = l
		}
	}
	return next
}

// goesBefore reports whether l is served before o. Both have places. A lane whose
// first waiter had its turn already goes before a lane whose first waiter did not.
// Of two such waiters, or under equal finish tags, the first to come goes first.
// Otherwise the lane with the smaller finish tag goes first.
func (l *lane) goesBefore(o *lane) bool {
	a, b := &l.places[0], &o.places[0]
	switch {
	case a.front != b.front:
		return a.front
	case a.front || l.finish == o.finish:
		return a.arrival < b.arrival
	}
	return l.finish < o.finish
}

// serve counts a start with this cost as a turn of the lane l, which is one of
// the lanes c.
func (c lanes) serve(l *lane, cost int64) {
	// The virtual time is the tag of the lane that is served, but not above the tag of a lane with waiters: such a lane is never set back.
	virtual := l.finish
	for i := range c {
		if c[i].costs > 0 {
			virtual = min(virtual, c[i].finish)
		}
	}

	// Count all tags from the virtual time. A tag below it becomes 0: a lane that was away has no credit for that time.
	for i := range c {
		c[i].finish = max(0, c[i].finish-virtual)
	}

	// A stored row holds no number above maxNumber.
	l.finish = min(l.finish+l.step(cost), maxNumber)
	l.served = min(l.served+cost, maxNumber)
}

// unserve takes back a turn of this cost.
func (l *lane) unserve(cost int64) {
	l.finish, l.served = max(0, l.finish-l.step(cost)), max(0, l.served-cost)
}

// step returns how much a start with this cost adds to the finish tag of the lane.
func (l *lane) step(cost int64) int64 {
	return min(cost, maxNumber/tagOfOne) * tagOfOne / l.weight
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

// tidy returns the lanes that have waiters, or a finish tag above 0. Without any waiters it
// returns none.
func (c lanes) tidy() lanes {
	if c.costs() == 0 {
		return nil
	}
	return slices.DeleteFunc(c, func(l lane) bool { return l.costs == 0 && l.finish == 0 })
}

// clone returns a deep copy.
func (c lanes) clone() lanes {
	c = slices.Clone(c)
	for i := range c {
		c[i].places = slices.Clone(c[i].places)
	}
	return c
}

// before returns the costs of the waiters that are served before a caller of the
// lane own, which is nil if the caller's share has no lane yet. front says that
// the caller had its turn. The costs in other lanes are an estimate.
func (c lanes) before(own *lane, arrival int64, front bool) int64 {
	// mine is the costs of the waiters in the caller's lane that came before it. The caller has its turn when its lane has the tag reach. A new lane begins
	// at the virtual time, 0.
	mine := int64(0)
	reach := 0.0
	if own != nil {
		mine = own.ahead(arrival)
		reach = float64(own.finish) + float64(mine)*tagOfOne/float64(own.weight)
	}

	sum := mine
	for i := range c {
		switch o := &c[i]; {
		// The caller's lane is in the sum, and a lane without waiters adds nothing.
		case o == own || o.costs == 0:

		// Only a waiter that had its turn, too, may go before the caller.
		case front:
			sum += o.inFront(arrival)

		// The other lane is served until its tag is above reach. Its waiters that had their turn go first in any case.
		default:
			sum += max(o.inFront(newcomer), o.until(reach))
		}
	}
	return sum
}

// ahead returns the costs of the lane's waiters that came before a caller with that
// arrival: of all waiters for a newcomer. Waiters that are only counted are taken to
// have come after every caller that has an arrival.
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

// inFront returns the costs of the lane's waiters that had their turn, and came
// before a caller with that arrival.
func (l *lane) inFront(arrival int64) (sum int64) {
	for _, p := range l.places {
		if !p.front || p.arrival >= arrival {
			break
		}
		sum += p.cost
	}
	return sum
}

// until estimates the costs of the waiters that are served before the lane's tag
// is above reach. All of them are taken to cost as much as the first waiter, or 1 if
// no waiter has a place.
func (l *lane) until(reach float64) int64 {
	distance := reach - float64(l.finish)
	if distance < 0 {
		return 0
	}

	cost := int64(1)
	if len(l.places) > 0 {
		cost = l.places[0].cost
	}

	// Each turn adds cost / weight to the tag, in units of tagOfOne (see step). The last turn begins at reach or before, and may end behind it.
	turns := 1 + math.Floor(distance*float64(l.weight)/tagOfOne/float64(cost))
	return int64(min(float64(l.costs), float64(cost)*turns))
}

// find returns the index at which an arrival stands, or would stand, and whether it
// stands there.
func (l *lane) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.places, arrival, func(p place, a int64) int { return cmp.Compare(p.arrival, a) })
}

// insert puts a waiter in the lane.
func (l *lane) insert(p place) {
	i, _ := l.find(p.arrival)
	l.places = slices.Insert(l.places, i, p)
	l.costs += p.cost
}

// count puts a waiter in the lane without a place.
func (l *lane) count(p place) {
	l.beyond += p.cost
	l.costs += p.cost
}

// isBehindPlaces reports whether a waiter with that arrival goes behind all that
// have a place.
func (l *lane) isBehindPlaces(arrival int64) bool {
	n := len(l.places)
	return n == 0 || arrival > l.places[n-1].arrival
}

// remove takes a waiter out of the lane. A waiter without a place is taken off
// the count. It reports whether the waiter had a place.
func (l *lane) remove(p place) (listed bool) {
	i, listed := l.find(p.arrival)
	if listed {
		l.places = slices.Delete(l.places, i, i+1)
	} else {
		p.cost = min(p.cost, l.beyond) // forgetSilent may have taken the waiter off the count already
		l.beyond -= p.cost
	}
	l.costs -= p.cost
	return listed
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

// waiting sums the costs of the waiters for a start.
func (r *Row) waiting() (sum int64) {
	if r.queue != nil {
		for _, c := range r.queue.lanes {
			sum += c.costs()
		}
	}
	return sum
}

// lineUp puts a waiter in the row's line, by its arrival or, if another waiter has
// that, by the next that is free. It returns the place that the waiter got, and the
// share in whose lane it stands. Waiters that are only counted came before a
// newcomer, so the newcomer is counted, too. A waiter that is recalled takes a
// place: see Recalls.
func (r *Row) lineUp(class int, share store.Share, p place, recalled bool) (place, uint64) {
	if r.queue == nil {
		r.queue = new(queue)
	}

	// Two callers that gave up starts at the same time have the same arrival: see Waiter.Come.
	l := r.queue
	for l.has(p.arrival) {
		p.arrival++
	}

	own := l.open(class, share)
	if !recalled && own.beyond > 0 && own.isBehindPlaces(p.arrival) {
		own.count(p)

		// If few have places, the newcomer is recalled at once. Then its coming does not show that the other counted waiters still wait.
		if !l.isLaneShort(class, own, r.few()) {
			l.asked = r.seen
		}
		return p, own.share
	}

	own.insert(p)
	return p, own.share
}

// isLaneShort reports whether the lane own of a class has fewer places than its part
// of few. The places of the classes before its own come off few first. The lanes of
// its class have equal parts of the rest, of at least 1. It is false if nothing is
// left for the class.
func (l *queue) isLaneShort(class int, own *lane, few int) bool {
	before := 0
	for _, c := range l.lanes[:class] {
		for i := range c {
			before += len(c[i].places)
		}
	}
	return before < few && len(own.places) < max(1, (few-before)/len(l.lanes[class]))
}

// isShort reports whether any lane with waiters without a place is short: see
// isLaneShort.
func (l *queue) isShort(few int) bool {
	for k, c := range l.lanes {
		for i := range c {
			if c[i].beyond > 0 && l.isLaneShort(k, &c[i], few) {
				return true
			}
		}
	}
	return false
}

// keepBehind notes a start for which its caller waited in this row. Later
// callers of the class, or of a lower priority, keep behind it.
func (r *Row) keepBehind(class int, start int64) {
	r.tails[class] = max(r.tails[class], start)
}

// untail notes that a start was given back: later callers may start as early as
// that start, and the start is not the row's pin any more.
func (r *Row) untail(start int64) {
	for k := range r.tails {
		r.tails[k] = min(r.tails[k], start-1)
	}
	r.unpin(start)
}

// trimTails notes that a past start was taken out: later callers still keep behind the starts that are booked, but behind no time after the last of
// them.
func (r *Row) trimTails(start int64) {
	last := int64(0)
	if k := len(r.entries); k > 0 {
		last = r.entries[k-1].last
	}
	for k := range r.tails {
		r.tails[k] = min(r.tails[k], last)
	}
	r.unpin(start)
}

// unpin notes that a start was given back, which may have been the row's pin.
func (r *Row) unpin(start int64) {
	if r.pin == start {
		r.pin = 0
	}
}

// open returns the lane of a share, and makes one for a share that has none. The
// weight of a share is what its last caller said. The number of lanes has no
// limit in memory: each has waiters, or a finish tag above 0.
func (l *queue) open(class int, share store.Share) *lane {
	c := &l.lanes[class]
	own := c.of(share.ID)
	if own == nil {
		*c = append(*c, lane{share: share.ID})
		own = &(*c)[len(*c)-1]
	}
	own.weight = Weight(share)

	return own
}

// Weight returns the weight of a share, from 1 to maxWeight.
func Weight(s store.Share) int64 { return int64(max(1, min(s.Weight, maxWeight))) }

// isCrowded reports whether a share has no lane in a class, and the classes have maxLanes lanes together. Callers without a share always get a lane.
func (l *queue) isCrowded(maxLanes, class int, share uint64) bool {
	if l == nil || share == 0 || l.lanes[class].of(share) != nil {
		return false
	}

	count := 0
	for _, c := range l.lanes {
		count += len(c)
	}
	return count >= maxLanes
}

// has reports whether a waiter with a place, or a called waiter, has that arrival.
func (l *queue) has(arrival int64) bool {
	for _, c := range l.lanes {
		for i := range c {
			if _, ok := c[i].find(arrival); ok {
				return true
			}
		}
	}
	return slices.ContainsFunc(l.called, func(p place) bool { return p.arrival == arrival })
}

// before returns the costs of the waiters that go before a caller of a class and a
// share with that arrival: of the called waiters, of all waiters of higher classes,
// and an estimate of its own class. front says that the caller had its turn.
func (l *queue) before(class int, share uint64, arrival int64, front bool) (sum int64) {
	for _, p := range l.called {
		sum += p.cost
	}
	for _, c := range l.lanes[:class] {
		sum += c.costs()
	}
	return sum + l.lanes[class].before(l.lanes[class].of(share), arrival, front)
}

// head returns the place that is served next. ok is false if no waiter has a place.
func (l *queue) head() (p place, ok bool) {
	if _, next := l.first(); next != nil {
		return next.places[0], true
	}
	return place{}, false
}

// first returns the class and the lane of the waiter that is served next, which is
// the first of that lane. The lane is nil if no waiter has a place.
func (l *queue) first() (class int, next *lane) {
	for k, c := range l.lanes {
		if next := c.next(); next != nil {
			return k, next
		}
	}
	return 0, nil
}

// leave takes a place out of the line, and reports whether the row listed it. The
// place's share may have lost its lane: see gather.
func (l *queue) leave(class int, share uint64, p place) (listed bool) {
	c := &l.lanes[class]
	own := c.of(share)
	if own == nil {
		own = c.of(commonShare)
	}
	if own != nil {
		listed = own.remove(p)
	}
	*c = c.tidy()
	return listed
}

// forget takes a node's places out of the line.
func (l *queue) forget(node int64) {
	for k, c := range l.lanes {
		for i := range c {
			c[i].forget(node)
		}
		l.lanes[k] = c.tidy()
	}
	l.called = slices.DeleteFunc(l.called, func(p place) bool { return p.node == node })
}

// forgetSilent forgets the waiters that are only counted, if for longer than
// silence none of them has come, left or asked again.
func (l *queue) forgetSilent(now int64) {
	if now-l.asked <= silence {
		return
	}
	for k, c := range l.lanes {
		for i := range c {
			c[i].costs, c[i].beyond = c[i].costs-c[i].beyond, 0
		}
		l.lanes[k] = c.tidy()
	}
}

// newest returns the latest arrival of the waiters with a place in a lane. Without any, or for a nil queue, it returns 0.
func (l *queue) newest() (at int64) {
	if l == nil {
		return 0
	}
	for _, c := range l.lanes {
		for i := range c {
			if n := len(c[i].places); n > 0 {
				at = max(at, c[i].places[n-1].arrival)
			}
		}
	}
	return at
}

// clone returns a deep copy.
func (l *queue) clone() *queue {
	c := *l
	for k := range c.lanes {
		c.lanes[k] = c.lanes[k].clone()
	}
	c.called = slices.Clone(l.called)
	return &c
}

// empty reports whether the line has neither waiters nor called waiters.
func (l *queue) empty() bool {
	for _, c := range l.lanes {
		if c.costs() > 0 {
			return false
		}
	}
	return len(l.called) == 0
}

// A stored row has an upper bound on its bytes. So it lists the first waiters of
// each lane and counts the rest, and the last of many lanes become one. In memory
// no line is cut off.

// shorten leaves at most that number of places in the line, and counts the
// waiters that have no place any more. It leaves at most the same number of lanes,
// and one more in each class.
func (l *queue) shorten(places int) {
	// The first lanes stay, the lanes of the highest class first.
	lanesLeft := places
	for k, c := range l.lanes {
		keep := min(len(c), lanesLeft)
		lanesLeft -= keep
		l.lanes[k] = c.gather(keep)
	}

	// A lane gets an even part of the places that are left for it and the later lanes of its class, so that waiters of all shares stay listed.
	left := places
	for _, c := range l.lanes {
		for i := range c {
			lanesToCome := len(c) - i
			left -= c[i].shorten(left / lanesToCome)
		}
	}
}

// gather returns the first keep lanes, and a lane in which the waiters of all
// further lanes are counted. A single further lane stays as it is.
func (c lanes) gather(keep int) lanes {
	if len(c) <= keep+1 {
		return c
	}

	// The capacity ends with the length, so that append does not write to the lanes of c.
	kept := c[:keep:keep]
	counted := int64(0)
	for _, o := range c[keep:] {
		counted += o.costs
	}

	// An earlier call may have made a common lane, which is among the kept lanes.
	if common := kept.of(commonShare); common != nil {
		common.costs += counted
		common.beyond += counted
		return kept
	}
	return append(kept, lane{share: commonShare, weight: 1, costs: counted, beyond: counted})
}

// shorten leaves at most that number of places in the lane, and counts the waiters
// that have no place any more. It returns how many places the lane has then.
func (l *lane) shorten(places int) (left int) {
	left = min(len(l.places), places)
	for _, p := range l.places[left:] {
		l.beyond += p.cost
	}
	l.places = l.places[:left]
	return left
}

// places returns the places of the only lane, or nil if there is no lane.
func (c lanes) places() []place {
	if len(c) == 0 {
		return nil
	}
	return c[0].places
}

// hasShares reports whether a line needs lanes of shares, and not only one lane
// for each class.
func (l *queue) hasShares() bool {
	if l == nil {
		return false
	}
	for _, c := range l.lanes {
		if len(c) > 1 || len(c) == 1 && c[0].share != 0 {
			return true
		}
	}
	return false
}

// shares describes the shares of a line, in the order of their IDs. It returns nil if no lane is that of a share.
func (l *queue) shares() (all []store.ShareStatus) {
	if !l.hasShares() {
		return nil
	}

	// A share may have a lane in each class, and has one status for all of them.
	for _, c := range l.lanes {
		for _, o := range c {
			i, found := slices.BinarySearchFunc(all, o.share, func(s store.ShareStatus, id uint64) int { return cmp.Compare(s.ID, id) })
			if !found {
				all = slices.Insert(all, i, store.ShareStatus{Share: store.Share{ID: o.share, Weight: int(o.weight)}})
			}
			all[i].Waiting += int(o.costs)
			all[i].Served += int(o.served)
		}
	}
	return all
}
