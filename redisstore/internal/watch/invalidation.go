package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// A pastInvalidation is a pause that was received, or the end of one.
type pastInvalidation struct {
	notify.Pause
	at time.Time
}

// A pause can be received before the reply to the booking that it makes void: as long
// before as replies take, and not in greater numbers than these.
const (
	pastTime = time.Minute
	pastMost = 1 << 12
)

// Paused passes a pause, or the end of one, on to the watches of a budget, the earliest
// start first, so that their callers book anew in that order.
func (ws *Watches) Paused(p notify.Pause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := time.Now()
	for len(ws.past) > 0 && (now.Sub(ws.past[0].at) > pastTime || len(ws.past) >= pastMost) {
		ws.pastEnd, ws.past = ws.past[0].at, ws.past[1:]
	}
	ws.past = append(ws.past, pastInvalidation{p, now})
	for _, w := range ws.inOrder(p.Key) {
		if w.learn(p); p.Lifted() {
			w.void.Store(true)
		}
		if w.Void() {
			w.tell()
		}
	}
}

// Invalidated makes the starts of a budget void that lie between two times.
func (ws *Watches) Invalidated(i notify.Invalidation) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.inOrder(i.Key) {
		if i.From <= w.At && w.At < i.Until {
			w.void.Store(true)
			w.tell()
		}
	}
}

// Charges returns those of a start that needs a budget and is watched; nil if there is
// none.
func (ws *Watches) Charges(key string) []throttle.Charge {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.watches[key] {
		return w.Start.Charges
	}
	return nil
}

// inOrder returns the watches of a budget, the earliest start first.
func (ws *Watches) inOrder(key string) []*Watch {
	all := make([]*Watch, 0, len(ws.watches[key]))
	for w := range ws.watches[key] {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *Watch) int { return cmp.Compare(a.At, b.At) })
	return all
}

// missed reports whether something was received of a watch's budgets since its booking
// was sent, or may have been, and whether a pause was lifted since then.
func (ws *Watches) missed(w *Watch) (concerned, lifted bool) {
	concerned = w.Sent.Before(ws.pastEnd)
	for i := len(ws.past) - 1; i >= 0 && !ws.past[i].at.Before(w.Sent); i-- {
		if p := &ws.past[i]; slices.Contains(w.Keys, p.Key) {
			concerned = true
			lifted = lifted || p.Lifted() && p.at.After(w.Sent)
		}
	}
	return concerned, lifted
}
