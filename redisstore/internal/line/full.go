package line

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// joinMost is how long a newcomer's call may wait for other callers. So a caller of another program
// may get a place in line before a newcomer that came up to so much earlier.
const joinMost = 150 * time.Millisecond

// fullBudgets are the budgets that were full by the last answers. The lock of the starts guards
// them.
type fullBudgets struct {
	all  map[[16]byte]*fullBudget
	most int // how many there may be until sweep drops those that are full no more
}

// A fullBudget is what the last answers said of a budget that is full.
type fullBudget struct {
	// By class, and of a class's callers with a share by lane: the latest start that a caller waits for. A newcomer of the lane, or
	// of a lower class, starts no earlier, unless something is given back.
	until     [3]time.Time
	shares    map[wire.LaneID]time.Time
	newcomers int // how many newcomers came since the last answer, whose calls wait for other callers
}

// note notes until when a lane is full. What a newcomer was told is kept: a caller that has waited already waits
// for less than the next newcomer will.
func (b *fullBudget) note(id wire.LaneID, until time.Time, newcomer bool) {
	if id.Share == 0 {
		b.until[id.Class-1] = until
		return
	}
	if b.shares == nil || len(b.shares) >= sharesMost {
		b.shares = make(map[wire.LaneID]time.Time)
	}
	if newcomer || until.After(b.shares[id]) {
		b.shares[id] = until
	}
}

// sharesMost is how many lanes of a budget are remembered.
const sharesMost = 512

// wait returns how long a newcomer of a lane surely has to wait; 0 if nothing is known. Callers of the same class that have other
// shares do not go before it.
func (b *fullBudget) wait(id wire.LaneID, now time.Time) (wait time.Duration) {
	for _, t := range b.until[:id.Class-1] {
		wait = max(wait, t.Sub(now))
	}
	if id.Share == 0 {
		wait = max(wait, b.until[id.Class-1].Sub(now))
	}
	for other, t := range b.shares {
		if other == id || other.Class < id.Class {
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

// fullLeast is how many budgets are kept without a sweep.
const fullLeast = 64

// note takes in the answer to an op: which budget made it wait, and for how long.
func (f *fullBudgets) note(op *commit.Op, now time.Time) {
	o := &op.Outcome
	if o.Charge < 0 || o.Wait <= 0 || o.PausedUntil > 0 || op.Class == 0 || op.Horizon == 0 {
		return
	}
	key := op.Charges[o.Charge].Budget.Key
	b := f.all[key]
	if b == nil {
		f.sweep(now)
		b = new(fullBudget)
		f.all[key] = b
	}
	share, _ := wire.Share(&op.Charges[o.Charge])
	b.note(wire.LaneID{Class: op.Class, Share: share}, now.Add(wire.Wait(o.Wait)), op.Turn == nil)
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

// sweep drops the budgets that are full no more, if there are twice as many budgets as after the
// last sweep.
func (f *fullBudgets) sweep(now time.Time) {
	if len(f.all) < f.most {
		return
	}
	for key, b := range f.all {
		if !b.isFull(now) {
			delete(f.all, key)
		}
	}
	f.most = max(fullLeast, 2*len(f.all))
}

// forget lets newcomers for a budget ask at once.
func (f *fullBudgets) forget(key [16]byte) { delete(f.all, key) }

// patience returns how long the call of a newcomer may wait for other callers: half of the time
// until its start, and less if the newcomer has a share, so that its start is not within the horizon before. It is
// 0 if the newcomer would be refused, so that it hears of it at once. Of many newcomers only so many wait as the
// budget starts in half of joinMost: otherwise a crowd of this program would come before callers of others.
func (f *fullBudgets) patience(op *commit.Op, b *store.Booking, now time.Time) time.Duration {
	if op.Kind != wire.Reserve || b.Horizon == 0 || b.Turn != nil || b.Instead != (store.Handle{}) || b.NotBefore > 0 || op.ForSlots() {
		return 0
	}
	var wait, spare time.Duration
	var holder *fullBudget
	crowd := 0
	for i := range op.Charges {
		c := &op.Charges[i]
		if budget := f.all[c.Budget.Key]; budget != nil && !c.Shadow {
			share, _ := wire.Share(c)
			if d := budget.wait(wire.LaneID{Class: op.Class, Share: share}, now); d > wait {
				wait, holder, crowd, spare = d, budget, flow(c), d/2
				if share != 0 {
					spare = min(spare, d-b.Horizon)
				}
			}
		}
	}
	if holder == nil || b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0
	}
	if holder.newcomers++; holder.newcomers >= crowd {
		return 0
	}
	return max(0, min(joinMost, spare))
}

// flow returns how many callers with a charge start within half of joinMost while the budget is
// full; 0 if starts do not flow evenly there: a caller that is passed might have to wait for
// another window.
func flow(c *store.Charge) int {
	n, per := int64(c.Limit.N()), c.Limit.Per()
	if c.Limit.Kind() == store.KindFixedWindow || c.Limit.Kind() == store.KindSlidingWindow && per > evenMost || per <= 0 {
		return 0
	}
	return int(n * int64(joinMost/2) / int64(per) / int64(c.Cost))
}
