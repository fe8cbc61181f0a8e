package line

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Options are what lines work with. All but NoNews are required.
type Options struct {
	Names  *names.Space
	Subs   *notify.Subscriptions
	Post   func(*commit.Op) // makes an op that nobody waits for
	NoNews bool             // callers for starts listen to no messages, and do not gather, as a test with a clock of its own needs it
}

// channels returns the channels on which waiters for budgets of a group are called.
func (o *Options) channels() notify.Channels { return notify.ChannelsOf(o.Names) }

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
// [store.Turn] of its caller. The lock of the starts guards it.
type turn struct {
	mu      *sync.Mutex    // of the starts
	charges []store.Charge // what the caller asked for last
	class   int64          // of the caller's priority: see classOf
	tickets []wire.Ticket  // one for each line in which the caller waits or waited
	inLine  bool           // Redis believes that the caller waits
	started bool           // the caller had a start: in lines where it has no ticket it goes before all others

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
	comeLate      = 60 * time.Millisecond  // a caller is called so much later than nearAt, which is an estimate
	comeLateShare = 20 * time.Millisecond  // and one with a share, which books less far ahead
	evenMost      = 2 * time.Second        // lines of longer windows are not served evenly
	lightMost     = 100 * time.Millisecond // a caller of a share whose start is so much beyond the horizon, at the most, is not called late
	spareMost     = 200 * time.Millisecond // for how long after nearAt a caller may wait for a call that is made for others
)

// classOf returns the class of a priority, 1 for High to 3 for Low: see lua/queue.lua.
func classOf(p store.Priority) int64 {
	return int64(store.PriorityHigh-max(store.PriorityLow, min(p, store.PriorityHigh))) + 1
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
	spare := t.horizon/2 - comeLate
	if t.share != 0 {
		spare = t.horizon*3/5 - comeLate // a third of the horizon before its start Redis would call it
	}
	t.nearAt = latest(near, t.notBefore)
	t.comeBy = t.nearAt.Add(max(0, min(spareMost, spare)))
}
