package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A misled store is one that keeps another limit than it was asked to.
type misled struct {
	throttle.Store
	change func(*throttle.Charge)
}

func (s misled) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	for i := range b.Charges {
		s.change(&b.Charges[i])
	}
	return s.Store.Book(ctx, b)
}

// A hoarding store takes nothing back.
type hoarding struct{ throttle.Store }

func (hoarding) Cancel(*throttle.Booking, throttle.Grant) {}

func TestLargeMutantsAreCaught(t *testing.T) {
	soak.Arithmetic(t)
	more := func(c *throttle.Charge) { c.Limit = resized(c.Limit, c.Limit.N()+1, c.Limit.Per()) }
	tooSoon := func(c *throttle.Charge) { c.Limit = resized(c.Limit, c.Limit.N(), c.Limit.Per()*98/100) }
	tooLate := func(c *throttle.Charge) { c.Limit = resized(c.Limit, c.Limit.N(), c.Limit.Per()*102/100) }
	for _, m := range []struct {
		name   string
		prefix string
		store  func(throttle.Store) throttle.Store
	}{
		{"one too many in a burst", "P1_LargeBurst", misleading(more)},
		{"one too many in a queue", "P1_LongQueueAtOnce", misleading(more)},
		{"one too many in a window", "P1_LargeFixed", misleading(more)},
		{"one too many in a bucket", "P1_LargeBucket", misleading(func(c *throttle.Charge) {
			c.Limit = throttle.TokenBucket(c.Limit.N(), c.Limit.Per(), c.Limit.Capacity()+1)
		})},
		{"too late in a queue for a bucket", "P1_LongQueueForABucket", misleading(tooLate)},
		{"too soon", "P1_LargeLimitEvenly", misleading(tooSoon)},
		{"too soon in a queue", "P1_LongQueue", misleading(tooSoon)},
		{"too late", "P1_LargeLimitEvenly", misleading(tooLate)},
		{"too late in a queue", "P1_LongQueue", misleading(tooLate)},
		{"too late in bursts", "P3_SteadyDemandInBursts", misleading(tooLate)},
		{"too late for a small limit", "P3_SteadyDemandSmall", misleading(tooLate)},
		{"too late for steady demand", "P3_SteadyDemand", misleading(tooLate)},
		{"places kept in a queue", "P7_CancelledWaitersInALongQueue", hoard},
		{"places kept of a large limit", "P7_CancelledWaitersOfALarge", hoard},
	} {
		t.Run(m.name, func(t *testing.T) {
			fresh := func() throttle.Store { return m.store(memstore.New()) }
			require.True(t, caught(t, largeChecks, m.prefix, fresh))
		})
	}
}

func misleading(change func(*throttle.Charge)) func(throttle.Store) throttle.Store {
	return func(s throttle.Store) throttle.Store { return misled{s, change} }
}

func hoard(s throttle.Store) throttle.Store { return hoarding{s} }
