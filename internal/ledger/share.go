package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle"
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
	i := slices.IndexFunc(q.Booking.Charges, func(c throttle.Charge) bool { return c.Budget.Key == key })
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

// GiveUp is Leave for a waiter that does not come again: its share has back the turns that it did
// not use. The booking is that with which it came last.
func (q *Request) GiveUp(w *Waiter) {
	q.Leave(w)
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
