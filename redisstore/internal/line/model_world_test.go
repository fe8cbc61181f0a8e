package line

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/linecheck"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A modelWorld is one state of all that takes part. Nothing of it changes once it is made; what
// happens makes another one, which shares all that stayed.
type modelWorld struct {
	now   int64 // in microseconds, since a day
	row   string
	lines linecheck.Lines
	known string // what the lines tell
	nodes []*modelNode
	used  []int64 // starts that were booked and not given back, once for each unit
	left  modelChances
	story *modelStory
}

// modelChances is how often something may still go wrong.
type modelChances struct {
	deaths  int // a node ends, with all that it has
	leaves  int // a caller leaves
	lost    int // a message is lost
	unheard int // a reply is lost, and its callers give up
	sleeps  int // a node does nothing for modelSleep
}

// A modelStory is how a world came to be.
type modelStory struct {
	before *modelStory
	now    int64
	text   string
}

func (s *modelStory) lines() (all []string) {
	for ; s != nil; s = s.before {
		all = append(all, fmt.Sprint(time.Duration(s.now-modelBegins)*time.Microsecond, ": ", s.text))
	}
	slices.Reverse(all)
	return all
}

// A modelNode is one program. Its lines are those of the product; their times are told from
// the world's time when the node last did something.
type modelNode struct {
	plan    modelPlan
	at      int64
	starts  *Starts
	callers []modelCaller
	queued  []modelOp // for the next call
	flying  []modelOp // of the call that was made
	reply   *wire.BookReply
	mail    []notify.Turns
	dead    bool
	until   int64 // it sleeps
}

// A modelOp is an op, and whose it is: -1 if nobody waits for it.
type modelOp struct {
	*commit.Op
	caller int
}

type modelState byte

const (
	modelAway    modelState = iota // did not come yet
	modelAsks                      // waits for a reply
	modelInLine                    // waits for its turn
	modelCalled                    // was called, and did not come yet
	modelBooked                    // has a start
	modelStarted                   // had it
	modelGone                      // left
)

// A modelCaller is one caller.
type modelCaller struct {
	state    modelState
	turn     *turn
	start    int64  // by the server's clock
	latest   int64  // a newcomer of the same node that came later starts then; 0: none
	asked    int64  // when it asked last
	answered string // what Redis had then
	heard    bool   // a message came since
}

// copyAt returns a node that may do something now.
func (n *modelNode) copyAt(now int64) *modelNode {
	c := &copier{by: -time.Duration(now-n.at) * time.Microsecond, turns: make(map[*turn]*turn)}
	to := *n
	to.at, to.starts = now, c.starts(n.starts)
	to.callers = slices.Clone(n.callers)
	for i := range to.callers {
		to.callers[i].turn = c.turn(to.callers[i].turn)
	}
	to.queued, to.flying, to.mail = c.ops(n.queued), c.ops(n.flying), slices.Clone(n.mail)
	return &to
}

// A copier copies the lines of a node, and tells their times from another moment.
type copier struct {
	by    time.Duration
	s     *Starts
	turns map[*turn]*turn
}

func (c *copier) time(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.by)
}

func (c *copier) starts(s *Starts) *Starts {
	c.s = &Starts{Options: s.Options, all: make(map[string]*nodeLine), full: fullBudgets{all: make(map[[16]byte]*fullBudget)}, gatherings: make(gatherings)}
	for key, n := range s.all {
		to := *n
		to.starts, to.waiters = c.s, slices.Clone(n.waiters)
		to.timer = time.AfterFunc(time.Hour, func() {}) // the model calls when it is over
		to.heardAt, to.nearAt, to.timerAt = c.time(n.heardAt), c.time(n.nearAt), c.time(n.timerAt)
		for i, t := range to.waiters {
			to.waiters[i] = c.turn(t)
		}
		c.s.all[key] = &to
	}
	return c.s
}

func (c *copier) turn(t *turn) *turn {
	if t == nil || c.turns[t] != nil {
		return c.turns[t]
	}
	to := *t
	to.mu, to.gathering, to.tickets = &c.s.mu, nil, slices.Clone(t.tickets)
	to.nearAt, to.comeBy, to.notBefore, to.deadline = c.time(t.nearAt), c.time(t.comeBy), c.time(t.notBefore), c.time(t.deadline)
	if t.ready != nil && !isClosed(t.ready) {
		to.ready = make(chan struct{})
	}
	c.turns[t] = &to
	return &to
}

func (c *copier) ops(all []modelOp) []modelOp {
	to := slices.Clone(all)
	for i := range to {
		op := *to[i].Op
		if t, ok := op.Turn.(*turn); ok {
			op.Turn = c.turn(t)
		}
		to[i].Op = &op
	}
	return to
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// charge is what all callers want.
func (m *model) charge(cost int) store.Charge {
	c := store.Charge{Budget: store.Budget{Group: "group", Key: [16]byte{1}}, Limit: m.limit, Cost: cost}
	if m.flaw == modelGreedy {
		c.Limit = store.SlidingWindow(m.limit.N()+1, m.limit.Per())
	}
	return c
}
