package ledger

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// count counts the start of a waiter as a turn of its share in all rows in which others of its priority wait.
func (q *Request) count(w *Waiter) {
	for i := range q.Searches {
		if !q.Booking.Charges[i].Shadow && !q.Searches[i].rule.slots {
			q.countIn(w, q.key(i))
		}
	}
}

// countIn counts a turn of a waiter in one row, once.
func (q *Request) countIn(w *Waiter, key Key) {
	i := slices.IndexFunc(q.Booking.Charges, func(c store.Charge) bool { return c.Budget.Key == key })
	l := q.Searches[i].row.queue
	if l == nil || slices.Contains(w.counted, key) {
		return
	}
	c, share := &l.lanes[w.class], q.Booking.Charges[i].Share
	if len(*c) == 0 || len(*c) == 1 && (*c)[0].share == 0 && share.ID == 0 {
		return // nobody takes turns
	}
	own := l.open(w.class, share)
	c.serve(own, q.Searches[i].rule.cost)
	*c = c.tidy()
	w.counted = append(w.counted, key)
}

// uncount takes back the turns of a waiter that did not use them.
func (q *Request) uncount(w *Waiter) {
	for i := range q.Searches {
		if !slices.Contains(w.counted, q.key(i)) || q.Searches[i].row.queue == nil {
			continue
		}
		c := &q.Searches[i].row.queue.lanes[w.class]
		if own := c.of(q.Booking.Charges[i].Share.ID); own != nil {
			own.unserve(q.Searches[i].rule.cost)
			*c = c.tidy()
		}
	}
	w.counted = nil
}

// hasShares reports whether a line needs lanes of shares, and not only one lane for each priority.
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

// shares describes the shares of a line, by ID; nil if it has none.
func (l *queue) shares() (all []store.ShareStatus) {
	if !l.hasShares() {
		return nil
	}
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
