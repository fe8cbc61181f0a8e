package ledger

// Busy reports whether anything is in flight, or a caller waits. What nodes without a
// lease hold and wait for is kept for as long as they live.
func (r *Row) Busy() bool { return r.queue != nil || r.slots != nil && r.slots.busy() }

// Expiry is when nothing in the row can matter any more, but for what nodes without a lease
// hold and wait for.
func (r *Row) Expiry() int64 {
	end := max(r.seen, r.ceiling.forgotten())
	for i := range r.leases {
		end = max(end, r.leases[i].until)
	}
	if r.paused > 0 {
		end = max(end, r.paused+max(r.last.probe, r.last.step(), int64(len(steps))*r.span))
	}
	if k := len(r.entries); k > 0 {
		end = max(end, r.entries[k-1].last+r.span+Doubt)
	}
	if r.lost > 0 {
		end = max(end, r.lost+r.span+Doubt) // Reconcile must know that there were starts
	}
	return end
}
