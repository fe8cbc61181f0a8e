package ledger

// Renew makes the node believed to live for another lease in all rows, and calls waiters
// for which nodes that have died made room. A node does it in time while it holds slots or
// has waiters.
func (q *Request) Renew() {
	for i := range q.Searches {
		q.Searches[i].row.lease(q.Node)
		q.setAside(i)
	}
	q.moved()
}

// Relist gives a waiter for the slots of the i-th charge a place again that it has lost.
func (q *Request) Relist(i int, arrival int64) {
	s := &q.Searches[i]
	s.row.lease(q.Node) // the row had none, if it listed no place of the node
	s.row.slots.asked = q.Now
	s.row.slots.leave(arrival, q.Node.ID, s.rule.cost)
	s.row.slots.lineUp(&s.rule, arrival, q.Node.ID)
	q.setAside(i)
}
