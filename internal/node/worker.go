package node

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// maxLines is the largest number of lines that a node goes through at once because it was told of news. With more lines it reads the news first.
const maxLines = 4

// maxBatch is how many ops share a step at the most, so that other nodes do not wait for long.
const maxBatch = 512

// tidyFrom is the length from which on a queue is searched for ops of callers that have left, to take them out: it may
// grow for as long as the backend cannot be reached.
const tidyFrom = 4096

// owedEvery is how often owed ops are tried again: callers may wait for the starts that they give back.
const owedEvery = time.Second

// awayEvery is how often a backend is asked that is away.
const awayEvery = 250 * time.Millisecond

// tellAfter is for how long a backend is away before callers in line are told: all of them book again then.
const tellAfter = time.Second

// awayFor is for how long the error of a step says why the next step takes long. It is longer than a step of any backend takes until it fails: in an outage each
// step brings a new error. After an outage an idle node makes no step by which it would learn of the end.
const awayFor = 20 * time.Second

// maxRenewed is how many leases are renewed in one step.
const maxRenewed = 64

// An absence is an error of a step while the backend is away.
type absence struct {
	err error
	at  time.Time // when the step failed
}

// A worker makes the steps of a node, one at a time: it has the queue of its callers' ops, and the memory.
//
// Locks: state is locked within a step of the backend, and mu within state. Neither is held while the backend waits for other nodes.
type worker struct {
	backend    Backend
	renewEvery time.Duration           // how often leases of held slots are renewed
	tickEvery  time.Duration           // how often tick is called
	away       atomic.Pointer[absence] // why the backend is away, or nil if it is not
	awaySince  time.Time               // when the outage under way was noticed, or the zero time without one. Only run uses awaySince and awayTold.
	awayTold   bool                    // callers in line were told of the outage
	maxRows    int                     // about how many rows a step has. Zero means no limit.

	mu           sync.Mutex
	queue        []*op
	tidied       int   // how long the queue was when ops of callers that have left were taken out of it
	running      bool  // a goroutine makes steps
	rests        bool  // no steps are made for a while, because the backend is away
	heard        Heard // what other nodes have done
	look         bool  // other nodes have news
	told         bool  // they said that some concern this node
	vain         bool  // they said so the last time, and there were none
	missed       Heard // news that the node could not take in, for the next retry
	retryPending bool  // the look that retry has promised is not made yet
	confirms     []*confirmation
	gathering    gathering
	takes        time.Duration // how long steps take, on average
	shares       atomic.Bool   // steps take so long that callers share them
	plans        atomic.Bool   // steps take so long that the node plans its passes; the memory has the same

	state  sync.Mutex
	step   step
	memory memory
	// owed are undos that could not be done. They give back grants of steps that were saved, so there are at most as
	// many of them as callers had grants: their number needs no limit.
	owed        []*op
	payPending  bool      // pay is called later
	tickPending bool      // tick is called later
	renewed     time.Time // when leases of held slots were renewed last
	stop        func()
}

// newWorker returns a worker that has nothing to do yet. It has no goroutine before the first op or news.
func newWorker(b Backend, o Options) *worker {
	// Without an observer of deaths a node counts as alive until its lease ends.
	isDead := func(int64, int64) bool { return false }
	observer, observes := b.(DeathObserver)
	if observes {
		isDead = observer.IsDead
	}

	// Ten renewals in a lease: some of them may fail, or be late, before other nodes take this one for dead.
	lease := time.Duration(o.Node.Lease) * time.Microsecond
	k := &worker{backend: b, renewEvery: lease / 10, tickEvery: lease / 10, maxRows: o.Rows, memory: newMemory(o, isDead)}

	// Waiters without a place must ask again within Recall. A test with a longer lease may let a century pass, in which a tick each second would take too long.
	if lease < store.MaxAhead {
		k.tickEvery = min(k.tickEvery, ledger.Recall)
	}

	k.step = newStep(&k.memory)
	if observes {
		observer.OnDeath(k.takeOver)
	}
	return k
}

// post has an op done in one of the next steps.
func (k *worker) post(o *op) {
	k.mu.Lock()
	defer k.mu.Unlock()

	// The queue is looked through only when it has doubled, so that an op costs the same on average.
	if len(k.queue) >= max(tidyFrom, 2*k.tidied) {
		k.queue = slices.DeleteFunc(k.queue, (*op).isPointless)
		k.tidied = len(k.queue)
	}
	k.queue = append(k.queue, o)
	k.start()
}

// start starts the goroutine that makes steps, unless it runs already or the worker rests. The caller holds mu.
func (k *worker) start() {
	if !k.running && !k.rests {
		k.running = true
		go k.run()
	}
}

// wakeUp has the node look for news of other nodes. told says that some concern this node.
func (k *worker) wakeUp(told bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look, k.told = true, k.told || told
	k.start()
}

// hear has the next step go through news of other nodes, or of the node's own timers.
func (k *worker) hear(h Heard) {
	if h.Empty() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard.Add(h)
	k.start()
}

// retry has the node look again soon, because a look or a step failed, and go through the news h, which that step should have gone through.
func (k *worker) retry(h Heard) {
	k.mu.Lock()
	defer k.mu.Unlock()

	// Failures that come together are one retry, with the news of all of them.
	k.missed.Add(h)
	if k.retryPending {
		return
	}

	k.retryPending = true
	time.AfterFunc(awayEvery, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.heard.Add(k.missed)
		k.missed, k.retryPending, k.look = Heard{}, false, true
		k.start()
	})
}

// warn tells watches of useless starts at once, before a step goes through the same news. A caller that confirms its start has the store read the row:
// its watch must hear the news before the caller has the answer.
func (k *worker) warn(n ledger.News) {
	if len(n.Useless) == 0 {
		return
	}
	k.state.Lock()
	defer k.state.Unlock()
	for _, u := range n.Useless {
		k.memory.warn(u)
	}
}

// run makes steps until there is nothing to do.
func (k *worker) run() {
	var batch []*op
	for {
		runtime.Gosched() // callers that are about to ask share the step
		w, more := k.take(batch[:0])
		if !more {
			return
		}

		// News are of use only to callers of this node. If it was told that news concern it, a step can go through its lines at once.
		k.state.Lock()
		heard, look := k.memory.concerning(w.heard), w.look && k.memory.waits()
		var lines []ledger.Key
		if look && w.told && len(w.batch) == 0 {
			lines = k.memory.leased(false)
		}
		k.state.Unlock()

		batch = w.batch
		switch {
		// Ops, confirmations and news need a step.
		case len(batch)+len(w.confirms) > 0 || !heard.Empty():
			batch = k.withNewcomers(batch)
			k.make(batch, w.confirms, nil, heard, look)

		// The news come with the rows of the step, so one transaction is enough. To read the news first would be a second one.
		case len(lines) > 0 && len(lines) <= maxLines:
			batch = k.withNewcomers(batch)
			k.make(batch, nil, lines, Heard{}, true)

		// Nothing is to be decided: it is enough to read what other nodes have done.
		case look:
			h, err := k.backend.Read(context.Background(), nil, func(Rows) {})
			k.hear(h)
			k.noteVain(h.Empty())
			if err != nil {
				k.tellWaiters(err, anyLine)
				k.retry(Heard{})
			}
		}

		// The batch is used again, and must not keep ops alive.
		clear(batch)
	}
}

// noteVain notes whether other nodes told this node of news in vain. If so, take does not believe them the next time.
func (k *worker) noteVain(vain bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.vain = vain
}

// A work is what a worker has to do next.
type work struct {
	batch    []*op
	confirms []*confirmation
	heard    Heard // what other nodes have done
	look     bool  // other nodes have more news, which the worker has to read
	told     bool  // other nodes have said that some of these news concern this node
}

// take takes the next work, with the ops appended to batch. If there is nothing to do now, or the worker rests, take returns false and sets running to false: its caller
// must return.
func (k *worker) take(batch []*op) (work, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()

	hasWork := len(k.queue)+len(k.confirms) > 0 || !k.heard.Empty() || k.look
	if k.rests || !hasWork {
		k.running = false
		return work{}, false
	}

	// Take the first ops, and move the rest to the front, so that the queue keeps its memory.
	n := k.batchSize()
	batch = append(batch, k.queue[:n]...)
	rest := copy(k.queue, k.queue[n:])
	clear(k.queue[rest:])
	k.queue = k.queue[:rest]

	// If other nodes told of news in vain the last time, they are not believed now: see noteVain.
	w := work{batch: batch, confirms: k.confirms, heard: k.heard, look: k.look, told: k.told && !k.vain}
	k.confirms, k.heard, k.look, k.told = nil, Heard{}, false, false
	return w, true
}

// batchSize returns how many ops from the front of the queue share the next step: maxBatch at most, with maxRows rows at most unless the first op alone has
// more. The caller holds mu.
func (k *worker) batchSize() int {
	n := min(len(k.queue), maxBatch)
	if k.maxRows <= 0 {
		return n
	}

	rows := 0
	for i := range n {
		rows += k.queue[i].size()
		if rows > k.maxRows && i > 0 {
			return i
		}
	}

	return n
}

// make makes a step. The step answers the confirmations, does a batch of ops, and goes through news: those heard before, and those that come with the rows. If the rows are
// saved, make brings the memory up to date, answers the ops, and has given back what an op got for a caller that has left. If not, make answers the ops with the error, except
// that while the backend is away it keeps those that can wait in the queue, and has callers in line told. lines are lines about which there may be news: their rows are loaded,
// too. look says that the news that come with the rows are a reason for the step: if the step fails, the worker looks again soon.
func (k *worker) make(batch []*op, confirms []*confirmation, lines []ledger.Key, heard Heard, look bool) {
	// If the step fails, callers in these lines are told. The callers of ops and of confirmations learn it from their answers.
	visited := slices.Concat(lines, heard.News.Moved)
	for _, o := range batch {
		visited = append(visited, o.keys...)
	}

	// Collect the keys of all rows that the step will need, so that the backend loads the rows at once.
	keys := slices.Clone(lines)

	for _, o := range batch {
		// A booking whose caller has left would book for nobody, so it only gives back what the caller had.
		if o.books && o.hasLeft() {
			o.decide = withdraw
		}
		keys = o.budgets(keys)
	}

	for _, c := range confirms {
		keys = append(keys, c.keys...)
	}

	keys = append(keys, heard.News.Moved...)

	// The backend calls the function with the rows, and again after a conflict. It saves the rows that the function has changed.
	var locked time.Time // when the node asked for the time, which it does when it has the lock of its rows, or before
	vain := false        // whether no news that came with the rows concern this node
	began := time.Now()
	later, err := k.backend.Step(keys, func(rows Rows) Told {
		k.state.Lock()
		defer k.state.Unlock()

		locked = rows.Asked()
		k.step.begin(rows)

		// Answer confirmations first, while the rows are as the last step has left them.
		for _, c := range confirms {
			c.decide(&k.step)
		}

		for _, o := range batch {
			o.began, o.asked, o.received = began, k.step.reply.asked, k.step.reply.received
			o.decide(&k.step, o)
		}

		// News of other nodes come behind the ops, so that one pass serves a line for both.
		fresh := k.memory.concerning(rows.Heard())
		vain = fresh.Empty()
		fresh.Add(heard)
		k.step.hear(fresh.News)
		if fresh.Lost {
			k.step.recover()
		}

		k.step.settle()
		k.step.told.Asked, k.step.told.Waits = k.step.askedFrom()
		k.step.told.Slots = k.step.usesSlots()
		return k.step.told
	})

	// A confirmation that the step has not decided on gets no answer: the caller reads the rows.
	for _, c := range confirms {
		c.end()
	}

	switch {
	case err == nil:
		// The length of a step does not include the wait for other nodes.
		k.noteLength(time.Since(locked))
		k.away.Store(nil)
		k.awaySince, k.awayTold = time.Time{}, false // an outage is over with a saved step
		k.endSaved()

		// A step with lines was made because other nodes told this node of news.
		if len(lines) > 0 {
			k.noteVain(vain)
		}

	case errors.Is(err, ErrAway):
		k.away.Store(&absence{err, time.Now()})

		// Callers that can wait stay in the queue until the backend is back; all others get the error.
		var waiting []*op
		waiting, batch = partition(batch, (*op).canWait)
		k.endFailed(batch, false)
		k.rest(waiting, err)

	default:
		k.away.Store(nil) // any other error says more than an earlier outage
		k.endFailed(batch, errors.Is(err, ErrUnsure))
	}

	if err != nil {
		k.tellWaiters(err, func(key ledger.Key) bool { return slices.Contains(visited, key) })
	}

	// A later step goes through the news that this step should have gone through.
	if err != nil && (look || !heard.Empty()) {
		k.retry(heard)
	}

	// Callers are told last: by now the memory agrees with the rows that they were told of.
	for _, o := range batch {
		// Nobody waits for an op of the node's own.
		if o.done == nil {
			continue
		}

		// A caller that has left does not use its start.
		told := o.tell(err)
		if !told && o.books && err == nil {
			k.giveBack(o)
		}
	}

	k.hear(later)
}

// anyLine is true of all lines.
func anyLine(ledger.Key) bool { return true }

// tellWaiters has callers in line book again after a step or a look has failed with err, so that each of them learns why it is not served. After an ErrUnsure
// nobody books again. In an outage all callers in line book again, once, when the outage has lasted for tellAfter. After any other error the callers in the lines
// for which concerns is true book again at once: a row that cannot be read is no reason for the callers of other lines.
func (k *worker) tellWaiters(err error, concerns func(ledger.Key) bool) {
	switch {
	// A step whose outcome is unknown says nothing about the steps that come, so callers keep their places.
	case errors.Is(err, ErrUnsure):
		return

	case errors.Is(err, ErrAway):
		if k.awaySince.IsZero() {
			k.awaySince = time.Now()
		}
		if k.awayTold || time.Since(k.awaySince) < tellAfter {
			return
		}
		k.awayTold, concerns = true, anyLine
	}

	k.state.Lock()
	defer k.state.Unlock()
	k.memory.recall(concerns)
}

// partition returns the ops that match, and the rest, both in the order of ops.
func partition(ops []*op, matches func(*op) bool) (matching, rest []*op) {
	for _, o := range ops {
		if matches(o) {
			matching = append(matching, o)
		} else {
			rest = append(rest, o)
		}
	}
	return matching, rest
}

// rest has ops done in a later step, because the backend is away, and tells their callers why they wait. The worker makes no step for awayEvery.
func (k *worker) rest(ops []*op, err error) {
	for _, o := range ops {
		o.tellAway(err)
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	// The ops were first in the queue, and come back to its front.
	k.queue = append(ops, k.queue...)
	k.rests = true
	time.AfterFunc(awayEvery, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.rests = false
		k.start()
	})
}

// giveBack posts an op that gives back the start or the place in line that a caller got after it had left, if it got one.
func (k *worker) giveBack(o *op) {
	if !o.grant.OK && o.grant.Ready == nil {
		return
	}
	k.post(ownUndo(cancel, o))
}

// endSaved brings the memory up to date, wakes callers, tells watches and sets the timers of lines, after a step whose rows were saved. It notes how long it took
// from when the step had its rows until they were saved.
func (k *worker) endSaved() {
	k.state.Lock()
	defer k.state.Unlock()

	st := &k.step
	k.memory.noteSaving(time.Since(st.received))
	st.save()

	// A caller that wakes now finds its start: deliver looks under the same lock.
	for _, ready := range st.wake {
		close(ready)
	}

	for _, u := range st.useless {
		k.memory.warn(u)
	}

	for key, later := range st.later {
		k.lookAgain(key, later)
	}

	st.forget()
	k.keepAlive()
}

// deliver gives a caller the start that was booked for it while it waited, without a step: the step that has booked the start was saved, and its reply serves as if
// the step had been the caller's own. deliver returns false if there is no such start, if the start is too old or of no use to the booking, or if something may have
// happened to it since.
func (k *worker) deliver(b *store.Booking) (g store.Grant, ok bool) {
	w, _ := b.Turn.(*waiter)
	if w == nil {
		return g, false
	}

	k.state.Lock()
	defer k.state.Unlock()

	// A step under way may change this caller, and news may have made the start useless: then a step decides.
	if w.now == nil || w.next != nil || k.memory.recent.isAbout(b.Charges, &w.now.grant) {
		return g, false
	}

	// By the reply the store's clock shows now, or up to the time between asked and received more: the start may be older by that. An Age of 0 would stand for a store
	// in memory.
	r := &w.reply
	now := r.now + ledger.Micros(time.Since(r.received))
	g, ok = w.now.Deliver(b, now, latest(b))
	if ok {
		g.Turn = w
		g.Age += max(time.Microsecond, r.received.Sub(r.asked))
	}

	return g, ok
}

// endFailed forgets a step that was not saved or, if unsure, may have been saved. It keeps in owed what the ops of batch must still give back, and has them
// tried again after owedEvery.
func (k *worker) endFailed(batch []*op, unsure bool) {
	k.state.Lock()
	defer k.state.Unlock()

	k.step.forget()

	// If unsure, the rows may have what the memory lacks until the undo is done: see withoutRows.
	for _, o := range batch {
		if undo := owedBy(o, unsure); undo != nil {
			k.owed = append(k.owed, undo)
			if unsure {
				k.memory.doubts++
			}
		}
	}

	if len(k.owed) > 0 && !k.payPending {
		k.payPending = true
		time.AfterFunc(owedEvery, k.pay)
	}
}

// pay posts the owed ops, to be tried again.
func (k *worker) pay() {
	k.state.Lock()
	owed := k.owed
	k.owed, k.payPending = nil, false
	k.state.Unlock()
	for _, o := range owed {
		k.post(o)
	}
}

// lookAgain has a line served after the time later, in place of any time set before. A time below 0 means not again. The state is locked.
func (k *worker) lookAgain(key ledger.Key, later time.Duration) {
	switch t := k.memory.timers[key]; {
	case later < 0 && t != nil:
		t.Stop()
		delete(k.memory.timers, key)

	case later < 0: // there is no timer to stop
	case t != nil:
		t.Reset(later)
	default:
		k.memory.timers[key] = time.AfterFunc(later, func() { k.hear(Heard{News: ledger.News{Moved: []ledger.Key{key}}}) })
	}
}

// keepAlive begins to listen, and has leases renewed, unless the node is idle. If it cannot listen, the next call tries again. The state is locked.
func (k *worker) keepAlive() {
	// An idle node goes on listening until the next tick.
	if k.memory.isIdle() {
		return
	}

	// Other nodes may have told something before this node listened, so look for news.
	if k.stop == nil {
		stop, err := k.backend.Listen(k.wakeUp)
		if err == nil {
			k.stop = stop
			k.wakeUp(false)
		}
	}

	k.tickLater(k.tickEvery)
}

// tickLater has tick called after a time, unless a call of tick is pending. The state is locked.
func (k *worker) tickLater(after time.Duration) {
	if !k.tickPending {
		k.tickPending = true
		time.AfterFunc(after, k.tick)
	}
}

// renews reports whether the queue has leases that are to be renewed.
func (k *worker) renews() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.queue, func(o *op) bool { return len(o.keys) > 0 })
}

// tick renews leases, and serves lines whose news may have been lost. An idle node stops listening; any other has tick called again. Even if leases are long, it is
// called often enough for waiters without a place to ask again in time: see [ledger.Recall].
func (k *worker) tick() {
	k.state.Lock()
	k.tickPending = false
	idle, stop := k.memory.isIdle(), k.stop
	var leased []ledger.Key

	// If the database is slow, renewals are still in the queue, and callers must not wait behind more and more of them. Held slots need a new
	// lease only each renewEvery.
	if !k.renews() {
		slotsDue := time.Since(k.renewed) >= k.renewEvery
		if slotsDue {
			k.renewed = time.Now()
		}
		leased = k.memory.leased(slotsDue)
	}

	// Lines that a step has gone through a moment ago need no step of their own yet. The next tick comes when the first of them needs one.
	hasLeases := len(leased) > 0
	next := k.tickEvery
	leased = slices.DeleteFunc(leased, func(key ledger.Key) bool {
		fresh := k.memory.freshFor(key, k.tickEvery)
		if fresh > 0 {
			next = min(next, fresh)
		}
		return fresh > 0
	})

	// An idle node stops listening, which is done without the lock. If callers come back, keepAlive begins anew.
	if idle {
		k.stop = nil
	} else {
		stop = nil
		k.tickLater(next)
	}
	k.state.Unlock()
	if stop != nil {
		stop()
	}

	// Without leases no line is served, so look for news that may have been lost.
	if !idle && !hasLeases {
		k.wakeUp(false)
	}

	k.renew(leased)
}

// takeOver frees what a node that has died left behind where this node waits.
func (k *worker) takeOver() {
	k.state.Lock()
	leased := k.memory.leased(false)
	k.state.Unlock()
	k.renew(leased)
}

// renew has the node's leases of some budgets renewed, their lines served, and what dead nodes left there freed.
func (k *worker) renew(leased []ledger.Key) {
	size := maxRenewed
	if k.maxRows > 0 {
		size = min(size, k.maxRows)
	}

	// Many leases are renewed in several steps, so that callers get their turn between them.
	for keys := range slices.Chunk(leased, size) {
		k.post(&op{decide: func(st *step, o *op) { st.renew(o.keys) }, keys: keys})
	}
}

// An op is one piece of work for a step, of a caller or of the node itself.
type op struct {
	// decide does the op in a step. It is called again if the step is made again.
	decide func(*step, *op)

	booking  store.Booking // with charges of the op's own
	grant    store.Grant   // the answer to a booking, or the grant that the op gives back or settles
	began    time.Time     // when the step began to wait for other nodes
	asked    time.Time     // when this node asked the store's clock for the time of the step
	received time.Time     // when this node had that time
	came     time.Time     // when the caller of a booking came
	books    bool          // the op asks for a start
	isUndo   bool          // the op gives something back
	nth      int64         // how often the caller had asked with its Turn when the op was made

	costs []int // the costs of a start, for Settle

	keys []ledger.Key // the budgets whose leases the op renews. An op with a booking has none.

	from, to float64 // the answer to a refusal

	err   error         // of the step
	done  chan struct{} // is sent to once. It is nil for an op of the node's own.
	state atomic.Int32  // pending, left or answered

	observer outage.Observer // is told why the store does not answer. It may be nil.
	away     chan error      // has room for one
}

// The states of an op.
const (
	pending  = iota
	left     // its caller did not wait for the answer
	answered // its caller has the answer
)

// ops has the ops of a store that are not in use.
type ops struct{ pool sync.Pool }

// get returns an op about a copy of a booking.
func (all *ops) get(decide func(*step, *op), b *store.Booking) *op {
	o, _ := all.pool.Get().(*op)
	if o == nil {
		o = &op{done: make(chan struct{}, 1), away: make(chan error, 1)}
	}

	// The op's last use has left memory for charges.
	charges := append(o.booking.Charges[:0], b.Charges...)
	o.booking = *b
	o.booking.Charges = charges
	o.decide = decide
	return o
}

// put lets an op be used again, when nobody else has a pointer to it any more.
func (all *ops) put(o *op) {
	charges, done, away := o.booking.Charges, o.done, o.away
	clear(charges)

	// Drop the report that the backend is away, if nobody took it.
	for len(away) > 0 {
		<-away
	}
	*o = op{done: done, away: away}
	o.booking.Charges = charges[:0]
	all.pool.Put(o)
}

// await waits until the op is done, for at most as long as ctx and patience allow. A negative patience allows any wait. If the
// backend is away meanwhile, await tells the observer. It returns false if the wait ends before: then the caller has left, and the op belongs to the worker.
func (o *op) await(ctx context.Context, patience time.Duration) bool {
	// The most frequent case needs neither a timer nor a select.
	if ctx.Done() == nil && patience < 0 && o.observer == nil {
		<-o.done
		return true
	}

	var over <-chan time.Time
	if patience >= 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		over = t.C
	}

	// If the backend is away, tell the observer, and go on waiting.
	for waits := true; waits; {
		select {
		case <-o.done:
			return true
		case err := <-o.away:
			if o.observer != nil {
				o.observer.StoreAway(err)
			}
		case <-over:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}

	// The answer may come at this moment. Whoever changes the state first, await or tell, decides: either the caller has left, or the answer counts.
	if o.state.CompareAndSwap(pending, left) {
		return false
	}

	<-o.done
	return true
}

// tell lets the caller go on, with the error of the op's step. It returns false if the caller has left.
func (o *op) tell(err error) bool {
	o.err = err
	if !o.state.CompareAndSwap(pending, answered) {
		return false
	}
	o.done <- struct{}{}
	return true
}

// canWait reports whether the caller wants a start and goes on waiting for it while the backend is away.
func (o *op) canWait() bool { return o.books && o.booking.MaxWait != 0 && o.state.Load() == pending }

// tellAway lets the caller know why it waits, unless it has not yet read the last reason.
func (o *op) tellAway(err error) {
	select {
	case o.away <- err:
	default:
	}
}

// hasLeft reports whether the caller has left.
func (o *op) hasLeft() bool { return o.state.Load() == left }

// gives reports whether an op that asks for a start gives something back when it is done.
func (o *op) gives() bool { return o.booking.Turn != nil || o.booking.Instead != (store.Handle{}) }

// isPointless reports whether the op would only book a start for a caller that has left.
func (o *op) isPointless() bool { return o.books && !o.gives() && o.hasLeft() }

// budgets appends to keys the keys of the budgets that the op asks for first.
func (o *op) budgets(keys []ledger.Key) []ledger.Key {
	for i := range o.booking.Charges {
		keys = append(keys, o.booking.Charges[i].Budget.Key)
	}
	return append(keys, o.keys...)
}

// size is how many rows the op asks for first.
func (o *op) size() int { return len(o.booking.Charges) + len(o.keys) }
