package acquire

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Several variants of one piece of work: each is a Caller, and the first that may start goes on. The program decides
// which variants ask when. This file has the steps that only a caller with variants takes.

// A Race is one piece of work that waits in several lines at once: in a line for each
// variant. The first variant that books a start has won, and the waits of all variants end.
//
// The variants ask the store one at a time, so that no two of them book a start at one
// moment. A variant whose turn to ask does not come within askAlone asks all the same: the
// server of the asking variant may be away. The methods of a Race are safe for concurrent
// use, except Context.
type Race struct {
	asking chan struct{}        // holds a value while a variant asks
	stops  []context.CancelFunc // end the waits of the variants

	mu     sync.Mutex
	winner *Caller
	active int // how many variants may still get a start
}

// askAlone is for how long a variant waits until the asking variant has its answer. A
// caller that joins the line of a full budget in Redis may have to wait for longer, because
// callers share calls. The remaining variants join their lines meanwhile.
const askAlone = 25 * time.Millisecond

// ErrLost says that a sibling variant has won. No caller sees it.
var ErrLost = errors.New("throttle: another variant has a start")

// NewRace returns a race of n variants.
func NewRace(n int) *Race { return &Race{asking: make(chan struct{}, 1), active: n} }

// Context returns the context of one variant's wait, which ends with the race. All contexts are made before the race
// begins.
func (r *Race) Context(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	r.stops = append(r.stops, stop)
	return ctx
}

// Stop ends the waits of all variants.
func (r *Race) Stop() {
	for _, stop := range r.stops {
		stop()
	}
}

// ask has a variant ask the store by q. If the variant has a start after the answer it wins the
// race, or ask returns ErrLost if a sibling variant has won before. If it stands in the line for
// a start, ask lists it in the engine's ahead. If ctx ends before the question, the variant gives up.
func (r *Race) ask(ctx context.Context, c *Caller, q question) error {
	// Wait for the turn to ask, but not for longer than askAlone: the server of the asking variant may be away.
	timer := time.NewTimer(askAlone)
	defer timer.Stop()

	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-timer.C:
	case <-ctx.Done():
	}

	if ctx.Err() != nil {
		return c.GaveUp(ctx)
	}

	err := q(c, ctx)

	// A variant that still stands in line joins ahead anew below, with its new wait.
	c.LeaveLine()

	switch {
	case err != nil:
		return err
	case c.state >= booked:
		return r.Claim(c)
	case c.state == inLine && c.Grant.HeldBy >= 0:
		name := lineName{c.Booking.Charges[c.Grant.HeldBy].Budget, c.Priority}
		c.line = c.engine.ahead.join(name, c.startAt)
	}

	return nil
}

// Claim makes a variant that has a start, or needs no start, the winner. If a sibling has
// won before it returns ErrLost: the variant keeps its holdings until the race is over.
func (r *Race) Claim(c *Caller) error {
	r.mu.Lock()
	won := r.winner == nil || r.winner == c
	if won {
		r.winner = c
	}
	r.mu.Unlock()

	if !won {
		return ErrLost
	}
	r.Stop()
	return nil
}

// Winner returns the variant that has won, or nil if none has.
func (r *Race) Winner() *Caller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.winner
}

// Retire notes that a variant can get no start now. If none of the variants can, the race is over.
func (r *Race) Retire() {
	r.mu.Lock()
	r.active--
	over := r.active == 0
	r.mu.Unlock()
	if over {
		r.Stop()
	}
}

// Reenter notes that a variant that retired may get a start again.
func (r *Race) Reenter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active++
}

// tryFor is for how long Try waits for the store's answer. It waits longer if the store is far away.
const tryFor = 100 * time.Millisecond

// Try books a start for now, and never a later start. A variant that is refused holds nothing, and
// its Grant.Wait says for how long its budgets would hold it.
func (c *Caller) Try(ctx context.Context) error {
	c.trying = true
	err := c.within(ctx, max(tryFor, min(horizonTrips*c.engine.rtt.get(), store.MinHorizon)))
	c.trying = false

	// A refused try leaves no trace: the variant's first place in line has the rank of a new caller.
	if c.state == idle {
		c.returns, c.Grant.Turn = false, nil
	}

	return err
}

// BookNear books a start within the horizon, as Book does, and waits for the store's answer no longer than a horizon.
func (c *Caller) BookNear(ctx context.Context) error { return c.within(ctx, c.Horizon()) }

// within calls Book with a context that ends after d at the latest, so a store that is away keeps the work
// from its other variants for at most d. The context has no deadline, or the store would refuse a start that
// comes after d.
func (c *Caller) within(ctx context.Context, d time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(d, stop).Stop()

	if err := c.waitToAsk(ctx); err != nil {
		return err
	}
	return c.Book(ctx)
}

// Leave has a variant give back its holdings. It reports whether the variant keeps a Turn, by which it
// gets its old rank when it comes again.
func (c *Caller) Leave() (hasTurn bool) {
	if c.state != idle {
		c.Cancel()
	}

	// Cancel also stops the watch, but an idle variant may still be counted among the held callers.
	c.StopWatch()

	// The next booking is a first booking with the old Turn. With Returns, a variant without a Turn would go before all waiters.
	c.returns = false
	b := &c.Booking
	b.Turn, b.Returns, b.Instead = c.Grant.Turn, false, store.Handle{}
	return c.Grant.Turn != nil
}

// Silence has the variant tell the observer nothing of its wait, because a sibling variant
// tells the observer how the work waits.
func (c *Caller) Silence() { c.silent, c.noticeAt = true, 0 }

// Speak has the variant tell the observer how the work waits. The work came at begun.
func (c *Caller) Speak(begun time.Duration) {
	c.silent = false
	if c.engine.LongWait > 0 {
		c.noticeAt = max(begun+c.engine.LongWait, Now())
	}
}

// Chosen notes that the work goes on with this variant. If the variant was silent, it tells the observer now which
// shadow policies would have held the work.
func (c *Caller) Chosen(ctx context.Context) {
	if c.silent {
		c.silent = false
		c.reportShadows(ctx)
	}
}

// LeaveLine takes the variant out of the engine's list of callers in line, if the list has it. The
// variant keeps its place in the store's line.
func (c *Caller) LeaveLine() {
	if c.line != nil {
		c.engine.ahead.leave(c.line)
		c.line = nil
	}
}

// Ahead returns until when the variant would have to wait behind callers of this program that have several variants,
// whose priority is no lower, and that stand in line for one of its budgets. It returns false if there are none.
func (c *Caller) Ahead() (until time.Duration, found bool) {
	return c.engine.ahead.of(c.Booking.Charges, c.Priority)
}

// The ahead are the callers of this program with several variants that stand in line, by budget. A
// caller that comes later does not ask for a start now where one of them waits, because the start
// belongs to the waiting caller. So under full load a caller asks once for each variant and not
// twice, which halves the work of the store.
type ahead struct {
	count atomic.Int32 // of known, so that nobody needs the lock while it is 0
	mu    sync.Mutex
	known map[lineName]*line
}

// A lineName is the line of a budget for the callers of a priority.
type lineName struct {
	budget   store.Budget
	priority store.Priority
}

// A line is one entry of ahead: a line, and the callers in it.
type line struct {
	name    lineName
	callers int
	until   time.Duration // when the caller that asked last will start, as it was told
}

// join notes that a caller stands in a line, and will start at until by the store's answer. It returns the line.
func (h *ahead) join(name lineName, until time.Duration) *line {
	h.mu.Lock()
	defer h.mu.Unlock()

	l := h.known[name]
	if l == nil {
		if h.known == nil {
			h.known = make(map[lineName]*line)
		}

		l = &line{name: name}
		h.known[name] = l
		h.count.Add(1)
	}

	// The last to join waits longest, so a caller that comes later waits at least until then.
	l.callers++
	l.until = until
	return l
}

// leave notes that a caller has left a line.
func (h *ahead) leave(l *line) {
	h.mu.Lock()
	defer h.mu.Unlock()

	l.callers--
	if l.callers == 0 {
		delete(h.known, l.name)
		h.count.Add(-1)
	}
}

// of returns until when a caller with these charges and this priority would have to wait, because callers
// of the same or a higher priority stand in line for one of the budgets. It returns false if none do.
func (h *ahead) of(charges []store.Charge, priority store.Priority) (until time.Duration, found bool) {
	if h.count.Load() == 0 {
		return 0, false
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	// Of several lines the one with the latest end decides.
	for i := range charges {
		for p := priority; p <= store.PriorityHigh; p++ {
			l := h.known[lineName{charges[i].Budget, p}]
			if l != nil && (!found || l.until > until) {
				until, found = l.until, true
			}
		}
	}

	return until, found
}

// Preference returns the indexes of n variants in the order in which a caller asks them. Variants with a
// weight come first, in a random order: each of the variants that are left is the next with a chance in
// proportion to its weight. Variants without a weight follow in the order of their indexes. weight returns
// the weight of a variant, or 0 if it has none.
func Preference(n int, weight func(i int) int) []int {
	// Each variant with a weight gets a random time, which is exponentially distributed with the weight as its rate:
	// the chance to have the earliest time is in proportion to the weight.
	order, times := make([]int, n), make([]float64, n)
	for i := range n {
		order[i], times[i] = i, math.Inf(1)
		if w := weight(i); w > 0 {
			times[i] = rand.ExpFloat64() / float64(w)
		}
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(times[i], times[k]) })
	return order
}
