package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// places are the requests that wait.
type places struct {
	most, mostPerBudget int

	mu       sync.Mutex
	held     map[*place]bool
	byBudget map[string]int // how many of them each budget holds
	stopBy   time.Time      // when those must have started, and no other may enter; zero: the handler goes on
}

// A place is one request that waits. Its fields belong to the mutex of all.
type place struct {
	all      *places
	refuse   context.CancelCauseFunc // ends the wait
	budget   string                  // that holds the request; "": none does, as far as known
	startsAt time.Time               // when it may start; zero: unknown
}

func newPlaces(most, mostPerBudget int) *places {
	return &places{most: most, mostPerBudget: mostPerBudget, held: make(map[*place]bool), byBudget: make(map[string]int)}
}

// soon is the Retry-After of a request for which there is no place.
const soon = time.Second

// enter returns a place for a request, or why there is none. refuse ends its wait with a cause.
func (a *places) enter(refuse context.CancelCauseFunc) (*place, *problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.stopBy.IsZero():
		return nil, stops()
	case len(a.held) >= a.most:
		return nil, newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy").after(soon)
	}
	p := &place{all: a, refuse: refuse}
	a.held[p] = true
	return p, nil
}

// stops returns the answer of a handler that ends.
func stops() *problem {
	return newProblem(http.StatusServiceUnavailable, "this proxy ends").because(stopping).after(soon)
}

// leave gives the place up. It may be called again.
func (p *place) leave() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.all.held[p] {
		delete(p.all.held, p)
		p.leaveBudget()
	}
}

// leaveBudget notes that no budget holds the request. The mutex is held.
func (p *place) leaveBudget() {
	if p.budget == "" {
		return
	}
	if p.all.byBudget[p.budget]--; p.all.byBudget[p.budget] == 0 {
		delete(p.all.byBudget, p.budget)
	}
	p.budget = ""
}

// holdAt notes which budget holds the request, "" for none that is known, and for how long it will
// do so; 0: that is unknown. It ends the wait if that budget holds too many, or if the wait is
// longer than the handler goes on. A request that waits again, because it lost its start while it
// connected, has a place again, also if there is none for others.
func (p *place) holdAt(budget, policy string, wait time.Duration) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()

	again := !p.all.held[p]
	p.all.held[p] = true
	p.leaveBudget()
	p.startsAt = time.Time{}
	if wait > 0 {
		p.startsAt = time.Now().Add(wait)
	}

	if budget != "" && p.all.byBudget[budget] >= p.all.mostPerBudget && !again {
		full := newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy for the same budget").after(max(soon, wait))
		full.Policy = policy
		p.refuse(full)
		return
	}

	if p.budget = budget; budget != "" {
		p.all.byBudget[budget]++
	}

	p.endIfLate()
}

// endIfLate ends the wait of a request that starts too late for a handler that ends. The mutex is
// held.
func (p *place) endIfLate() {
	if by := p.all.stopBy; !by.IsZero() && p.startsAt.After(by) {
		p.refuse(stops())
	}
}

// stop lets no request enter any more. Those that wait must have started at a time: what is known
// to start later is refused now, and the rest then.
func (a *places) stop(by time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.stopBy = by
	for p := range a.held {
		p.endIfLate()
	}

	time.AfterFunc(time.Until(by), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for p := range a.held {
			p.refuse(stops())
		}
	})
}

// count returns how many requests wait.
func (a *places) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}
