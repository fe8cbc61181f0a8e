package dashboard

import (
	"cmp"
	"slices"
)

// mostBands bounds the bands of a budget.
const mostBands = 50

// bands are the times in which budgets were closed, by the id of the budget, the oldest first.
type bands map[string][]band

// slack is by how much the end of a pause may seem to move, in milliseconds, because a reading has one
// moment and takes some time.
const slack = 1500

// add takes in what a reading says of each budget, and sets the bands of the reading's budgets. wasOpen says whether
// a reading of a moment ago found a budget open.
func (all bands) add(r *reading, wasOpen func(id string) bool) {
	at := r.At.UnixMilli()
	for id, closed := range r.Closed {
		all.insert(id, closed)
	}

	for i := range r.Budgets {
		b := &r.Budgets[i]
		all.meet(b, at, wasOpen(b.ID))
	}

	for id, own := range all {
		old := 0
		for old < len(own) && (own[old].Until < at-coarseKept.Milliseconds() || len(own)-old > mostBands) {
			old++
		}

		if all[id] = own[old:]; old == len(own) {
			delete(all, id)
		}
	}

	for i := range r.Budgets {
		r.Budgets[i].Bands = slices.Clone(all[r.Budgets[i].ID])
	}
}

// meet takes in whether a budget is closed at a moment. wasOpen says that a reading of a moment ago found it open. An end that has hardly moved stays as it was, so
// that the page does not change.
func (all bands) meet(b *budget, at int64, wasOpen bool) {
	own := all[b.ID]
	last := len(own) - 1
	held := last >= 0 && own[last].Until > at // by a band that reaches beyond this moment
	switch {
	case b.Until > at && held && own[last].By == b.By && own[last].Reason == b.Reason:
		if moved := b.Until - own[last].Until; moved < -slack || moved > slack {
			own[last].Until = b.Until
		}
		b.Until = own[last].Until

	case b.Until > at:
		if held {
			own[last].Until = at
		}

		next := band{From: at, Until: b.Until, Closer: b.Closer, By: b.By, Reason: b.Reason}
		switch {
		case held: // the band before ends here
		case b.Since > 0:
			next.From, next.Before = b.Since, b.SinceLeast
		default:
			next.Before = !wasOpen
		}

		all[b.ID] = append(own, next)

	case held && own[last].Until > at+slack:
		own[last].Until = at // somebody has opened it
	}
}

// insert adds bands that lie beside those that are known.
func (all bands) insert(id string, closed []band) {
	for _, b := range closed {
		apart := func(known band) bool { return b.Until <= known.From || known.Until <= b.From }
		if !slices.ContainsFunc(all[id], func(known band) bool { return !apart(known) }) {
			all[id] = append(all[id], b)
		}
	}
	slices.SortFunc(all[id], func(a, b band) int { return cmp.Compare(a.From, b.From) })
}
