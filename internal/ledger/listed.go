package ledger

import "time"

// A row lists the first waiters of a line by their places, and counts the others, so that
// it never grows. In memory nobody is cut off: only MarshalBinary does it.

// Recall is how often a waiter without a place has to ask again, at the least. If none of
// them does for three times as long, they are forgotten.
const (
	Recall  = time.Second
	silence = 3 * int64(Recall/time.Microsecond)
)

// Lists reports whether the waiter, which stands in the row's line, has a place there.
func (r *Row) Lists(w *Waiter) bool {
	if r.queue == nil || w.stand == nil {
		return false
	}
	_, ok := r.queue.find(w.stand.class, w.stand.place.arrival)
	return ok
}

// Wants reports whether waiters without a place should ask again now: few are left that
// have one.
func (r *Row) Wants() bool {
	if r.queue != nil && r.queue.beyond != [classes]int64{} {
		listed := 0
		for _, q := range r.queue.places {
			listed += len(q)
		}
		return listed < maxPlaces/2
	}
	return r.slots != nil && r.slots.beyond > 0 && len(r.slots.line) < maxPlaces/2
}
