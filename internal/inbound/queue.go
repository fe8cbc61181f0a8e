package inbound

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Queue bounds the requests that wait in a server: in all, and for each budget, so that one busy key cannot take all
// places. It is safe for concurrent use. Create it with [NewQueue].
type Queue struct {
	max, maxPerBudget int

	mu       sync.Mutex
	waiting  map[*Place]bool
	byBudget map[string]int // number of waiting requests by budget
	stopBy   time.Time      // deadline for starts while the server stops, zero while it runs
}

// A Place is the place of one request in a [Queue]. The mutex of the queue guards budget and startsAt.
type Place struct {
	queue    *Queue
	ctx      context.Context         // of the wait
	end      context.CancelCauseFunc // ends the wait
	budget   string                  // budget that holds the request, "" if unknown
	startsAt time.Time               // expected start, zero if unknown
}

// A Refusal says that a request may not wait: the queue is full, or the server stops.
type Refusal struct {
	detail     string
	Policy     string        // whose budget has too many waiting requests, or ""
	RetryAfter time.Duration // when the caller may try again
}

// Error implements error.
func (r *Refusal) Error() string { return r.detail }

// Soon is the Retry-After of a request that was refused for want of a place or of a store.
const Soon = time.Second

// ErrStopping is the *Refusal of a request that comes or would start too late for a server that stops.
var ErrStopping error = &Refusal{detail: "this server ends", RetryAfter: Soon}

// NewQueue returns an empty queue for up to most requests, and up to mostPerBudget requests for one budget.
func NewQueue(most, mostPerBudget int) *Queue {
	return &Queue{max: most, maxPerBudget: mostPerBudget, waiting: make(map[*Place]bool), byBudget: make(map[string]int)}
}

// Enter gives a request a place, which [Place.Leave] or [Place.Start] gives back. The request goes on with the returned
// context: [Observe] finds the place in the context, and the queue ends a wait by ending the context, with a *[Refusal] as
// the cause. If the queue is full or stops, Enter returns a *Refusal, no place, and ctx as it is.
func (q *Queue) Enter(ctx context.Context) (context.Context, *Place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()

	switch {
	case !q.stopBy.IsZero():
		return ctx, nil, ErrStopping
	case len(q.waiting) >= q.max:
		return ctx, nil, &Refusal{detail: "too many requests wait in this server", RetryAfter: Soon}
	}

	p := &Place{queue: q}
	ctx, p.end = context.WithCancelCause(ctx)
	p.ctx = ctx
	q.waiting[p] = true
	return context.WithValue(ctx, placeKey{}, p), p, nil
}

// End ends the wait of the request, or its way to the upstream, with a cause.
func (p *Place) End(cause error) { p.end(cause) }

// Leave gives the place back when the request has its start or is refused. Further calls do nothing.
func (p *Place) Leave() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	delete(p.queue.waiting, p)
	p.leaveBudget()
}

// Start gives the place back because the request has its start. If the wait has ended, Start returns the cause and changes
// nothing. After a Start without an error the queue does not end the request, unless the request loses its start and waits
// again.
func (p *Place) Start() error {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	delete(p.queue.waiting, p)
	p.leaveBudget()
	return nil
}

// leaveBudget notes that no budget holds the request. The mutex is held.
func (p *Place) leaveBudget() {
	if p.budget == "" {
		return
	}
	p.queue.byBudget[p.budget]--
	if p.queue.byBudget[p.budget] == 0 {
		delete(p.queue.byBudget, p.budget)
	}
	p.budget = ""
}

// placeKey is the context key of a *Place.
type placeKey struct{}

// Observe tells the queue which budget holds the request of an event, and for how long. It is for [throttle.Config.Observe],
// and ignores other events and requests without a place.
func Observe(ctx context.Context, e throttle.Event) {
	p, _ := ctx.Value(placeKey{}).(*Place)
	switch {
	case p == nil:
	case e.Kind == throttle.EventWaiting:
		p.holdAt(e.Budget, e.Policy, e.Duration)
	case e.Kind == throttle.EventStillWaiting:
		p.holdAt(e.Budget, e.Policy, e.Left)
	}
}

// holdAt notes which budget holds the request, "" if unknown, and for how long, 0 if unknown. It ends the wait if too many
// requests wait for the budget, or if the server stops before the start. A request that lost its start while it connected
// gets its place back even when the queue is full, in all or for the budget.
func (p *Place) holdAt(budget, policy string, wait time.Duration) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()

	// A request without a place gave it back when its start came, has lost that start, and waits again.
	again := !q.waiting[p]
	q.waiting[p] = true
	p.leaveBudget()
	p.startsAt = time.Time{}
	if wait > 0 {
		p.startsAt = time.Now().Add(wait)
	}

	if budget != "" && q.byBudget[budget] >= q.maxPerBudget && !again {
		p.end(&Refusal{detail: "too many requests wait in this server for the same budget", Policy: policy, RetryAfter: max(Soon, wait)})
		return
	}

	// Count the request under its new budget.
	p.budget = budget
	if budget != "" {
		q.byBudget[budget]++
	}

	p.endIfLate()
}

// endIfLate ends the wait of the request if the server stops, and the expected start is after the stop deadline or the
// deadline has come. The mutex is held.
func (p *Place) endIfLate() {
	if by := p.queue.stopBy; !by.IsZero() && (p.startsAt.After(by) || !time.Now().Before(by)) {
		p.end(ErrStopping)
	}
}

// Stop closes the queue. It ends waits that are known to be longer than the deadline now, and all remaining waits at the
// deadline.
func (q *Queue) Stop(by time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.stopBy = by
	for p := range q.waiting {
		p.endIfLate()
	}

	// The start of a request may be unknown, or later than expected.
	time.AfterFunc(time.Until(by), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for p := range q.waiting {
			p.end(ErrStopping)
		}
	})
}

// Len returns the number of waiting requests.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
