package ledger

// A row lists the first waiters of a line by their places, and counts the others, so that
// it never grows. In memory a row lists all: only MarshalBinary cuts lines off.

// Lists reports whether a waiter has its place in one of the row's lines.
func (r *Row) Lists(at Place) bool {
	if r.slots != nil {
		if _, ok := r.slots.find(at.Arrival, at.Node); ok {
			return true
		}
	}
	return r.queue != nil && r.queue.has(at.Arrival)
}

// Wants reports whether waiters without a place should ask again now: few are left that
// have one.
func (r *Row) Wants() bool {
	if r.queue != nil {
		listed, beyond := 0, int64(0)
		for _, c := range r.queue.lanes {
			for i := range c {
				listed += len(c[i].places)
			}
			beyond += c.beyond()
		}
		if beyond > 0 {
			return listed < fewPlaces
		}
	}
	return r.slots != nil && r.slots.beyond > 0 && len(r.slots.line) < fewPlaces
}
