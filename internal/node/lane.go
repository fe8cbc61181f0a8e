package node

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// batchMost is how many ops share a step at the most, so that other nodes do not wait for long.
const batchMost = 512

// tidyFrom is how long a queue is, at the least, from which ops are taken out whose callers have left: a step may
// take long if the backend cannot be reached.
const tidyFrom = 4096

// owedEvery is how often what is owed is tried again: other callers may wait for what it gives back.
const owedEvery = time.Second

// awayEvery is how often a backend is asked that is away.
const awayEvery = 250 * time.Millisecond

// renewMost is how many leases are renewed in one step.
const renewMost = 64

// A lane makes the steps of a node, one after another: it has the queue of what callers want done, and the memory.
//
// Locks: that of the state is taken within a step of the backend, and that of the lane within that of the
// state. Neither is held while the backend waits for other nodes.
type lane struct {
	backend    Backend
	renewEvery time.Duration         // how often leases are renewed of what is held
	tickEvery  time.Duration         // how often tick is called
	away       atomic.Pointer[error] // why the backend is away; nil: it is not
	rowsMost   int                   // about how many rows a step has; 0: any number

	mu           sync.Mutex
	queue        []*op
	tidied       int   // how long the queue was when ops of callers that have left were taken out of it
	running      bool  // a goroutine makes steps
	heard        Heard // what other nodes have done
	look         bool  // other nodes have news
	missed       Heard // what the node could not take in, for the next retry
	retryPending bool  // the look that retry has promised is not made yet

	state  sync.Mutex
	step   step
	memory memory
	// owed are undos that could not be done. What they give back was granted in steps that were saved, so there are no more
	// of them than callers had grants: their number needs no limit.
	owed        []*op
	payPending  bool      // pay is called later
	tickPending bool      // tick is called later
	renewed     time.Time // when leases of what is held were renewed last
	stop        func()
}

func newLane(b Backend, o Options) *lane {
	isDead := func(int64) bool { return false }
	if m, ok := b.(DeathObserver); ok {
		isDead = m.IsDead
	}
	lease := time.Duration(o.Node.Lease) * time.Microsecond
	l := &lane{backend: b, renewEvery: lease / 10, tickEvery: lease / 10, rowsMost: o.Rows, memory: newMemory(o, isDead)}
	if lease < farthest.Wait { // else a test is under way in which a century may pass
		l.tickEvery = min(l.tickEvery, ledger.Recall)
	}
	l.step = newStep(&l.memory)
	return l
}

// post has an op done in one of the next steps.
func (l *lane) post(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= max(tidyFrom, 2*l.tidied) {
		l.queue = slices.DeleteFunc(l.queue, (*op).isPointless)
		l.tidied = len(l.queue)
	}
	l.queue = append(l.queue, o)
	l.start()
}

// start has steps made, if there is anything to do. The lane is locked.
func (l *lane) start() {
	if !l.running {
		l.running = true
		go l.run()
	}
}

// wakeUp looks for news of other nodes.
func (l *lane) wakeUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = true
	l.start()
}

// hear takes in news of other nodes.
func (l *lane) hear(h Heard) {
	if h.Empty() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard.Add(h)
	l.start()
}

// retry has the node look again soon because a look or a step failed, and take in the news that it could not take in.
func (l *lane) retry(h Heard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed.Add(h)
	if l.retryPending {
		return
	}
	l.retryPending = true
	time.AfterFunc(awayEvery, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard.Add(l.missed)
		l.missed, l.retryPending, l.look = Heard{}, false, true
		l.start()
	})
}

// warn tells watches of news before the node takes them in: who asks about a start waits for that.
func (l *lane) warn(n ledger.News) {
	if len(n.Useless) == 0 {
		return
	}
	l.state.Lock()
	defer l.state.Unlock()
	for _, u := range n.Useless {
		l.memory.warn(u)
	}
}

// run makes steps until there is nothing to do.
func (l *lane) run() {
	var batch []*op
	for {
		runtime.Gosched() // callers that are about to ask share the step
		var heard Heard
		l.mu.Lock()
		n := l.batchSize()
		batch = append(batch[:0], l.queue[:n]...)
		rest := copy(l.queue, l.queue[n:])
		clear(l.queue[rest:])
		l.queue = l.queue[:rest]
		heard, l.heard = l.heard, Heard{}
		look := l.look
		l.look = false
		if n == 0 && heard.Empty() && !look {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		l.state.Lock()
		heard = l.memory.concerning(heard)
		look = look && l.memory.waits()
		l.state.Unlock()
		switch {
		case n > 0 || !heard.Empty():
			l.make(batch, heard, look)
		case look:
			h, err := l.backend.Read(context.Background(), nil, func(Rows) {})
			if l.hear(h); err != nil {
				l.retry(Heard{})
			}
		}
		clear(batch)
	}
}

// batchSize returns how many of the ops share the next step. The lane is locked.
func (l *lane) batchSize() int {
	n := min(len(l.queue), batchMost)
	if l.rowsMost <= 0 {
		return n
	}
	rows := 0
	for i := range n {
		if rows += l.queue[i].size(); rows > l.rowsMost && i > 0 {
			return i
		}
	}
	return n
}

// make makes a step for a batch of ops and for news. A step looks, too; look says that this one has to.
func (l *lane) make(batch []*op, heard Heard, look bool) {
	var keys []ledger.Key
	for _, o := range batch {
		if o.books && o.hasLeft() {
			o.decide = withdraw
		}
		keys = o.budgets(keys)
	}
	keys = append(keys, heard.News.Moved...)
	later, err := l.backend.Step(keys, func(rows Rows) Told {
		l.state.Lock()
		defer l.state.Unlock()
		l.step.begin(rows)
		for _, o := range batch {
			o.asked, o.received = rows.Asked(), rows.Received()
			o.decide(&l.step, o)
		}
		l.step.hear(heard.News)
		if heard.Lost {
			l.step.recover()
		}
		l.step.settle()
		return l.step.told
	})
	switch {
	case err == nil:
		l.away.Store(nil)
		l.saved()
	case errors.Is(err, ErrAway):
		l.away.Store(&err)
		var waiting []*op
		waiting, batch = partition(batch, (*op).canWait)
		l.failed(batch, false)
		defer l.wait(waiting, err)
	default:
		l.failed(batch, errors.Is(err, ErrUnsure))
	}
	if err != nil && (look || !heard.Empty()) {
		l.retry(heard)
	}
	for _, o := range batch {
		if o.done == nil {
			continue // the node's own
		}
		if !o.tell(err) && o.books && err == nil {
			l.giveBack(o)
		}
	}
	l.hear(later)
}

// partition returns the ops of which something is true, and the others.
func partition(all []*op, isTrue func(*op) bool) (matching, others []*op) {
	for _, o := range all {
		if isTrue(o) {
			matching = append(matching, o)
		} else {
			others = append(others, o)
		}
	}
	return matching, others
}

// wait has ops done in a later step, because the backend is away. There are only a few steps a second while it is.
func (l *lane) wait(ops []*op, err error) {
	for _, o := range ops {
		o.tellAway(err)
	}
	time.Sleep(awayEvery)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(ops, l.queue...)
}

// giveBack gives back what was booked for a caller that has left.
func (l *lane) giveBack(o *op) {
	if !o.grant.OK && o.grant.Ready == nil {
		return
	}
	l.post(ownUndo(cancel, o))
}

// saved lets the memory, and callers, know what a step has done whose rows were saved.
func (l *lane) saved() {
	l.state.Lock()
	defer l.state.Unlock()
	st := &l.step
	st.save()
	for _, ready := range st.wake {
		close(ready)
	}
	for _, u := range st.useless {
		l.memory.warn(u)
	}
	for key, later := range st.later {
		l.lookAgain(key, later)
	}
	st.forget()
	l.keepAlive()
}

// deliver gives a caller the start that was booked for it while it waited. The caller asks nobody for that: the step that has booked was saved, and
// its answer is as old as if the step had been the caller's own. It returns false if there is no such start, if it is too old, or if something has
// happened to it since.
func (l *lane) deliver(b *store.Booking) (g store.Grant, ok bool) {
	w, _ := b.Turn.(*waiter)
	if w == nil {
		return g, false
	}
	l.state.Lock()
	defer l.state.Unlock()
	if w.now == nil || w.next != nil || l.memory.recent.isAbout(b.Charges, &w.now.grant) {
		return g, false
	}

	a := &w.reply
	now := a.now + ledger.Micros(time.Since(a.received))
	if g, ok = w.now.Deliver(b, now, latest(b)); ok {
		// The start may be as much earlier as the answer to the question for the time took. Nothing has changed between that answer and the
		// end of the step.
		g.Turn = w
		g.Age += max(time.Microsecond, a.received.Sub(a.asked))
	}
	return g, ok
}

// failed forgets a step, and keeps what must be done all the same: see owedBy.
func (l *lane) failed(batch []*op, unsure bool) {
	l.state.Lock()
	defer l.state.Unlock()
	l.step.forget()
	for _, o := range batch {
		if undo := owedBy(o, unsure); undo != nil {
			l.owed = append(l.owed, undo)
			if unsure {
				l.memory.doubts++
			}
		}
	}
	if len(l.owed) > 0 && !l.payPending {
		l.payPending = true
		time.AfterFunc(owedEvery, l.pay)
	}
}

// pay has done what is owed.
func (l *lane) pay() {
	l.state.Lock()
	owed := l.owed
	l.owed, l.payPending = nil, false
	l.state.Unlock()
	for _, o := range owed {
		l.post(o)
	}
}

// lookAgain has a line served later; below 0: not again. The state is locked.
func (l *lane) lookAgain(key ledger.Key, later time.Duration) {
	switch t := l.memory.timers[key]; {
	case later < 0 && t != nil:
		t.Stop()
		delete(l.memory.timers, key)
	case later < 0:
	case t != nil:
		t.Reset(later)
	default:
		l.memory.timers[key] = time.AfterFunc(later, func() { l.hear(Heard{News: ledger.News{Moved: []ledger.Key{key}}}) })
	}
}

// keepAlive listens, and has leases renewed, as long as that is of use. The state is locked.
func (l *lane) keepAlive() {
	if l.memory.isIdle() {
		return // tick ends what is of no use
	}
	if l.stop == nil {
		stop, err := l.backend.Listen(l.wakeUp)
		if err == nil {
			l.stop = stop
			l.wakeUp() // others may have told something meanwhile
		}
	}
	l.tickLater()
}

// tickLater has tick called. The state is locked.
func (l *lane) tickLater() {
	if !l.tickPending {
		l.tickPending = true
		time.AfterFunc(l.tickEvery, l.tick)
	}
}

// renews reports whether the queue has leases that are to be renewed.
func (l *lane) renews() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.queue, func(o *op) bool { return len(o.keys) > 0 })
}

// tick renews leases, and serves lines whose news may have been lost. Lines are told of waiters without a place more often than a long
// lease needs: see [ledger.Recall].
func (l *lane) tick() {
	l.state.Lock()
	l.tickPending = false
	idle, stop := l.memory.isIdle(), l.stop
	var leased []ledger.Key
	if !l.renews() { // else the database is slow, and callers must not wait for more and more of it
		held := time.Since(l.renewed) >= l.renewEvery
		if held {
			l.renewed = time.Now()
		}
		leased = l.memory.leased(held)
	}
	if idle {
		l.stop = nil
	} else {
		stop = nil
		l.tickLater()
	}
	l.state.Unlock()
	if stop != nil {
		stop()
	}
	if !idle && len(leased) == 0 {
		l.wakeUp() // for news that were lost
	}
	most := renewMost
	if l.rowsMost > 0 {
		most = min(most, l.rowsMost)
	}
	for keys := range slices.Chunk(leased, most) {
		l.post(&op{decide: func(st *step, o *op) { st.renew(o.keys) }, keys: keys})
	}
}
