package acquire

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// ClockJitter is the smallest Jitter of a charge that counts: the store's clock leaves out
// fractions of a microsecond, by which a start can follow its predecessor too early. No
// grant grows too old within ClockJitter.
const ClockJitter = time.Microsecond

// SetCharges sets the caller's charges, and takes over the slice. Each charge has the Pace
// of its limit. A caller that holds a start or a place must use Reprice.
func (c *Caller) SetCharges(charges []store.Charge) {
	c.Booking.Charges = charges
	c.jitter, c.concurrent, c.shadowed = 0, false, len(charges) > 0
	c.horizon, c.shared, c.repaced = store.MinHorizon, false, false

	for i := range charges {
		charge := &charges[i]
		c.shadowed = c.shadowed && charge.Shadow
		c.horizon, c.shared = max(c.horizon, charge.Limit.Horizon()), c.shared || charge.Share.ID != 0

		// The Jitter of a Concurrency charge does not count: a slot is held and does not age.
		switch j := charge.Jitter; {
		case charge.Limit.Kind() == store.KindConcurrency:
			c.concurrent = true
		case j > ClockJitter && !charge.Shadow && (c.jitter == 0 || j < c.jitter):
			c.jitter = j
		}
	}
}

// Reprice has price set the caller's charges anew, because the policies were replaced. A
// caller whose charges are equivalent keeps its start or place. If the charges differ the
// caller books in place of its holdings, if the store can replace them in one step, and
// otherwise gives them back. Reprice returns the error of price, or of the booking.
func (c *Caller) Reprice(ctx context.Context, price func() error) error {
	c.StopWatch()
	if c.uncounted {
		c.forget()
	}

	old := c.Booking
	old.Charges = slices.Clone(old.Charges)

	err := price()
	if err == nil && slices.EqualFunc(old.Charges, c.Booking.Charges, equivalent) {
		return nil
	}

	// One step replaces the place in line, so that no later caller passes.
	moves := c.state == inLine || slices.EqualFunc(old.Charges, c.Booking.Charges, interchangeable)
	if c.state != idle && moves && err == nil && len(c.Booking.Charges) > 0 {
		return c.Book(ctx)
	}

	if c.state != idle {
		c.engine.Store.Cancel(&old, c.Grant)
		c.state = idle
	}

	c.Grant = store.Grant{HeldBy: store.NotHeld, Turn: c.Grant.Turn}
	return err
}

// interchangeable reports whether a booking of b can give back a start that was booked for a.
func interchangeable(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.Kind() == b.Limit.Kind() && a.Limit.Kind() != store.KindLeakyBucket
}

// equivalent reports whether a start that was booked for a is as good as a start for b.
func equivalent(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.KeepFree == b.KeepFree && a.Limit.String() == b.Limit.String()
}

// spansScopes reports whether some charges are of the Fleet scope and some of the Node
// scope. Then a place in the line for slots of one scope is no place for slots of the
// second scope: a caller that finds no room books all charges again.
func (c *Caller) spansScopes() bool {
	charges := c.Booking.Charges
	return slices.ContainsFunc(charges, func(other store.Charge) bool { return other.Node != charges[0].Node })
}

// countsStart reports whether a charge counts starts, and takes no slot.
func countsStart(c store.Charge) bool { return c.Limit.Kind() != store.KindConcurrency }

// chargeIndex returns the index among the caller's charges of the i-th charge of the booking of a
// slotHold. The result is below 0 if i is.
func (c *Caller) chargeIndex(b *store.Booking, i int) int {
	return slices.IndexFunc(c.Booking.Charges, func(charge store.Charge) bool {
		return i >= 0 && charge.Budget == b.Charges[i].Budget
	})
}
