package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A modelScope says what is explored: who wants what, and how often what may go
// wrong.
type modelScope struct {
	name   string
	limits []store.Limit // of the budgets
	jitter time.Duration
	plans  [][]modelWish // for each node
	ticks  []time.Duration
	most   modelChances
}

// A modelWish is a booking that a node makes, one after the other or together.
type modelWish struct {
	budgets []int
	cost    int
	maxWait time.Duration
}

// modelChances are how often what may still happen. Whatever is no tick is a fault.
type modelChances struct {
	ticks, faults                                           int
	lost, held, slow                                        int // replies, calls, both but for a while
	leaves, cancels, crashes, flushes, stale, pauses, backs int
}

// A modelWorld is one state: what Redis has, what the nodes remember, what is on its
// way, and what happened upstream. It is never changed: moves are made in a copy.
type modelWorld struct {
	clock, truth int64 // the server's time, and the true one
	began        int64
	keys         map[string]modelKey
	nodes        []*modelNode
	late         []modelLetter
	replica      *modelReplica
	starts       []modelStart
	stored       modelStarts // that the server knows of
	paused       int64       // the true end of the last pause
	left         modelChances
	focus        int   // the node that has something to send, or -1
	lost         int   // how often the server forgot
	delay        int64 // of answers and calls: what they tell of counts as so much later than it was
	backed       int64 // how far its clock was set back
	latest       int64 // the true time of the latest start there ever was
	story        *modelStory
}

// modelStarts are a set of what a budget has, by the place of the start in the world's
// list. There are at most two budgets.
type modelStarts uint64

func (s modelStarts) has(i, budget int) bool { return s>>(2*i+budget)&1 == 1 }

func (s modelStarts) with(i int, budgets []int) modelStarts {
	for _, k := range budgets {
		s |= 1 << (2*i + k)
	}
	return s
}

// modelSome marks a set that was told, even if it is empty.
const modelSome modelStarts = 1 << 63

// of is what concerns the budgets of a call.
func (s modelStarts) of(p modelPlan) modelStarts {
	mask := modelSome
	for _, q := range p.asks {
		for i := range q.charges {
			mask |= 0x5555555555555555 << q.charges[i].Budget.Key[0]
		}
	}
	return s & mask
}

// A modelKey is what Redis has under a key, and until when, by its own clock.
type modelKey struct {
	value   string
	expires int64
	know    modelStarts // of a record: those that the server knew of when it wrote it,
	at      int64       // and when that was, by the true time
}

// A modelReplica is what Redis had when it stopped to listen to its master.
type modelReplica struct {
	keys   map[string]modelKey
	stored modelStarts
}

// A modelStart is one that Redis has booked.
type modelStart struct {
	node     string // that asked for it
	budgets  []int
	cost     int
	mark, at int64 // by the server's clock, by the true one
	phase    modelPhase
	inRow    bool    // it was not taken out yet
	missed   [2]bool // by budget: another one was booked by a server that could not know of it
}

// A modelPhase is what became of a start.
type modelPhase byte

const (
	modelBooked  modelPhase = iota // its caller may not know yet
	modelGranted                   // it is used
	modelGiven                     // up: not used
	modelVoid                      // there was never anybody to use it
)

// A modelNode is one program: what a Store of it remembers between calls.
type modelNode struct {
	name   string
	calls  int64
	memory map[string]history.Budget
	closed map[string]time.Time
	queue  *queue
	now    *batch      // what the queue is about to send, again or for the first time
	reply  *modelReply // that is still on its way
	next   int         // wish
	jobs   []*modelJob
	known  modelStarts
}

// A modelJob is a wish that became a question.
type modelJob struct {
	wish  int
	c     *op
	turn  int // how often it asked anew, because its start was over when it heard of it
	start int // that Redis booked for the question, or -1
	state modelJobState
}

type modelJobState byte

const (
	modelWaits modelJobState = iota
	modelServes
	modelLeft
	modelRefused
)

// A modelReply is an answer on its way.
type modelReply struct {
	text string
	sent time.Time
	know modelStarts
	at   int64 // when what it tells of was done, by the true time
}

// A modelLetter is a call that the network may still deliver.
type modelLetter struct {
	args []any
	plan modelPlan
	at   int64 // when it was sent
}

// A modelPlan is what a call is to do, as the node has meant it.
type modelPlan struct {
	name   string // of the node
	number int64  // of the call
	merged []mergedOps
	asks   []modelQuestion
	know   modelStarts // what it tells
}

// A modelQuestion is what a call asks for one caller.
type modelQuestion struct {
	job, turn int // the node's job, if there is one, and how often that asked before
	charges   []store.Charge
	mark      int64 // to give back first
	patient   bool
}

// A modelStory is how a world came to be.
type modelStory struct {
	before *modelStory
	move   string
}

func (s *modelStory) lines() (all []string) {
	for ; s != nil; s = s.before {
		all = append(all, s.move)
	}
	slices.Reverse(all)
	return all
}

// A model explores worlds. It has one [Queues], which is each node in turn: what that
// does without goroutines is what it does here.
type model struct {
	modelScope
	wire    *modelWire
	queues  *Node
	seen    map[[16]byte]struct{}
	broken  error // the first promise that is
	story   []string
	numbers modelTally
	stop    func() bool
}

// mount makes the queues those of the node.
func (m *model) mount(w *modelWorld, i int) (*Node, *modelNode) {
	s, n := m.queues, w.nodes[i]
	s.Names.Node, s.calls, s.History = n.name, n.calls, history.Restore(n.memory)
	s.queues = make(map[string]*queue)
	if n.queue != nil {
		s.queues[modelGroup] = n.queue
	}
	s.Pauses = history.RestorePauseEnds(n.closed)
	m.wire.world = w
	return s, n
}

// unmount takes back what the queues know.
func (n *modelNode) unmount(s *Node) {
	n.calls, n.queue = s.calls, s.queues[modelGroup]
	n.memory, n.closed = s.History.Snapshot(), s.Pauses.Snapshot()
}

// modelGroup is that of all budgets: each node has one queue.
const modelGroup = "group"

// charges are those of a wish.
func (m *model) charges(h modelWish) (all []store.Charge) {
	for _, k := range h.budgets {
		all = append(all, store.Charge{Budget: modelBudgetOf(k), Limit: m.limits[k], Jitter: m.jitter, Cost: h.cost})
	}
	return all
}

// modelBudgetOf is the budget of that place in scope.limits.
func modelBudgetOf(k int) store.Budget {
	return store.Budget{Policy: string(rune('A' + k)), Group: modelGroup, Key: [16]byte{byte(k)}}
}

// op is a booking for a wish.
func (m *model) op(h modelWish) *op {
	op := m.queues.newOp(wire.Reserve, m.charges(h))
	op.MaxWait, op.Class = wire.MaxWait(h.maxWait), 2
	return op
}

// ask queues a caller of a node.
func (m *model) ask(w *modelWorld, i int, c *op) {
	s, n := m.mount(w, i)
	if s.enqueue(c) != nil {
		w.focus = i
	}
	n.unmount(s)
}

// begin has a node want what it wants next.
func (m *model) begin(w *modelWorld, i int) {
	n := w.nodes[i]
	c := m.op(m.plans[i][n.next])
	n.jobs = append(n.jobs, &modelJob{wish: n.next, c: c, start: -1})
	n.next++
	m.ask(w, i, c)
}

// call has a node's queue make its call, or make it again.
func (m *model) call(w *modelWorld, i int, f modelFate) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	w.focus = -1
	if n.now == nil {
		n.now = s.next(modelGroup, n.queue)
		if n.now == nil {
			return
		}
	}
	b := n.now
	if f == modelArrives {
		b.copied = time.Time{} // no other copy is sent
	}
	m.wire.fate, m.wire.plan, m.wire.reply = f, n.plan(b), ""
	if f == modelArrives {
		m.wire.reply, m.wire.know, m.wire.age = n.reply.text, n.reply.know, w.truth-n.reply.at
	}
	err := s.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.Await(context.Background()) })
	if f == modelArrives {
		b.copied = n.reply.sent
	}
	switch {
	case f == modelSlow && errors.Is(err, errModelAway):
		n.reply = &modelReply{m.wire.reply, b.copied, m.wire.know, w.truth - m.wire.age}
		return
	case err == nil:
		n.known |= m.wire.know
		w.delay += m.wire.age
		s.deliver(n.queue, b, nil)
		n.now, n.reply = nil, nil
		m.hear(w, i)
		if len(n.queue.ops) == 0 {
			s.next(modelGroup, n.queue) // ends it
		}
	case !errors.Is(err, errModelAway):
		m.breaks(w, "P8: a call fails: %w", err)
	case !s.noteFailure(n.queue, b, err):
		n.now = nil
	}
}

// plan says what a batch is for.
func (n *modelNode) plan(b *batch) modelPlan {
	p := modelPlan{name: n.name, number: b.number, merged: b.merged, know: n.known}
	for _, c := range b.ops {
		q := modelQuestion{job: -1, charges: c.Charges, mark: c.Start, patient: c.Kind == wire.Reserve && c.MaxWait == wire.AnyWait}
		for k, j := range n.jobs {
			if j.c == c {
				q.job, q.turn = k, j.turn
			}
		}
		p.asks = append(p.asks, q)
	}
	return p
}

// hear has the callers of a node hear what was answered.
func (m *model) hear(w *modelWorld, i int) {
	s, n := m.queues, w.nodes[i]
	for _, j := range n.jobs {
		if j.c == nil || j.state != modelWaits {
			continue
		}
		select {
		case <-j.c.done:
		default:
			continue
		}
		o := j.c.outcome
		if o.State == wire.Unsettled {
			// Whatever the others do meanwhile is a move of its own.
			j.c = m.op(m.plans[i][j.wish])
			j.c.Informed = true
			s.enqueue(j.c)
			continue
		}
		if !o.Booked() {
			j.state, j.c = modelRefused, nil
			continue
		}
		g := j.c.grant()
		if j.start < 0 || w.starts[j.start].mark != o.At {
			m.breaks(w, "P8: node %d is told of a start that is not its own", i)
			return
		}
		if g.Age > m.jitter {
			// Too old: it takes another one instead.
			w.starts[j.start].phase = modelGiven
			c := m.op(m.plans[i][j.wish])
			c.setHandle(store.Handle{Start: o.At})
			j.c, j.start, j.turn = c, -1, j.turn+1
			s.enqueue(c)
			continue
		}
		st := &w.starts[j.start]
		st.phase, st.at = modelGranted, w.truth+wire.Micros(g.Wait)
		w.latest = max(w.latest, st.at)
		j.state, j.c = modelServes, nil
	}
}

// leave has a caller of a node leave before it is answered.
func (m *model) leave(w *modelWorld, i, k int) {
	n := w.nodes[i]
	j := n.jobs[k]
	j.c.left, j.state = true, modelLeft
	n.queue.noteLeft()
	if j.start >= 0 {
		w.starts[j.start].phase = modelGiven
	}
}

// cancel has a node give back a start.
func (m *model) cancel(w *modelWorld, i, k int) {
	j := w.nodes[i].jobs[k]
	st := &w.starts[j.start]
	st.phase, j.state = modelGiven, modelLeft
	c := m.op(m.plans[i][j.wish])
	c.Kind, c.MaxWait, c.Start = wire.Cancel, 0, st.mark
	m.ask(w, i, c)
}

// crash ends a node. Another one takes its place, which knows nothing.
func (m *model) crash(w *modelWorld, i int) {
	old := w.nodes[i]
	for _, j := range old.jobs {
		if j.start < 0 {
			continue
		}
		if st := &w.starts[j.start]; st.phase == modelBooked || st.phase == modelGranted && st.at > w.truth {
			st.phase = modelVoid
		}
	}
	w.nodes[i] = modelNewNode(old.name + "'")
	w.nodes[i].next = old.next
}

func modelNewNode(name string) *modelNode {
	return &modelNode{name: name, memory: make(map[string]history.Budget), closed: make(map[string]time.Time)}
}

// deliver has a call arrive that was long on its way.
func (m *model) deliver(w *modelWorld, k int) {
	l := w.late[k]
	w.late = append(w.late[:k:k], w.late[k+1:]...)
	m.wire.world, m.wire.plan = w, l.plan
	w.delay += w.truth - l.at
	text, err := m.wire.run(m.wire.t.Context(), l.args)
	if err != nil {
		m.breaks(w, "P8: a late call fails: %w", err)
		return
	}
	m.done(w, l.args, l.plan, text)
}

// forget takes the server back to what a modelReplica has, or to nothing.
func (m *model) forget(w *modelWorld, r *modelReplica) {
	w.pass(time.Microsecond) // no server loses anything and serves in no time
	w.keys, w.stored = maps.Clone(r.keys), r.stored
	w.lost++
	w.expire()
}

// copy returns a world that can be changed.
func (w *modelWorld) copy(move string) *modelWorld {
	v := *w
	v.keys = maps.Clone(w.keys)
	v.starts = slices.Clone(w.starts)
	v.late = slices.Clone(w.late)
	v.story = &modelStory{w.story, move}
	v.nodes = make([]*modelNode, len(w.nodes))
	for i, n := range w.nodes {
		v.nodes[i] = n.copy()
	}
	return &v
}

func (n *modelNode) copy() *modelNode {
	v := *n
	same := make(map[*op]*op)
	v.now, v.queue = modelCopyBatch(n.now, same), modelCopyQueue(n.queue, same)
	v.jobs = make([]*modelJob, len(n.jobs))
	for i, j := range n.jobs {
		c := *j
		c.c = modelCopyOp(j.c, same)
		v.jobs[i] = &c
	}
	return &v
}

func modelCopyOp(c *op, same map[*op]*op) *op {
	if c == nil {
		return nil
	}
	if same[c] == nil {
		v := *c
		v.done = make(chan struct{}, 1)
		same[c] = &v
	}
	return same[c]
}

func modelCopyOps(all []*op, same map[*op]*op) []*op {
	v := make([]*op, len(all))
	for i, c := range all {
		v[i] = modelCopyOp(c, same)
	}
	return v
}

func modelCopyBatch(b *batch, same map[*op]*op) *batch {
	if b == nil {
		return nil
	}
	v := *b
	v.ops, v.merged = modelCopyOps(b.ops, same), slices.Clone(b.merged)
	return &v
}

func modelCopyQueue(l *queue, same map[*op]*op) *queue {
	if l == nil {
		return nil
	}
	v := *l
	v.ops, v.lost, v.left = modelCopyOps(l.ops, same), modelCopyBatch(l.lost, same), make(chan struct{}, 1)
	return &v
}

// pass lets time pass. The nodes' clocks stand still in the bubble, so what they
// remember becomes older.
func (w *modelWorld) pass(d time.Duration) {
	w.clock, w.truth = w.clock+wire.Micros(d), w.truth+wire.Micros(d)
	for _, n := range w.nodes {
		n.age(d)
	}
	w.expire()
}

// expire drops the keys that are over.
func (w *modelWorld) expire() {
	over := func(_ string, k modelKey) bool { return k.expires <= w.clock }
	maps.DeleteFunc(w.keys, over)
	if w.replica != nil {
		keys := maps.Clone(w.replica.keys)
		maps.DeleteFunc(keys, over)
		w.replica = &modelReplica{keys, w.replica.stored}
	}
}

// age makes all that a node remembers older.
func (n *modelNode) age(d time.Duration) {
	older := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
	n.memory, n.closed = maps.Clone(n.memory), maps.Clone(n.closed)
	for key, b := range n.memory {
		older(&b.Last.Sent)
		older(&b.Last.By)
		b.Starts = slices.Clone(b.Starts)
		for i := range b.Starts {
			older(&b.Starts[i].By)
		}
		n.memory[key] = b
	}
	for key, end := range n.closed {
		n.closed[key] = end.Add(-d)
	}
	seen := make(map[*op]bool)
	callers := func(all []*op) {
		for _, c := range all {
			if c != nil && !seen[c] {
				seen[c] = true
				older(&c.joined)
				older(&c.first)
				older(&c.sent)
			}
		}
	}
	for _, j := range n.jobs {
		callers([]*op{j.c})
	}
	if n.now != nil {
		older(&n.now.sent)
		older(&n.now.copied)
		callers(n.now.ops)
	}
	if n.queue != nil {
		callers(n.queue.ops)
		if n.queue.lost != nil {
			older(&n.queue.lost.sent)
			callers(n.queue.lost.ops)
		}
	}
	if n.reply != nil {
		r := *n.reply
		older(&r.sent)
		n.reply = &r
	}
}

// A modelMove leads from one world to another.
type modelMove struct {
	name string
	make func(w *modelWorld)
}

// moves are all that can happen next.
func (m *model) moves(w *modelWorld) (all []modelMove) {
	add := func(make func(*modelWorld), name string, args ...any) {
		all = append(all, modelMove{fmt.Sprintf(name, args...), make})
	}
	for i := range w.nodes {
		if w.focus < 0 || w.focus == i {
			m.nodeMoves(w, i, add)
		}
	}
	if w.focus >= 0 {
		return all // nobody sees that a node has begun to want something
	}
	for k := range w.late {
		add(func(w *modelWorld) { m.deliver(w, k) }, "late call %d arrives", k)
	}
	if w.left.ticks > 0 && m.waitsForTime(w) {
		for _, d := range m.ticks {
			add(func(w *modelWorld) { w.left.ticks--; w.pass(d) }, "%v pass", d)
		}
	}
	if w.left.faults > 0 {
		m.faults(w, m.ended(w), add)
	}
	return all
}

// waitsForTime reports whether anything can still change with time.
func (m *model) waitsForTime(w *modelWorld) bool {
	for i, n := range w.nodes {
		if n.now != nil || n.queue != nil && n.queue.running || n.next < len(m.plans[i]) {
			return true
		}
	}
	return len(w.late) > 0 || w.left.cancels > 0 && w.left.faults > 0
}

// nodeMoves are those of one node.
func (m *model) nodeMoves(w *modelWorld, i int, add func(func(*modelWorld), string, ...any)) {
	n := w.nodes[i]
	idle := n.queue == nil || !n.queue.running
	if n.next < len(m.plans[i]) && m.turn(w, i) && (idle || len(n.queue.ops) < 2) {
		add(func(w *modelWorld) { m.begin(w, i) }, "node %d wants %+v", i, m.plans[i][n.next])
	}
	if n.reply != nil {
		add(func(w *modelWorld) { m.call(w, i, modelArrives) }, "node %d gets its answer", i)
		add(func(w *modelWorld) { w.nodes[i].reply = nil; m.fails(w, i) }, "node %d does not wait for its answer", i)
	} else if !idle {
		add(func(w *modelWorld) { m.call(w, i, modelFine) }, "node %d calls", i)
		if f := w.left; f.faults > 0 {
			if f.lost > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.lost--; m.call(w, i, modelLost) }, "node %d calls, the answer is lost", i)
			}
			if f.held > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.held--; m.call(w, i, modelHeld) }, "node %d calls, the call is held", i)
			}
			if f.slow > 0 {
				add(func(w *modelWorld) { w.left.faults--; w.left.slow--; m.call(w, i, modelSlow) }, "node %d calls, the answer is slow", i)
			}
		}
	}
}

// turn reports whether a node may begin: of those that want the same, the first
// begins first.
func (m *model) turn(w *modelWorld, i int) bool {
	return i == 0 || w.nodes[i].next > 0 || fmt.Sprint(m.plans[i]) != fmt.Sprint(m.plans[i-1]) || w.nodes[i-1].next > 0
}

// faults are what may go wrong between calls.
func (m *model) faults(w *modelWorld, ended bool, add func(func(*modelWorld), string, ...any)) {
	fault := func(count func(*modelChances) *int, make func(*modelWorld), name string, args ...any) {
		if *count(&w.left) > 0 {
			add(func(w *modelWorld) { w.left.faults--; *count(&w.left)--; make(w) }, name, args...)
		}
	}
	for i, n := range w.nodes {
		for k, j := range n.jobs {
			switch {
			case j.state == modelWaits && n.now != nil:
				fault(func(c *modelChances) *int { return &c.leaves }, func(w *modelWorld) { m.leave(w, i, k) }, "caller %d of node %d leaves", k, i)
			case j.state == modelServes:
				fault(func(c *modelChances) *int { return &c.cancels }, func(w *modelWorld) { m.cancel(w, i, k) }, "node %d gives back start %d", i, k)
			}
		}
		if n.calls > 0 && !ended {
			fault(func(c *modelChances) *int { return &c.crashes }, func(w *modelWorld) { m.crash(w, i) }, "node %d crashes", i)
		}
		if ended {
			continue
		}
		fault(func(c *modelChances) *int { return &c.pauses }, func(w *modelWorld) { m.pause(w, i) }, "node %d pauses budget 0", i)
	}
	if ended {
		return
	}
	if len(w.keys) > 0 {
		fault(func(c *modelChances) *int { return &c.flushes }, func(w *modelWorld) { m.forget(w, &modelReplica{}) }, "the server forgets everything")
		fault(func(c *modelChances) *int { return &c.backs }, func(w *modelWorld) { m.back(w, 3*time.Second) }, "the clock steps back by 3s")
		fault(func(c *modelChances) *int { return &c.backs }, func(w *modelWorld) { m.back(w, time.Hour) }, "the clock steps back by 1h")
	}
	switch {
	case w.left.stale == 0:
	case w.replica == nil:
		add(func(w *modelWorld) { w.replica = &modelReplica{maps.Clone(w.keys), w.stored} }, "the replica lags from now on")
	default:
		fault(func(c *modelChances) *int { return &c.stale }, func(w *modelWorld) { m.forget(w, w.replica); w.replica = nil }, "the replica takes over")
	}
}

// fails is an answer that does not come.
func (m *model) fails(w *modelWorld, i int) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	if !s.noteFailure(n.queue, n.now, errModelAway) {
		n.now = nil
	}
}

// modelPauseTime is how long a pause is.
const modelPauseTime = 5 * time.Second

// pause has a node close the first budget.
func (m *model) pause(w *modelWorld, i int) {
	s, n := m.mount(w, i)
	defer n.unmount(s)
	m.wire.fate, m.wire.quiet = modelFine, true
	defer func() { m.wire.quiet = false }()
	c := m.charges(modelWish{budgets: []int{0}, cost: 1})[0]
	r, err := conn.AskOnce(m.wire.t.Context(), s.Conn, func() wire.Request[wire.PauseReply] {
		return wire.PauseRequest{Key: m.key(0), Charge: &c, Shared: s.Names.Shared(), Length: modelPauseTime}
	})
	if err != nil {
		m.breaks(w, "P11: no pause: %w", err)
	}
	now := time.Now()
	s.Pauses.Note(m.key(0), now.Add(wire.Wait(r.End-r.Now)), now)
	w.paused = w.truth + wire.Micros(modelPauseTime)
}

// back sets the server's clock back. What is over by then is not there again.
func (m *model) back(w *modelWorld, d time.Duration) {
	w.clock, w.backed = w.clock-wire.Micros(d), w.backed+wire.Micros(d)
}

// settle ends a world: all are served, and when the last start is over the next
// one needs not wait.
func (m *model) settle(w *modelWorld) {
	for i, n := range w.nodes {
		for _, j := range n.jobs {
			if j.state == modelWaits {
				m.breaks(w, "P5: a caller of node %d is never served", i)
			}
		}
		m.judgeGiven(w, n)
	}
	last := w.copy("all is over")
	over := max(0, last.latest-last.truth) + m.longest() + last.doubt()
	if last.paused > 0 {
		over = max(over, last.paused-last.truth) + 3*m.longest()
	}
	last.pass(time.Duration(over) * time.Microsecond)
	for k, l := range m.limits {
		if l.Kind() == store.KindFixedWindow {
			per := wire.Micros(l.Per())
			last.pass(time.Duration((per-last.truth%per)%per) * time.Microsecond)
		}
		v := last.copy("somebody new wants all")
		v.nodes = append(v.nodes, modelNewNode("last"))
		i := len(v.nodes) - 1
		m.plans = append(m.plans, []modelWish{{[]int{k}, l.Capacity(), -1}})
		if l.Kind() == store.KindLeakyBucket {
			m.plans[i][0].cost = 1
		}
		m.begin(v, i)
		m.call(v, i, modelFine)
		if j := v.nodes[i].jobs[0]; m.broken == nil && (j.start < 0 || v.starts[j.start].at != v.truth) {
			m.breaks(v, "P5: budget %d is not free when all is over", k)
		}
		m.plans = m.plans[:i]
	}
}
