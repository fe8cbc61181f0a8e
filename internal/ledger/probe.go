package ledger

// behindProbe returns the first moment not before t that the first start after
// a penalty leaves to the others: t, if there is no such start yet.
func (r *Row) behindProbe(t int64) int64 {
	end := r.paused + r.last.probe
	if t >= end {
		return t
	}
	if i := r.after(r.paused); i < len(r.entries) && r.entries[i].first < end {
		return end
	}
	return t
}

// isOver reports whether no start to come can share an interval with an entry,
// and none has to stay behind it.
func (r *Row) isOver(e *entry, now int64) bool {
	return e.last+r.span <= now && (e.last < r.paused || now >= r.paused+r.last.probe)
}
