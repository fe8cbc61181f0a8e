package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
	latest   int64  // a newcomer of the same node that came later starts then. Zero means none.
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

// A lineModelWriter writes a world down, such that two worlds that can have no different future are
// the same. Nodes are interchangeable: no row knows them.
type lineModelWriter struct{ out []byte }

func (k *lineModelWriter) num(all ...int64) {
	for _, v := range all {
		k.out = binary.AppendVarint(k.out, v)
	}
}

func (k *lineModelWriter) flag(all ...bool) {
	for _, b := range all {
		v := int64(0)
		if b {
			v = 1
		}
		k.num(v)
	}
}

func (k *lineModelWriter) text(s string) {
	k.num(int64(len(s)))
	k.out = append(k.out, s...)
}

// keyOf names a world.
func (m *lineModel) keyOf(w *lineModelWorld) [32]byte {
	k := new(lineModelWriter)
	k.num(w.now)
	k.text(w.row)
	k.num(int64(w.left.deaths), int64(w.left.leaves), int64(w.left.lost), int64(w.left.unheard), int64(w.left.sleeps))
	k.text(w.known)
	k.num(w.used...)
	var nodes []string
	for _, n := range w.nodes {
		nodes = append(nodes, n.key(w.now))
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		k.text(n)
	}
	return sha256.Sum256(k.out)
}

// key names a node.
func (n *lineModelNode) key(now int64) string {
	if n.dead {
		return ""
	}
	k := new(lineModelWriter)
	k.num(int64(n.plan.cost), int64(n.plan.priority), max(0, n.until-now))
	for i := range n.callers {
		c := &n.callers[i]
		k.num(int64(c.state))
		if c.state >= lineModelStarted {
			continue
		}
		k.num(c.start, c.latest)
		k.flag(c.asked == now, c.asked == now && c.heard, c.turn != nil)
		if c.asked == now {
			k.text(c.answered)
		}
		if c.turn != nil {
			k.turn(n, c.turn)
		}
	}
	for _, ops := range [][]lineModelOp{n.queued, n.flying} {
		k.num(int64(len(ops)))
		for _, op := range ops {
			k.num(int64(op.Kind), int64(op.caller), op.Start, wire.Micros(op.Again))
			k.tickets(op.Tickets)
		}
	}
	if n.reply != nil {
		for _, o := range n.reply.Outcomes {
			k.num(int64(o.State), o.At)
			k.tickets(o.Tickets)
		}
		for _, b := range n.reply.Budgets {
			k.text(fmt.Sprint(b.Line))
		}
	}
	for _, t := range n.mail {
		k.num(t.Line)
		k.num(t.Cuts[:]...)
	}
	for _, key := range slices.Sorted(maps.Keys(n.node.lines)) {
		l := n.node.lines[key]
		k.num(l.id, l.cost, l.waiting)
		k.flag(l.hurry, l.unasked)
		k.times(n, l.heardAt, l.nearAt, l.timerAt)
		for _, t := range l.waiters {
			k.num(t.number)
		}
	}
	return string(k.out)
}

func (k *lineModelWriter) turn(n *lineModelNode, t *turn) {
	k.tickets(t.tickets)
	k.flag(t.inLine, t.started, t.lineKey != "", t.waits > 1)
	if t.lineKey != "" {
		k.num(t.number)
		k.times(n, t.nearAt, t.comeBy, t.notBefore)
	}
}

func (k *lineModelWriter) tickets(all []wire.Ticket) {
	k.num(int64(len(all)))
	for _, t := range all {
		k.num(t.Line, t.Number, int64(t.State), t.Round)
	}
}

func (k *lineModelWriter) times(n *lineModelNode, all ...time.Time) {
	for _, t := range all {
		k.num(n.due(t))
	}
}

// A lineModelServer runs the scripts of a real server, in the world in which a call is made.
type lineModelServer struct {
	t       *testing.T
	client  redis.UniversalClient
	script  wire.Script
	row     string // the key
	results map[[32]byte]lineModelResult
	runs    int
}

// A lineModelResult is what a call did to a row at a time. It is the same each time.
type lineModelResult struct {
	row, reply string
	args       []any
}

const lineModelRecord = "record"

func newLineModelServer(t *testing.T, c redis.UniversalClient, script wire.Script, row string) *lineModelServer {
	require.NoError(t, c.ScriptLoad(t.Context(), script.Source()).Err())
	require.NoError(t, c.FlushDB(t.Context()).Err())
	return &lineModelServer{t: t, client: c, script: script, row: row, results: make(map[[32]byte]lineModelResult)}
}

// Key implements [wire.Budgets].
func (s *lineModelServer) Key(*store.Budget) string { return s.row }

// Known implements [wire.Budgets]. The model's server forgets nothing, so nobody need know more.
func (s *lineModelServer) Known(*store.Budget, string, wire.Boundaries) wire.Known {
	return wire.Known{}
}

// call makes a call of some ops in a world.
func (s *lineModelServer) call(w *lineModelWorld, ops []*wire.Op) (*wire.BookReply, lineModelResult) {
	r := &wire.BookRequest{Record: lineModelRecord, Number: 1, Ops: ops, Shared: "news"}
	call := r.Write(wire.Boundaries{}, s)
	copy(call.Frame[8:16], make([]byte, 8))
	name := sha256.Sum256(slices.Concat(wire.Frame(nil).Add(w.now), call.Frame, []byte(w.row)))
	copy(call.Frame[8:16], wire.Frame(nil).Add(int64(binary.LittleEndian.Uint64(name[:])>>25+1))) // the seed
	done, ok := s.results[name]
	if !ok {
		done = s.run(w, call)
		s.results[name] = done
	}
	f := wire.Frame(done.reply)
	require.Equal(s.t, int64(wire.Done), f.At(0))
	reply, err := call.Read(f.From(1))
	require.NoError(s.t, err)
	return &reply, done
}

// run runs the script.
func (s *lineModelServer) run(w *lineModelWorld, call *wire.BookCall) lineModelResult {
	ctx, pipe := s.t.Context(), s.client.Pipeline()
	if w.row != "" {
		pipe.Set(ctx, s.row, w.row, 0)
	} else {
		pipe.Del(ctx, s.row)
	}
	pipe.Del(ctx, lineModelRecord)
	args := []any{"evalsha", s.script.Hash(), len(call.Keys)}
	for _, k := range call.Keys {
		args = append(args, k)
	}
	args = append(args, call.Args(fmt.Sprint(w.now))...)
	cmd := pipe.Do(ctx, args...)
	row := pipe.Get(ctx, s.row)
	if _, err := pipe.Exec(ctx); !errors.Is(err, redis.Nil) {
		require.NoError(s.t, err)
	}
	s.runs++
	reply, err := cmd.Text()
	require.NoError(s.t, err)
	return lineModelResult{row.Val(), reply, args}
}

// books queues what a caller asks for.
func (m *lineModel) books(w *lineModelWorld, n *lineModelNode, k int) {
	c := &n.callers[k]
	op := keepOp(wire.Reserve, m.charge(n.plan.cost))
	b := &store.Booking{Charges: op.Charges, MaxWait: -1, Horizon: lineModelHorizon, Returns: c.turn != nil, Priority: n.plan.priority}
	if c.turn != nil {
		b.Turn = c.turn
	}
	op.MaxWait, op.Horizon, op.Class = wire.MaxWait(b.MaxWait), b.Horizon, classOf(b.Priority)
	n.node.join(op, b)
	n.queued = append(n.queued, lineModelOp{op, k})
	c.state = lineModelAsks
}

// settle takes note of what a node's lines did by themselves.
func (m *lineModel) settle(n *lineModelNode) {
	n.node.mu.Lock()
	defer n.node.mu.Unlock()
	for _, l := range n.node.lines {
		l.timer.Stop()
	}
	for _, op := range postedLocked(n.node) {
		n.queued = append(n.queued, lineModelOp{op, -1})
	}
	for i := range n.callers {
		if c := &n.callers[i]; c.state == lineModelInLine && (isClosed(c.turn.ready) || m.flaw == lineModelImpatient) {
			c.state = lineModelCalled
		}
	}
}

// calls makes the call of what is queued, in the order of commit.
func (m *lineModel) calls(w *lineModelWorld, n *lineModelNode) {
	rank := func(op lineModelOp) int64 {
		switch {
		case op.Kind != wire.Reserve:
			return 0
		case op.turn != nil:
			return op.Class<<40 + op.turn.number
		}
		return 1 << 53
	}
	slices.SortStableFunc(n.queued, func(a, b lineModelOp) int { return cmp.Compare(rank(a), rank(b)) })
	n.flying, n.queued = n.queued, nil
	var ops []*wire.Op
	for _, op := range n.flying {
		own := op.Op
		own.Callers = 1
		ops = append(ops, &own)
	}
	before := w.row
	reply, done := m.server.call(w, ops)
	n.reply, w.row = reply, done.row
	w.lines = w.lines.Clone()
	read, err := linecheck.Read(done.args, done.reply)
	if err == nil {
		err = w.lines.Check(read)
		w.known = w.lines.String()
	}
	if err != nil {
		m.breaks(w, "%w: %v", errAnswer, err)
	}
	m.judgeCall(w, n, before)
	if l := reply.Budgets[0].Line; l != nil && l.Hurry == summonNow {
		for i, o := range w.nodes {
			if o != n && !o.dead && len(o.node.lines) > 0 {
				own := o.copyAt(w.now)
				own.mail = append(own.mail, notify.Turns{Key: m.server.row, Line: l.ID, Cuts: l.Cuts})
				w.nodes[i] = own
			}
		}
	}
}

// answered takes in the reply to a call, as commit does.
func (m *lineModel) answered(w *lineModelWorld, n *lineModelNode) {
	r := n.reply
	for i, op := range n.flying {
		o := r.Outcomes[i]
		op.outcome = outcome{Outcome: o, Wait: o.At - r.Now}
	}
	for _, b := range r.Budgets {
		n.node.observeLine(b.Key, b.Line)
	}
	for i, op := range n.flying {
		n.node.startAnswered(op.op)
		if op.caller < 0 {
			continue
		}
		c := &n.callers[op.caller]
		switch o := &r.Outcomes[i]; o.State {
		case wire.Booked:
			c.state, c.start = lineModelBooked, o.At
		case wire.InLine:
			c.state = lineModelInLine
		default:
			m.breaks(w, "%w: a caller that waits for as long as it takes is refused: %+v", errAnswer, o)
		}
		c.turn = op.turn
	}
	n.flying, n.reply = nil, nil
}

// moves returns what can happen next in a world.
func (m *lineModel) moves(w *lineModelWorld) (all []*lineModelWorld) {
	busy := false
	for i, n := range w.nodes {
		if n.dead || n.until > w.now {
			continue
		}
		// do lets the node do something.
		do := func(text string, what func(v *lineModelWorld, n *lineModelNode)) {
			v := *w
			v.nodes = slices.Clone(w.nodes)
			own := n.copyAt(w.now)
			v.nodes[i] = own
			v.story = &lineModelStory{w.story, w.now, fmt.Sprintf("node %d: %s", i, text)}
			what(&v, own)
			m.settle(own)
			all = append(all, &v)
		}
		m.callerMoves(w, n, do, &busy)
		if len(n.queued) > 0 && n.reply == nil {
			busy = true
			do("calls", func(v *lineModelWorld, n *lineModelNode) { m.calls(v, n) })
		}
		if n.reply != nil {
			busy = true
			do("is answered", func(v *lineModelWorld, n *lineModelNode) { m.answered(v, n) })
			if w.left.unheard > 0 {
				do("is never answered", func(v *lineModelWorld, n *lineModelNode) {
					v.left.unheard--
					for _, op := range n.flying {
						if op.caller >= 0 {
							n.callers[op.caller].state = lineModelGone
						}
					}
					n.flying, n.reply = nil, nil
				})
			}
		}
		if len(n.mail) > 0 {
			busy = true
			do("hears of a turn", func(_ *lineModelWorld, n *lineModelNode) {
				said := n.mail[0]
				n.mail = n.mail[1:]
				for k := range n.callers {
					n.callers[k].heard = true
				}
				n.node.Turns(said)
			})
			if w.left.lost > 0 {
				do("misses a message", func(v *lineModelWorld, n *lineModelNode) {
					v.left.lost--
					n.mail = n.mail[1:]
				})
			}
		}
		for _, l := range n.node.lines {
			if n.due(l.timerAt) <= w.now && m.flaw != lineModelNoTimers {
				busy = true
				do("its timer is over", func(_ *lineModelWorld, n *lineModelNode) {
					n.node.lines[l.key].due()
				})
			}
		}
		if w.left.deaths > 0 && !n.over() {
			do("dies", func(v *lineModelWorld, n *lineModelNode) {
				v.left.deaths--
				*n = lineModelNode{dead: true, node: m.newNode()}
			})
		}
		if w.left.sleeps > 0 && !n.over() {
			do("sleeps", func(v *lineModelWorld, n *lineModelNode) {
				v.left.sleeps--
				n.until = w.now + wire.Micros(lineModelSleep)
			})
		}
	}
	if !busy {
		all = m.later(w, all)
	}
	return all
}

// callerMoves adds what callers of a node can do.
func (m *lineModel) callerMoves(w *lineModelWorld, n *lineModelNode, do func(string, func(*lineModelWorld, *lineModelNode)), busy *bool) {
	came := false
	for k := range n.callers {
		c := &n.callers[k]
		switch c.state {
		case lineModelAway:
			if came {
				continue // the callers of a node that did not come are alike
			}
			came = true
			*busy = *busy || w.now >= lineModelBegins+wire.Micros(m.lastArrival)
			do(fmt.Sprint("caller ", k, " comes"), func(v *lineModelWorld, n *lineModelNode) { m.books(v, n, k) })
		case lineModelCalled:
			*busy = true
			do(fmt.Sprint("caller ", k, " comes again"), func(v *lineModelWorld, n *lineModelNode) { m.books(v, n, k) })
		}
		if w.left.leaves == 0 {
			continue
		}
		switch c.state {
		case lineModelInLine, lineModelCalled:
			do(fmt.Sprint("caller ", k, " leaves"), func(v *lineModelWorld, n *lineModelNode) {
				v.left.leaves--
				c := &n.callers[k]
				if op := n.node.leaveLines(c.turn); op != nil {
					n.queued = append(n.queued, lineModelOp{op, -1})
				}
				c.state, c.turn = lineModelGone, nil
			})
		case lineModelBooked:
			do(fmt.Sprint("caller ", k, " gives its start back"), func(v *lineModelWorld, n *lineModelNode) {
				v.left.leaves--
				c := &n.callers[k]
				op := keepOp(wire.Cancel, m.charge(n.plan.cost))
				op.Start = c.start
				n.queued = append(n.queued, lineModelOp{op, -1})
				c.state, c.turn = lineModelGone, nil
			})
		}
	}
}

// due is when a time of the node is, by the world's.
func (n *lineModelNode) due(t time.Time) int64 {
	return n.at + wire.Micros(time.Until(t))
}

// over reports whether the node wants nothing more.
func (n *lineModelNode) over() bool {
	for _, c := range n.callers {
		if c.state < lineModelStarted {
			return false
		}
	}
	return len(n.queued) == 0 && n.reply == nil
}

// later lets time pass until something is due.
func (m *lineModel) later(w *lineModelWorld, all []*lineModelWorld) []*lineModelWorld {
	next, waits := int64(1<<60), false
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		if n.until > w.now {
			next = min(next, n.until)
		}
		for _, l := range n.node.lines {
			if at := n.due(l.timerAt); at > w.now && m.flaw != lineModelNoTimers {
				next = min(next, at)
			}
		}
		for _, c := range n.callers {
			switch c.state {
			case lineModelAway:
				next = min(next, w.now+lineModelArrivals-(w.now-lineModelBegins)%lineModelArrivals)
			case lineModelBooked:
				next = min(next, c.start)
			}
			waits = waits || c.state < lineModelStarted
		}
	}
	if !waits {
		m.judgeEnd(w, true)
		return all
	}
	if next == 1<<60 {
		m.breaks(w, "%w: nothing will ever call it", errForgotten)
		return all
	}
	v := *w
	v.now, v.nodes = next, slices.Clone(w.nodes)
	v.story = &lineModelStory{w.story, next, "time has passed"}
	for i, n := range v.nodes {
		own := *n
		own.callers = slices.Clone(n.callers)
		for k := range own.callers {
			if c := &own.callers[k]; c.state == lineModelBooked && c.start <= next {
				c.state = lineModelStarted
			}
		}
		v.nodes[i] = &own
	}
	m.judgeEnd(&v, false)
	return append(all, &v)
}
