package line

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Options are what lines work with. All but NoNews are required.
type Options struct {
	Names  *names.Space
	Subs   *notify.Subscriptions
	Post   func(*commit.Op) // makes an op that nobody waits for
	NoNews bool             // callers for starts listen to no messages, and do not gather, as a test with a clock of its own needs it
}

// channels returns the channels on which waiters for budgets of a group are called.
func (o *Options) channels(group string) notify.Channels { return notify.ChannelsOf(o.Names, group) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// A gathering is the callers of one group that were called and are on their way to the group's
// commit queue. The commit queue waits for them, so that callers that are called together are
// served by one call, in the order of their tickets.
type gathering struct {
	group   string
	missing int
	over    chan struct{} // closed when nobody is missing
}

// gatherMost is how long a commit queue waits at the most: a caller may have something else to do.
const gatherMost = 5 * time.Millisecond

// gatherings are the gatherings that go on, by group. The lock of the starts guards them.
type gatherings map[string]*gathering

// expect adds a caller that is being called to the gathering of its group.
func (gs gatherings) expect(group string) *gathering {
	g := gs[group]
	if g == nil {
		g = &gathering{group: group, over: make(chan struct{})}
		gs[group] = g
	}
	g.missing++
	return g
}

// arrived notes that an expected caller has come to the commit queue, or does not come.
func (gs gatherings) arrived(g *gathering) {
	if g.missing--; g.missing == 0 {
		close(g.over)
		gs.end(g)
	}
}

// end ends a gathering: no commit queue waits for it from now on.
func (gs gatherings) end(g *gathering) {
	if gs[g.group] == g {
		delete(gs, g.group)
	}
}

// A turn is what this node knows of a caller that waits in line for a start, or did:
// its tickets. See docs/internals/line.md and lua/queue.lua. It is a [commit.Turn], and the
// [throttle.Turn] of its caller. The lock of the starts guards it.
type turn struct {
	mu      *sync.Mutex       // of the starts
	charges []throttle.Charge // what the caller asked for last
	class   int64             // of the caller's priority: see classOf
	tickets []wire.Ticket     // one for each line in which the caller waits or waited
	inLine  bool              // Redis believes that the caller waits
	started bool              // the caller had a start: in lines where it has no ticket it goes before all others

	// The fields below are about the one line in which the caller waits to be called.
	lineKey   string // the key of the line's budget; "": the caller does not wait
	share     uint64 // of the lane in which it waits there
	number    int64  // of the caller's ticket there
	cost      int64
	ready     chan struct{}
	nearAt    time.Time // when its start is within the horizon, by the last estimate
	comeBy    time.Time // when the caller is called at the latest
	notBefore time.Time // when the caller is called at the earliest
	calls     int       // how often the caller had to wait in lines
	deadline  time.Time // a start after this is of no use to the caller; zero: any start is of use
	horizon   time.Duration
	gathering *gathering // the caller was called, and has not come yet; nil: it was not called
}

const (
	comeLate  = 60 * time.Millisecond  // a caller is called so much later than nearAt, which is an estimate
	evenMost  = 2 * time.Second        // lines of longer windows are not served evenly
	lightMost = 100 * time.Millisecond // a caller of a share whose start is so much beyond the horizon, at the most, is not called late
	spareMost = 200 * time.Millisecond // for how long after nearAt a caller may wait for a call that is made for others
)

// classOf returns the class of a priority, 1 for High to 3 for Low: see lua/queue.lua.
func classOf(p throttle.Priority) int64 {
	return int64(throttle.High-max(throttle.Low, min(p, throttle.High))) + 1
}

// laneID names the lane in which the caller waits.
func (t *turn) laneID() wire.LaneID { return wire.LaneID{Class: t.class, Share: t.share} }

// compareTurns orders the turns of one line: by class, then by share, then by ticket.
func compareTurns(a, b *turn) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.share, b.share), cmp.Compare(a.number, b.number))
}

// Ticket implements [commit.Turn]. It takes no lock: nobody changes the number while an op has the
// turn.
func (t *turn) Ticket() int64 { return t.number }

// Leave implements [commit.Turn].
func (t *turn) Leave() *commit.Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leave()
}

// leave is Leave where the starts are locked.
func (t *turn) leave() *commit.Op {
	if !t.inLine {
		return nil
	}
	op := commit.NewOp(wire.Cancel, slices.Clone(t.charges)...) // see commit.Queues.Tell
	op.Class, op.Tickets = t.class, slices.Clone(t.tickets)
	t.inLine, t.tickets = false, nil
	return op
}

// markHadStart marks the tickets of a turn that has left its lines as those of a caller that had a
// start: a caller that comes back with them goes before those that came later.
func (t *turn) markHadStart() {
	for i := range t.tickets {
		t.tickets[i].State = wire.HadStart
	}
}

// setComeBy sets nearAt, and comeBy a little later: within the horizon there is time for
// several answers of Redis.
func (t *turn) setComeBy(near time.Time) {
	t.nearAt = latest(near, t.notBefore)
	t.comeBy = t.nearAt.Add(max(0, min(spareMost, t.horizon/2-comeLate)))
}

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

// note notes until when a lane is full.
func (b *fullBudget) note(id wire.LaneID, until time.Time) {
	if id.Share == 0 {
		b.until[id.Class-1] = until
		return
	}
	if b.shares == nil || len(b.shares) >= sharesMost {
		b.shares = make(map[wire.LaneID]time.Time)
	}
	b.shares[id] = until
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
	b.note(wire.LaneID{Class: op.Class, Share: share}, now.Add(wire.Wait(o.Wait)))
	b.newcomers = 0
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
// until its start, but 0 if the newcomer would be refused, so that it hears of it at once. Of
// many newcomers only so many wait as the budget starts in half of joinMost: otherwise a crowd of
// this program would come before callers of others.
func (f *fullBudgets) patience(op *commit.Op, b *throttle.Booking, now time.Time) time.Duration {
	if op.Kind != wire.Reserve || b.Horizon == 0 || b.Turn != nil || b.Instead != (throttle.Handle{}) || b.NotBefore > 0 || op.ForSlots() {
		return 0
	}
	var wait time.Duration
	var holder *fullBudget
	crowd := 0
	for i := range op.Charges {
		c := &op.Charges[i]
		if budget := f.all[c.Budget.Key]; budget != nil && !c.Shadow {
			share, _ := wire.Share(c)
			if d := budget.wait(wire.LaneID{Class: op.Class, Share: share}, now); d > wait && (share == 0 || d > b.Horizon+lightMost) {
				wait, holder, crowd = d, budget, flow(c)
			}
		}
	}
	if holder == nil || b.MaxWait >= 0 && wait >= b.MaxWait {
		return 0
	}
	if holder.newcomers++; holder.newcomers >= crowd {
		return 0
	}
	return min(joinMost, wait/2)
}

// flow returns how many callers with a charge start within half of joinMost while the budget is
// full; 0 if starts do not flow evenly there: a caller that is passed might have to wait for
// another window.
func flow(c *throttle.Charge) int {
	n, per := int64(c.Limit.N()), c.Limit.Per()
	if c.Limit.Kind() == throttle.KindFixedWindow || c.Limit.Kind() == throttle.KindSlidingWindow && per > evenMost || per <= 0 {
		return 0
	}
	return int(n * int64(joinMost/2) / int64(per) / int64(c.Cost))
}
