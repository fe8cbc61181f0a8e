package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/redisstore/testdata/linecheck"
	"github.com/fleetthrottle/throttle/store"
)

// A lineModelWorld is one state of all that takes part. Nothing of it changes once it is made; what
// happens makes another one, which shares all that stayed.
type lineModelWorld struct {
	now   int64 // in microseconds, since a day
	row   string
	lines linecheck.Lines
	known string // what the lines tell
	nodes []*lineModelNode
	used  []int64 // starts that were booked and not given back, once for each unit
	left  lineModelChances
	story *lineModelStory
}

// lineModelChances is how often something may still go wrong.
type lineModelChances struct {
	deaths  int // a node ends, with all that it has
	leaves  int // a caller leaves
	lost    int // a message is lost
	unheard int // a reply is lost, and its callers give up
	sleeps  int // a node does nothing for lineModelSleep
}

// A lineModelStory is how a world came to be.
type lineModelStory struct {
	before *lineModelStory
	now    int64
	text   string
}

func (s *lineModelStory) lines() (all []string) {
	for ; s != nil; s = s.before {
		all = append(all, fmt.Sprint(time.Duration(s.now-lineModelBegins)*time.Microsecond, ": ", s.text))
	}
	slices.Reverse(all)
	return all
}

// A lineModelNode is one program. Its lines are those of the product; their times are told from
// the world's time when the node last did something.
type lineModelNode struct {
	plan    lineModelPlan
	at      int64
	node    *Node
	callers []lineModelCaller
	queued  []lineModelOp // for the next call
	flying  []lineModelOp // of the call that was made
	reply   *wire.BookReply
	mail    []notify.Turns
	dead    bool
	until   int64 // it sleeps
}

// A lineModelOp is an op, and whose it is: -1 if nobody waits for it.
type lineModelOp struct {
	*op
	caller int
}

type lineModelState byte

const (
	lineModelAway    lineModelState = iota // did not come yet
	lineModelAsks                          // waits for a reply
	lineModelInLine                        // waits for its turn
	lineModelCalled                        // was called, and did not come yet
	lineModelBooked                        // has a start
	lineModelStarted                       // had it
	lineModelGone                          // left
)

// A lineModelCaller is one caller.
type lineModelCaller struct {
	state    lineModelState
	turn     *turn
	start    int64  // by the server's clock
	latest   int64  // a newcomer of the same node that came later starts then; 0: none
	asked    int64  // when it asked last
	answered string // what Redis had then
	heard    bool   // a message came since
}

// copyAt returns a node that may do something now.
func (n *lineModelNode) copyAt(now int64) *lineModelNode {
	c := &copier{by: -time.Duration(now-n.at) * time.Microsecond, turns: make(map[*turn]*turn)}
	to := *n
	to.at, to.node = now, c.node(n.node)
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
	turns map[*turn]*turn
}

func (c *copier) time(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.by)
}

func (c *copier) node(n *Node) *Node {
	own := New(n.Options)
	own.queues["group"] = &queue{running: true, sooner: make(chan struct{}, 1)}
	for key, l := range n.lines {
		to := *l
		to.node, to.waiters = own, slices.Clone(l.waiters)
		to.timer = time.AfterFunc(time.Hour, func() {}) // the model calls when it is over
		to.heardAt, to.nearAt, to.timerAt = c.time(l.heardAt), c.time(l.nearAt), c.time(l.timerAt)
		for i, t := range to.waiters {
			to.waiters[i] = c.turn(t)
		}
		own.lines[key] = &to
	}
	return own
}

func (c *copier) turn(t *turn) *turn {
	if t == nil || c.turns[t] != nil {
		return c.turns[t]
	}
	to := *t
	to.gathering, to.tickets = nil, slices.Clone(t.tickets)
	to.nearAt, to.comeBy, to.notBefore, to.deadline = c.time(t.nearAt), c.time(t.comeBy), c.time(t.notBefore), c.time(t.deadline)
	if t.ready != nil && !isClosed(t.ready) {
		to.ready = make(chan struct{})
	}
	c.turns[t] = &to
	return &to
}

func (c *copier) ops(all []lineModelOp) []lineModelOp {
	to := slices.Clone(all)
	for i := range to {
		op := *to[i].op
		op.turn = c.turn(op.turn)
		to[i].op = &op
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
func (m *lineModel) charge(cost int) store.Charge {
	c := store.Charge{Budget: store.Budget{Group: "group", Key: [16]byte{1}}, Limit: m.limit, Cost: cost}
	if m.flaw == lineModelGreedy {
		c.Limit = store.SlidingWindow(m.limit.N()+1, m.limit.Per())
	}
	return c
}
