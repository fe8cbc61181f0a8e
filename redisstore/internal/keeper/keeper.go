// Package keeper passes on the operations that only read one budget, for all stores that
// stand before others: each such operation has a method here, and none in those stores.
package keeper

import (
	"context"

	"github.com/fleetthrottle/throttle/store"
)

// A Finder returns the store that keeps a budget at this moment, and the charge by which
// that store knows the budget. Stores embed it.
type Finder func(ctx context.Context, c store.Charge) (store.Store, store.Charge)

// Status implements [store.Store].
func (find Finder) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	s, c := find(ctx, c)
	return s.Status(ctx, c)
}
