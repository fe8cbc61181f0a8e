package throttle

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A race is one caller that waits in several lines at once: one for each variant of its work. The
// first variant that books a start has won, and the waits of all others end.
//
// The variants ask the store one after the other, so that two of them do not book a start at one
// moment. A variant whose turn to ask does not come within askAlone asks all the same: the server
// that another variant asks may be away.
type race struct {
	asking chan struct{}        // holds a value while a variant asks
	stops  []context.CancelFunc // end the waits of the variants

	mu     sync.Mutex
	winner *acquisition
	active int // how many variants may still get a start
}

// askAlone is for how long a variant waits until another one has its answer. A caller that joins
// the line of a full budget in Redis may have to wait for more than that, because callers
// share calls: then others join their lines meanwhile.
const askAlone = 25 * time.Millisecond

// errLost says that another variant has won. No caller sees it.
var errLost = errors.New("throttle: another variant has a start")

// wait returns the context of one variant's wait.
func (r *race) wait(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	r.stops = append(r.stops, stop)
	return ctx
}

// stop ends the waits of all variants.
func (r *race) stop() {
	for _, stop := range r.stops {
		stop()
	}
}

// ask has a variant ask the store by question, and wins if the variant then has a start. It returns
// errLost, and the variant holds nothing, if another variant has won.
func (r *race) ask(ctx context.Context, a *acquisition, question func(*acquisition, context.Context) error) error {
	timer := time.NewTimer(askAlone)
	defer timer.Stop()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return a.gaveUp(ctx)
	}
	err := question(a, ctx)
	a.leaveLine()
	switch {
	case err != nil:
		return err
	case a.state >= booked:
		return r.claim(a)
	case a.state == inLine && a.grant.Held >= 0:
		a.line = a.ahead.join(lineName{a.booking.Charges[a.grant.Held].Budget, a.priority}, a.startAt)
	}
	return nil
}

// leaveLine notes that others need not know any more of the line in which the variant stands.
func (a *acquisition) leaveLine() {
	if a.line != nil {
		a.ahead.leave(a.line)
		a.line = nil
	}
}

// claim makes a variant that has a start, or needs none, the winner. If there is another winner it gives
// back the start and returns errLost.
func (r *race) claim(a *acquisition) error {
	r.mu.Lock()
	won := r.winner == nil || r.winner == a
	if won {
		r.winner = a
	}
	r.mu.Unlock()
	if !won {
		a.cancel()
		return errLost
	}
	r.stop()
	return nil
}

// retire notes that a variant can get no start now. If none of the variants can, the race is over.
func (r *race) retire() {
	r.mu.Lock()
	r.active--
	over := r.active == 0
	r.mu.Unlock()
	if over {
		r.stop()
	}
}

// reenter notes that a variant that retired may get a start again.
func (r *race) reenter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active++
}
