package node

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/linger"
	"github.com/fleetthrottle/throttle/store"
)

// Where callers wait, a start costs a node three things: the newcomer's step, which puts it in line, the step that books for it, and the question whether
// its start still holds. One step does all three for different callers: it answers the caller whose start has come, puts the newcomers of the last moments in
// line, and goes through the line for the next waiters. See "Callers share steps" in docs/internals/line.md.

// Callers share steps in this way where a step takes from cheapStep to fastStep on average. Shorter steps cost so little that callers are served at once, and exactly
// in order. Longer steps would hold up other nodes. Nodes plan their passes where a step takes cheapStep or longer: the longer a step takes, the more a message costs
// that asks for one.
const (
	cheapStep = 200 * time.Microsecond
	fastStep  = 20 * time.Millisecond
)

// noteLength adds the length of a saved step, without the wait for its rows, to a moving average of about eight steps. The average decides whether callers share steps,
// and whether the node plans its passes.
func (k *worker) noteLength(took time.Duration) {
	k.mu.Lock()
	k.takes += (took - k.takes) / 8
	plans := cheapStep <= k.takes
	shares := plans && k.takes <= fastStep
	k.mu.Unlock()

	k.shares.Store(shares)
	if was := k.plans.Swap(plans); was == plans {
		return
	}

	// The memory has a copy, which the state's lock guards: steps read it.
	k.state.Lock()
	k.memory.plans = plans
	k.state.Unlock()
}

// A confirmation is the question of one caller whether its start still holds. The state's lock guards it.
type confirmation struct {
	watch  *Watch
	keys   []ledger.Key // the budgets that the question is about
	left   bool         // the caller does not wait for the answer
	done   bool         // there is an answer, or there will be none
	answer chan bool    // has room for one. It is closed without an answer if the step has failed.
}

// decide answers the question whether a booked start may still be used, by the rows as the last step has left them: so the answer need not wait until this
// step is saved. If a row cannot be read, decide gives no answer. It also marks the budgets' lines in which callers of this node wait as moved.
func (c *confirmation) decide(st *step) {
	// The step that answers goes through these lines as well, for the next waiters.
	for _, key := range c.keys {
		if st.line.hasAny(key) {
			st.news.Moved = append(st.news.Moved, key)
		}
	}

	// After a conflict the backend calls the step twice, and the question was answered the first time. A caller that has left needs no answer.
	if c.done || c.left {
		return
	}
	usable := c.watch.Usable(func(key ledger.Key) *ledger.Row { return st.rows.Row(key, false) })

	// A row cannot be read: the step fails, and the caller reads the rows by itself.
	if st.rows.Err() != nil {
		return
	}
	c.done = true

	// News that come with the rows may lift the start, so tell the watches before the answer.
	for _, u := range st.rows.Heard().News.Useless {
		st.memory.warn(u)
	}
	c.answer <- usable && !c.watch.lifted.Load()
}

// end ends the question when its step is over: a caller that still waits for the answer gets none.
func (c *confirmation) end() { close(c.answer) }

// confirm has the next step answer whether a start still holds, if that is a gain: see ask. ok is the answer. answered is false if the caller has to read the rows by
// itself, because nothing was asked, or there was no answer in time.
func (k *worker) confirm(ctx context.Context, w *Watch) (ok, answered bool) {
	c := &confirmation{watch: w, answer: make(chan bool, 1)}
	w.budgets(func(key ledger.Key) { c.keys = append(c.keys, key) })
	if asked := k.ask(c); !asked {
		return false, false
	}

	// Other nodes may hold up the step. A caller whose answer comes later than Punctual would find its start stale, and a new start would cost two steps more,
	// just when steps wait for each other.
	timer := time.NewTimer(Punctual)
	defer timer.Stop()
	select {
	case ok, answered = <-c.answer:
		return ok, answered
	case <-timer.C:
	case <-ctx.Done():
	}

	// From now on the charges of the watch are the caller's: a step that comes later must not read them.
	k.state.Lock()
	defer k.state.Unlock()
	c.left = true
	return false, false
}

// ask has the next step answer the question c, and returns true. It returns false if a step for this question would be no gain: if callers do not share steps, no
// caller of this node waits in a line that the question is about, or the step could not be made at once.
func (k *worker) ask(c *confirmation) bool {
	if !k.shares.Load() {
		return false
	}

	// Only a line in which callers of this node wait has something to do in the same step.
	k.state.Lock()
	waits := false
	for _, key := range c.keys {
		waits = waits || len(k.memory.line[key]) > 0
	}
	k.state.Unlock()
	if !waits {
		return false
	}

	// Behind a step under way, or while the backend is away, the answer would come late.
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running || k.rests {
		return false
	}

	k.confirms = append(k.confirms, c)
	k.start()
	return true
}

// maxGather is how long a newcomer waits at the most for others to share a step.
const maxGather = 300 * time.Millisecond

// A gathering is newcomers to lines that are long: they wait for a step that is made anyway, and for maxGather at the most. Their arrivals are of the time at
// which they came, so they lose no rank. The lock of the worker guards it.
type gathering struct {
	ops   []*op
	ends  time.Time      // when the least patient of them can wait no longer
	timer *time.Timer    // calls flush at ends. It is nil before the first newcomer.
	full  linger.Budgets // by the answers to newcomers. Callers with shares are not counted.
}

// noteWait remembers how long a newcomer to a line was told to wait, because the next newcomer waits for at least as long. b is the booking of a caller, and g the
// answer. Only waits of newcomers are remembered, and none if callers do not share steps, if the budget is closed, or if the caller has a share.
func (k *worker) noteWait(b *store.Booking, g *store.Grant) {
	newcomer := b.Turn == nil && b.Horizon > 0
	inLine := !g.OK && g.Ready != nil && g.Wait > 0 && !g.Paused
	if !k.shares.Load() || !newcomer || !inLine || b.Charges[g.HeldBy].Share.ID != 0 {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	now := time.Now()
	lane := linger.Lane{Class: ledger.Class(b.Priority)}
	k.gathering.full.Note(b.Charges[g.HeldBy].Budget.Key, lane, now.Add(g.Wait), now, true)
}

// patience returns how long a newcomer waits for other newcomers, in whole milliseconds: half of the time until its start is within the horizon, and at most
// maxGather. b is the newcomer's booking. It returns 0 if the newcomer would be booked or refused at once, if nothing is known of the line, if the newcomer has a
// share, or if the newcomers so far are a crowd, to which Wait of linger.Budgets adds this newcomer. The caller holds the worker's mu.
func (all *gathering) patience(b *store.Booking, now time.Time) time.Duration {
	wait, c := all.full.Wait(b, maxGather, now)
	if c == nil || wait <= b.Horizon || c.Share.ID != 0 {
		return 0
	}
	return min(maxGather, (wait-b.Horizon)/2).Truncate(time.Millisecond)
}

// mayGather reports whether a newcomer may wait for others: if callers share steps, if the newcomer needs no slots, and if callers of this node wait in a line of
// one of its budgets, so that steps are made for that line anyway.
func (k *worker) mayGather(b *store.Booking) bool {
	if !k.shares.Load() || holdsSlots(b) {
		return false
	}

	k.state.Lock()
	defer k.state.Unlock()
	return slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return !c.Shadow && len(k.memory.line[c.Budget.Key]) > 0 })
}

// postNewcomer is post for a booking, which may wait for others to share a step. Its caller keeps the rank of now, however long it waits for its step.
func (k *worker) postNewcomer(o *op) {
	o.came = time.Now()
	gathered := k.mayGather(&o.booking) && k.gather(o)
	if !gathered {
		k.post(o)
	}
}

// gather has a newcomer wait for others, if patience allows it, and reports whether it does.
func (k *worker) gather(o *op) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	all := &k.gathering
	patience := all.patience(&o.booking, o.came)
	if patience <= 0 {
		return false
	}

	// The least patient newcomer decides when all of them go.
	ends := o.came.Add(patience)
	if len(all.ops) == 0 || ends.Before(all.ends) {
		all.ends = ends
		if all.timer != nil {
			all.timer.Stop()
		}
		all.timer = time.AfterFunc(patience, k.flush)
	}

	all.ops = append(all.ops, o)
	return true
}

// flush has a step made for all newcomers that have gathered, before the ops in the queue.
func (k *worker) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = slices.Insert(k.queue, 0, k.gathering.take()...)
	if len(k.queue) > 0 {
		k.start()
	}
}

// take empties the gathering and stops its timer. It returns the newcomers whose callers have not left. The caller holds the worker's mu.
func (all *gathering) take() []*op {
	if len(all.ops) == 0 {
		return nil
	}
	ops := slices.DeleteFunc(all.ops, (*op).isPointless)
	all.ops = nil
	all.timer.Stop()
	return ops
}

// withNewcomers returns a batch with the newcomers that have gathered before it, because they came first. The gathering is empty then.
func (k *worker) withNewcomers(batch []*op) []*op {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Insert(batch, 0, k.gathering.take()...)
}
