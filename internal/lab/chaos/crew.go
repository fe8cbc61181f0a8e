package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A hand is a member seen from the program that started it.
type hand struct {
	orders
	process *crew.Member

	words chan word // without calls and stalls; closed when the member is gone
	held  []span    // when signals kept the member from running
	dead  bool      // killed on purpose

	mu     sync.Mutex
	calls  []call
	stalls []fleet.Stall
}

// A span is a time, from the Unix epoch.
type span struct{ from, to time.Duration }

// hire starts a member and waits until its callers call.
func hire(t redistest.TB, o orders) *hand {
	t.Helper()
	h := &hand{orders: o, words: make(chan word, 16)}
	var err error
	if h.process, err = crew.Start(context.Background(), memberRole, o); err != nil {
		t.Fatalf("chaos: member %d: %v", o.Member, err)
	}
	t.Cleanup(h.kill)
	go h.listen()

	// A member that is slow to start would look like a fault of the first scene.
	h.await(t, func(w word) bool { return w.Ready })
	return h
}

// listen records the member's calls and stalls, and sends every other word to the channel h.words. It closes the channel
// when the member ends.
func (h *hand) listen() {
	defer close(h.words)
	for {
		var w word
		if err := h.process.Link.Hear(&w); err != nil {
			return
		}

		if w.Call == nil && w.Stall == nil {
			h.words <- w
			continue
		}

		h.mu.Lock()
		if w.Call != nil {
			h.calls = append(h.calls, *w.Call)
		} else {
			h.stalls = append(h.stalls, *w.Stall)
		}
		h.mu.Unlock()
	}
}

// await returns the first word that is wanted, and drops the words before. It fails the test after a minute, and when the
// member ends.
func (h *hand) await(t redistest.TB, wanted func(word) bool) word {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case w, ok := <-h.words:
			if !ok {
				// The error output is complete only when the process is gone.
				<-h.process.Gone
				t.Fatalf("chaos: member %d ended: %s", h.Member, h.process.Errors())
			}
			if wanted(w) {
				return w
			}

		case <-timeout:
			t.Fatalf("chaos: member %d does not answer", h.Member)
		}
	}
}

// tell gives an order and waits until it is obeyed.
func (h *hand) tell(t redistest.TB, o order) {
	t.Helper()
	if err := h.process.Tell(o); err != nil {
		t.Fatalf("chaos: member %d: %v", h.Member, err)
	}
	h.await(t, func(w word) bool { return w.Changed })
}

// rest has the member's callers leave, and returns what still runs in the member then.
func (h *hand) rest(t redistest.TB) remains {
	t.Helper()
	if err := h.process.Tell(order{Rest: true}); err != nil {
		t.Fatalf("chaos: member %d: %v", h.Member, err)
	}
	return *h.await(t, func(w word) bool { return w.Left != nil }).Left
}

// pause keeps the member from running.
func (h *hand) pause(t redistest.TB) {
	t.Helper()
	if err := h.process.Pause(); err != nil {
		t.Fatalf("chaos: pausing member %d: %v", h.Member, err)
	}
}

// goOn lets a paused member run on.
func (h *hand) goOn(t redistest.TB) {
	t.Helper()
	if err := h.process.Continue(); err != nil {
		t.Fatalf("chaos: continuing member %d: %v", h.Member, err)
	}
}

// kill ends the member without a word.
func (h *hand) kill() {
	h.dead = true
	h.process.Kill()
}

// said returns the calls and stalls that the member has told of.
func (h *hand) said() ([]call, []fleet.Stall) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// The capacity ends with the length, so that the caller's appends never write where listen does.
	return h.calls[:len(h.calls):len(h.calls)], h.stalls[:len(h.stalls):len(h.stalls)]
}

func (h *hand) String() string { return fmt.Sprint("member ", h.Member) }
