package line

import (
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// joinMost is how long a newcomer's call may wait for other callers. So between programs a
// caller may get a place in line before one that came so much earlier.
const joinMost = 150 * time.Millisecond

// Full has what answers said of budgets that are full. The lock of the starts guards it.
type full struct {
	all  map[[16]byte]*busy
	most int // how many there may be before those that are over are dropped
}

// A busy budget is full.
type busy struct {
	until  [3]time.Time // the last start that a caller of each class waits for: a newcomer of that class, or of a lesser one, starts no earlier, but for what is given back
	coming int          // newcomers whose calls wait for others
}

const fullLeast = 64

// note takes in what was answered to an op.
func (f *full) note(op *commit.Op, now time.Time) {
	o := &op.Outcome
	if o.Charge < 0 || o.Wait <= 0 || o.PausedUntil > 0 || op.Class == 0 || op.Horizon == 0 {
		return
	}
	key := op.Charges[o.Charge].Budget.Key
	b := f.all[key]
	if b == nil {
		f.sweep(now)
		b = new(busy)
		f.all[key] = b
	}
	b.until[op.Class-1], b.coming = now.Add(wire.Wait(o.Wait)), 0
}

// sweep drops budgets that are full no more, when there are twice as many as after the last time.
func (f *full) sweep(now time.Time) {
	if len(f.all) < f.most {
		return
	}
	for key, b := range f.all {
		if !latest(b.until[0], latest(b.until[1], b.until[2])).After(now) {
			delete(f.all, key)
		}
	}
	f.most = max(fullLeast, 2*len(f.all))
}

// forget lets newcomers for a budget ask at once.
func (f *full) forget(key [16]byte) { delete(f.all, key) }

// patience returns how long the call of a newcomer may wait for other callers: half of what its
// start is away. A caller that would be refused hears that at once. Of a crowd no more wait than
// the budget starts in half of joinMost, so that a crowd of this program does not pass those of others.
func (f *full) patience(op *commit.Op, b *throttle.Booking, now time.Time) time.Duration {
	if op.Kind != wire.Reserve || b.Horizon == 0 || b.Turn != nil || b.Instead != (throttle.Handle{}) || b.NotBefore > 0 || op.Holds() {
		return 0
	}
	var wait time.Duration
	var by *busy
	crowd := 0
	for i := range op.Charges {
		c := &op.Charges[i]
		if of := f.all[c.Budget.Key]; of != nil && !c.Shadow {
			for _, t := range of.until[:op.Class] {
				if d := t.Sub(now); d > wait {
					wait, by, crowd = d, of, flow(c)
				}
			}
		}
	}
	if by == nil || b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0
	}
	if by.coming++; by.coming >= crowd {
		return 0
	}
	return min(joinMost, wait/2)
}

// flow returns how many callers start within half of joinMost if the budget is full; 0 if they do not flow
// evenly: there one that is passed may wait for another window.
func flow(c *throttle.Charge) int {
	n, per := int64(c.Limit.N()), c.Limit.Per()
	if c.Limit.Kind() == throttle.KindFixedWindow || c.Limit.Kind() == throttle.KindSlidingWindow && per > evenMost || per <= 0 {
		return 0
	}
	return int(n * int64(joinMost/2) / int64(per) / int64(c.Cost))
}
