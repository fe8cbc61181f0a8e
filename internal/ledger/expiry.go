package ledger

// Expiry is when nothing in the row can matter any more. While a node holds slots or waits
// that is when its lease ends; for one without a lease it is not yet.
func (r *Row) Expiry(now int64) int64 {
	end := max(r.seen, r.ceiling.forgotten())
	if r.queue != nil || r.slots != nil && r.slots.busy() {
		end = max(end, now)
	}
	for i := range r.leases {
		end = max(end, r.leases[i].until)
	}
	if r.paused > 0 {
		end = max(end, r.paused+max(r.last.probe, r.last.step(), int64(len(steps))*r.span))
	}
	if k := len(r.entries); k > 0 {
		end = max(end, r.entries[k-1].last+r.span)
	}
	return end
}
