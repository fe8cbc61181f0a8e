package node

import (
	"slices"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// cancel gives back the grant of an op.
func cancel(st *step, o *op) { st.cancel(&o.booking, o.grant) }

// release ends what an op holds of its Concurrency charges.
func release(st *step, o *op) {
	st.change(&o.booking, (*ledger.Request).Release)
	st.holds(&o.booking, -1)
}

// withdraw takes the place of an op that asks for a start for a caller that has left. What the caller
// had counts as given back.
func withdraw(st *step, o *op) {
	st.cancel(&o.booking, store.Grant{Handle: o.booking.Instead, Turn: o.booking.Turn})
	o.grant = store.Grant{}
}

// ownUndo returns an op of the node's own, which nobody waits for, that gives back what the op of a caller had.
func ownUndo(decide func(*step, *op), o *op) *op {
	own := &op{decide: decide, booking: o.booking, grant: o.grant, isUndo: true}
	own.booking.Charges = slices.Clone(o.booking.Charges)
	return own
}

// owedBy returns an op of the node's own that does later what an op could not do and must be done all the same; nil if there is nothing.
// unsure says that the rows may have been saved: then it is done in the memory alone, because what was given back twice would be taken
// from others, and the leases that the node had in the rows are over.
func owedBy(o *op, unsure bool) *op {
	decide := o.decide
	switch {
	case o.books && o.gives():
		decide = withdraw
	case !o.isUndo:
		return nil
	}
	if unsure {
		decide = withoutRows(decide)
	}
	return ownUndo(decide, o)
}

// withoutRows returns what an op does in the memory alone.
func withoutRows(decide func(*step, *op)) func(*step, *op) {
	return func(st *step, o *op) {
		rows, none := st.rows, NewTable(nil)
		none.Begin(rows.Now(), rows.Asked(), rows.Received(), true)
		st.rows = &none
		decide(st, o)
		st.rows = rows
		st.doubts--
		st.undo = append(st.undo, func() { st.doubts++ })
	}
}
