package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// notes are what a reporter knows of pauses.
type notes struct {
	all  atomic.Pointer[map[[16]byte]heldNote]
	wake chan struct{} // the reporter is to ask

	mu      sync.Mutex
	waiting chan struct{} // closed with the answer to the next question; nil: nobody waits
	last    time.Time     // when it was asked last, or will be
}

// A heldNote ends by this process' clock, which is monotonic.
type heldNote struct {
	store.PauseNote
	end time.Time
}

const (
	askEvery  = time.Second            // a budget that is closed makes a reporter ask so often at the most
	awaitNote = 100 * time.Millisecond // a caller that is refused waits for the answer so long
)

// of returns the note of a budget.
func (n *notes) of(key [16]byte) store.PauseNote {
	if all := n.all.Load(); all != nil {
		if note, ok := (*all)[key]; ok && note.end.After(time.Now()) {
			return note.PauseNote
		}
	}
	return store.PauseNote{}
}

// learn takes in the notes that Redis has, as of a moment of its clock and ours.
func (n *notes) learn(notes map[[16]byte]Note, server, here time.Time) {
	all := make(map[[16]byte]heldNote, len(notes))
	for key, note := range notes {
		all[key] = heldNote{store.PauseNote{By: note.By, Reason: note.Reason}, here.Add(note.Until.Sub(server))}
	}
	n.all.Store(&all)
}

// meet is told of a budget that is closed, which may be by hand. A caller that waits has
// time until its wait ends; the error of one that was refused is made now.
func (n *notes) meet(ctx context.Context, c *store.Charge, waits bool) {
	if c.Node || n.of(c.Budget.Key) != (store.PauseNote{}) {
		return
	}

	answer, soon := n.ask()
	if waits || !soon {
		return
	}

	timer := time.NewTimer(awaitNote)
	defer timer.Stop()

	select {
	case <-answer:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ask lets the reporter ask: soon, or, if it did so a moment ago, in a while. It returns a
// channel that is closed when there is an answer.
func (n *notes) ask() (answer <-chan struct{}, soon bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.waiting == nil {
		n.waiting = make(chan struct{})
		wait := max(0, askEvery-time.Since(n.last))
		n.last = time.Now().Add(wait)

		if wait == 0 {
			n.poke()
		} else {
			time.AfterFunc(wait, n.poke)
		}
	}

	return n.waiting, !n.last.After(time.Now())
}

// poke wakes the reporter.
func (n *notes) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// asked returns what to close when a question has its answer, or has none. Those that come
// later wait for the next one.
func (n *notes) asked() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := n.waiting
	n.waiting = nil
	if answer == nil {
		answer = make(chan struct{})
	}
	if now := time.Now(); n.last.After(now) {
		n.last = now // a report came before the question
	}
	return answer
}
