package line

import (
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// joinMost is how long a newcomer's call may wait for other callers. So between programs a
// caller may get a place in line before one that came so much earlier.
const joinMost = 100 * time.Millisecond

// Full has what answers said of budgets that are full: when the last start comes that a caller
// of each class waits for. A newcomer of that class, or of a lesser one, starts no earlier, but
// for what is given back. The lock of the starts guards it.
type full struct {
	until map[[16]byte]*[3]time.Time
	most  int // how many there may be before those that are over are dropped
}

const fullLeast = 64

// note takes in what was answered to an op.
func (f *full) note(op *commit.Op, now time.Time) {
	o := &op.Outcome
	if o.Charge < 0 || o.Wait <= 0 || o.PausedUntil > 0 || op.Class == 0 || op.Horizon == 0 {
		return
	}
	key := op.Charges[o.Charge].Budget.Key
	all := f.until[key]
	if all == nil {
		f.sweep(now)
		all = new([3]time.Time)
		f.until[key] = all
	}
	all[op.Class-1] = now.Add(wire.Wait(o.Wait))
}

// sweep drops budgets that are full no more, when there are twice as many as after the last time.
func (f *full) sweep(now time.Time) {
	if len(f.until) < f.most {
		return
	}
	for key, all := range f.until {
		if !latest(all[0], latest(all[1], all[2])).After(now) {
			delete(f.until, key)
		}
	}
	f.most = max(fullLeast, 2*len(f.until))
}

// wait returns how long a newcomer of a class waits at least for a start.
func (f *full) wait(charges []throttle.Charge, class int64, now time.Time) time.Duration {
	var most time.Duration
	for i := range charges {
		if all := f.until[charges[i].Budget.Key]; all != nil && !charges[i].Shadow {
			for _, t := range all[:class] {
				most = max(most, t.Sub(now))
			}
		}
	}
	return most
}

// forget lets newcomers for a budget ask at once.
func (f *full) forget(key [16]byte) { delete(f.until, key) }

// patience returns how long the call of a newcomer may wait for other callers: half of what its
// start is away. A caller that would be refused hears that at once.
func (f *full) patience(op *commit.Op, b *throttle.Booking, now time.Time) time.Duration {
	if op.Kind != wire.Reserve || b.Horizon == 0 || b.Turn != nil || b.Instead != (throttle.Handle{}) || b.NotBefore > 0 || op.Holds() {
		return 0
	}
	wait := f.wait(op.Charges, op.Class, now)
	if b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0
	}
	return min(joinMost, wait/2)
}
