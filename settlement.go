package throttle

import (
	"context"
	"slices"
	"sync"

	"github.com/fleetthrottle/throttle/store"
)

// A settlement is what the store has been told of the costs of one request: by the response, and
// by its body when that was over. The two may come at one time.
type settlement struct {
	mu     sync.Mutex
	booked []store.Charge // the charges with the costs that the store has; nil: those of the booking
}

// tell tells the store what a start has cost: a cost for each charge, asBooked for those that keep
// theirs. If that fails, failed has the charges whose costs the store does not know.
func (s *settlement) tell(ctx context.Context, st Store, b store.Booking, g store.Grant, costs []int) (failed []store.Charge, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.booked != nil {
		b.Charges = s.booked
	}
	all := costsOf(b.Charges)
	for i, cost := range costs {
		if cost >= 0 {
			all[i] = cost
		}
	}
	if slices.EqualFunc(b.Charges, all, func(c store.Charge, cost int) bool { return c.Cost == cost }) {
		return nil, nil
	}
	err = st.Settle(ctx, &b, g, all)
	s.booked = slices.Clone(b.Charges)
	for i, cost := range all {
		c := &s.booked[i]
		if err != nil && c.Cost != cost {
			failed = append(failed, b.Charges[i])
		}
		// If it is unknown which of two costs the store has, the lower one counts: to give back more
		// than is booked would give back the start of another request.
		if err == nil || cost < c.Cost {
			c.Cost = cost
		}
	}
	return failed, err
}

// mostSettled returns the highest cost that a response can settle a charge at. Under a
// LeakyBucket each unit of cost keeps the next start away for per/n, and no response
// closes anything for longer than [MaxPenalty].
func mostSettled(c *store.Charge) int {
	if c.Limit.Kind() != store.KindLeakyBucket {
		return store.MaxCost
	}
	most := float64(MaxPenalty) / float64(c.Limit.Per()) * float64(c.Limit.N())
	return max(c.Cost, int(min(most, store.MaxCost)))
}

// costsOf returns the costs of charges.
func costsOf(charges []store.Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}
