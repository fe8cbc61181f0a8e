package storetest

import (
	"context"

	"github.com/fleetthrottle/throttle"
)

// Reconcile implements throttle.Store.
func (o *oracle) Reconcile(_ context.Context, c throttle.Charge, q throttle.Quota) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, until := o.ledger.reconcile(c, q, o.clock())
	o.tellBetween(c, from, until)
	return nil
}

// tellBetween tells the watches of all starts from a time on, before another, that
// they no longer fit.
func (o *oracle) tellBetween(c throttle.Charge, from, until int64) {
	for _, v := range o.watched {
		if counts(v.b, c) && from <= v.at && v.at < until {
			v.tell(true)
		}
	}
}
