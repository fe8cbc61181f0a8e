package ledger

import (
	"context"

	"github.com/fleetthrottle/throttle/store"
)

// A Reader calls read with a request of a charge that is made for a copy of the row: see Row.Clone.
// Stores embed it: each operation that only reads one budget has a method here, and none in
// those stores.
type Reader func(c store.Charge, read func(*Request))

// Status implements [store.Store].
func (r Reader) Status(_ context.Context, c store.Charge) (st store.Status, err error) {
	c.Cost = 1
	r(c, func(q *Request) { st = q.Status() })
	return st, nil
}
