package node

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Newcomers to a budget that is full, as its last answer said, share calls: the call of a newcomer waits for other
// callers for a part of the time that the newcomer has to wait anyway.

const (
	maxPatience = 150 * time.Millisecond // a caller of a remote node that comes that much later may get a place before a newcomer
	minSweep    = 64                     // budgets are kept without a sweep
	maxLanes    = 512                    // of a budget are remembered
)

// fullBudgets are the budgets that were full by the last answers. The lock of the node guards them.
type fullBudgets struct {
	all   map[[16]byte]*fullBudget
	limit int // of budgets, until sweep drops the budgets that have room again
}

// A fullBudget says until when a budget is full, by the last answers: for the callers without a share by class, and
// for the callers with a share by lane. Until then means the latest start for which a caller waits. A newcomer of the
// lane, or of a lower class, starts no earlier, unless a start is given back.
type fullBudget struct {
	until     [3]time.Time
	shares    map[wire.LaneID]time.Time
	newcomers int // how many came since the last answer whose calls wait for other callers
}

// note notes until when a lane is full. What a newcomer was told is kept: a caller that has waited already waits
// for less than the next newcomer will.
func (b *fullBudget) note(id wire.LaneID, until time.Time, newcomer bool) {
	if id.Share == 0 {
		b.until[id.Class-1] = until
		return
	}

	// The map has a bound: forgetting costs some calls without company.
	if b.shares == nil || len(b.shares) >= maxLanes {
		b.shares = make(map[wire.LaneID]time.Time)
	}
	if newcomer || until.After(b.shares[id]) {
		b.shares[id] = until
	}
}

// wait returns how long a newcomer of a lane surely has to wait, or 0 if nothing is known. Callers of the same class
// with other shares do not go before it.
func (b *fullBudget) wait(id wire.LaneID, now time.Time) (wait time.Duration) {
	for _, t := range b.until[:id.Class-1] {
		wait = max(wait, t.Sub(now))
	}
	if id.Share == 0 {
		wait = max(wait, b.until[id.Class-1].Sub(now))
	}
	for lane, t := range b.shares {
		if lane == id || lane.Class < id.Class {
			wait = max(wait, t.Sub(now))
		}
	}
	return wait
}

// isFull reports whether the budget is full.
func (b *fullBudget) isFull(now time.Time) bool {
	for _, t := range b.shares {
		if t.After(now) {
			return true
		}
	}
	return latest(b.until[0], latest(b.until[1], b.until[2])).After(now)
}

// note takes in the answer to an op: which budget made it wait, and for how long.
func (f *fullBudgets) note(o *op, now time.Time) {
	out := &o.outcome

	// The budget did not make this caller wait, or its wait says nothing to others: a pause ends for all at once.
	if out.Charge < 0 || out.Wait <= 0 || out.PausedUntil > 0 || o.Class == 0 || o.Horizon == 0 {
		return
	}

	key := o.Charges[out.Charge].Budget.Key
	b := f.all[key]
	if b == nil {
		f.sweep(now)
		b = new(fullBudget)
		f.all[key] = b
	}

	share, _ := wire.Share(&o.Charges[out.Charge])
	b.note(wire.LaneID{Class: o.Class, Share: share}, now.Add(wire.Wait(out.Wait)), o.turn == nil)

	// The answer shows what the crowd has taken, so the count begins anew.
	b.newcomers = 0
}

// noteLanes takes in when the last waiters of a full budget's lanes start: a newcomer starts no sooner.
func (f *fullBudgets) noteLanes(key [16]byte, l *wire.Line, now time.Time) {
	if b := f.all[key]; b != nil {
		for _, lane := range l.Lanes {
			b.note(lane.LaneID, now.Add(lane.Last), false)
		}
	}
}

// sweep drops the budgets that have room again, if there are twice as many budgets as after the last sweep.
func (f *fullBudgets) sweep(now time.Time) {
	if len(f.all) < f.limit {
		return
	}

	for key, b := range f.all {
		if !b.isFull(now) {
			delete(f.all, key)
		}
	}
	f.limit = max(minSweep, 2*len(f.all))
}

// forget lets newcomers for a budget ask at once.
func (f *fullBudgets) forget(key [16]byte) { delete(f.all, key) }

// patience returns how long the call of a newcomer may wait for other callers: half of the time until its start,
// and less if the newcomer has a share, so that its start is not within the horizon before. It is 0 if the newcomer
// would be refused, so that the newcomer hears of it at once. Of many newcomers only as many wait as start in half of
// maxPatience: otherwise a crowd of this program would come before callers of the rest of the fleet.
func (f *fullBudgets) patience(o *op, b *store.Booking, now time.Time) time.Duration {
	if o.Kind != wire.Reserve || b.Horizon == 0 || b.Turn != nil || b.Instead != (store.Handle{}) || b.NotBefore > 0 || o.forSlots {
		return 0
	}

	// The budget with the longest wait decides.
	var wait, spare time.Duration
	var holder *fullBudget
	crowd := 0
	for i := range o.Charges {
		c := &o.Charges[i]
		budget := f.all[c.Budget.Key]
		if budget == nil || c.Shadow {
			continue
		}

		share, _ := wire.Share(c)
		if d := budget.wait(wire.LaneID{Class: o.Class, Share: share}, now); d > wait {
			wait, holder, crowd, spare = d, budget, flow(c), d/2
			if share != 0 {
				spare = min(spare, d-b.Horizon)
			}
		}
	}

	// A caller that will be refused hears of it at once.
	if holder == nil || b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0
	}

	// Behind this crowd, newcomers do not wait for company: callers of other nodes would have to stand behind all of them.
	holder.newcomers++
	if holder.newcomers >= crowd {
		return 0
	}

	return max(0, min(maxPatience, spare))
}

// flow returns how many callers with a charge start within half of maxPatience while the budget is full. It is 0
// if starts do not flow evenly there: a caller that is passed might have to wait for one more window.
func flow(c *store.Charge) int {
	n, per := int64(c.Limit.N()), c.Limit.Per()
	if c.Limit.Kind() == store.KindFixedWindow || c.Limit.Kind() == store.KindSlidingWindow && per > maxEvenWindow || per <= 0 {
		return 0
	}

	return int(n * int64(maxPatience/2) / int64(per) / int64(c.Cost))
}
