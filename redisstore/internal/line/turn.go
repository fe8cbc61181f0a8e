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
	NoNews bool             // callers for starts listen to no messages, and wait for no others: a test has a clock of its own
}

// channels are those on which waiters for budgets of a group are called.
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

// A gathering is the callers of one group that were called and are on their way to its queue.
// The queue waits for them, so that callers that are called together are served together, in the
// order of their tickets.
type gathering struct {
	group   string
	missing int
	over    chan struct{} // closed when nobody is missing
}

// gatherMost is how long a queue waits: a caller may have something else to do.
const gatherMost = 5 * time.Millisecond

// Gatherings are those that go on, by group. The lock of the starts guards them.
type gatherings map[string]*gathering

// expect adds a caller that is called.
func (gs gatherings) expect(group string) *gathering {
	g := gs[group]
	if g == nil {
		g = &gathering{group: group, over: make(chan struct{})}
		gs[group] = g
	}
	g.missing++
	return g
}

// came notes that a caller is there, or does not come.
func (gs gatherings) came(g *gathering) {
	if g.missing--; g.missing == 0 {
		close(g.over)
		gs.end(g)
	}
}

// end lets nobody wait for a gathering any more.
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
	charges []throttle.Charge // what it asked for last
	class   int64
	tickets []wire.Ticket
	inLine  bool // Redis believes that it waits
	started bool // it had a start: where it has no ticket it goes before all others

	queue     string // the key of that where it waits to be called; "": nowhere
	number    int64  // its ticket there
	cost      int64
	ready     chan struct{}
	near      time.Time // when its start is within the horizon
	come      time.Time // when to come at the latest
	notBefore time.Time // and not earlier
	calls     int       // how often it had to stand here
	deadline  time.Time // a start after that is of no use; zero: any is
	horizon   time.Duration
	expected  *gathering // it was called, and is not there yet
}

const (
	comeLate  = 60 * time.Millisecond  // after a start is within the horizon: the guess may be a little off
	evenMost  = 2 * time.Second        // longer windows are not served evenly
	spareMost = 200 * time.Millisecond // for so long a caller waits for others, or for a call that is made anyway
)

// classOf returns the class of a priority: see lua/queue.lua.
func classOf(p throttle.Priority) int64 {
	return int64(throttle.High-max(throttle.Low, min(p, throttle.High))) + 1
}

func compareTurns(a, b *turn) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.number, b.number))
}

// Ticket implements [commit.Turn]. Nobody changes it while an op has the turn.
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

// hadStart notes that a turn that stood in lines has left them, and kept its arrival.
func (t *turn) hadStart() {
	for i := range t.tickets {
		t.tickets[i].State = wire.HadStart
	}
}

// comes sets when to come. There is time for some answers of the store until the start.
func (t *turn) comes(near time.Time) {
	t.near = latest(near, t.notBefore)
	t.come = t.near.Add(max(0, min(spareMost, t.horizon/2-comeLate)))
}

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
