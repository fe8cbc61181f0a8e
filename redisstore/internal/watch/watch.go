// Package watch finds out whether booked starts have become void: because a budget was
// paused, because a pause was lifted so that there may be an earlier start, or because
// the upstream has less left than was known. It is told of that; where a node cannot be
// sure to be told, it asks Redis before the start. See docs/bans.md.
package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// SubscribeFrom is from how long a wait on a start is worth a subscription. For less
// Redis is asked.
const SubscribeFrom = 20 * time.Millisecond

// Watches are those of a node.
type Watches struct {
	SubscribeFrom time.Duration // unless a test wants to ask always

	conn *conn.Conn
	subs *notify.Subscriptions
	ask  func(ctx context.Context, keys []string) ([]notify.Pause, error)

	mu             sync.Mutex
	watches        map[string]map[*Watch]struct{} // by the keys of their budgets
	pastNews       []pastInvalidation             // the oldest first
	forgottenUntil time.Time                      // what came before then is forgotten
	queriers       map[string]*querier            // those that are asked, by own channel
}

// New returns the watches of a node. They ask Redis by the function, which makes one
// call and returns the pauses of some budgets in order.
func New(c *conn.Conn, subs *notify.Subscriptions, ask func(context.Context, []string) ([]notify.Pause, error)) *Watches {
	return &Watches{
		SubscribeFrom: SubscribeFrom, conn: c, subs: subs, ask: ask,
		watches: make(map[string]map[*Watch]struct{}), queriers: make(map[string]*querier),
	}
}

// A Start is what a watch is kept over.
type Start struct {
	Channels notify.Channels
	Keys     []string      // of the budgets that count
	At       int64         // by the server's clock, in microseconds
	Sent     time.Time     // when the booking was
	Due      time.Time     // the start by the node's clock, or a little later
	Doubt    time.Duration // by how much Due may be too late

	// Charges are those of the start whose budgets a node has a history of. If Redis
	// lost one of them it is told.
	Charges []throttle.Charge
}

// clockDoubt is from how much on the two times of a pause disagree about a start because
// the server's clock was set back after it was booked, and not because they were on
// their way.
const clockDoubt = 250 * time.Millisecond

// A querier is asked one query after the other. Callers that ask while a query is on its
// way share the next one; it is nil if there is none.
type querier struct{ next *query }

// A query asks for the pauses of the budgets of one or more watches.
type query struct {
	keys   map[string]struct{}
	ctx    context.Context // ends when nobody wants to know any more
	stop   context.CancelFunc
	failed chan struct{} // closed when a call has failed
	done   chan struct{}
	err    error // set when done is closed

	// The lock of the watches guards the rest.
	callers int
	fails   int   // how many calls failed
	last    error // why the last one did
}

// A Watch is kept over one start.
type Watch struct {
	Start
	owner      *Watches
	news       chan<- struct{}
	subscribed bool
	knownUntil time.Time   // all pauses stored before then are; guarded by the owner's lock
	void       atomic.Bool // the start is of no use any more
	stopped    atomic.Bool
}

// Add begins a watch, which sends on news when the start may be void. If something was
// received of its budgets before the reply to its booking came, or may have been and is
// forgotten, the watch must ask: nobody knows which of the two was later.
func (ws *Watches) Add(s Start, news chan<- struct{}) *Watch {
	w := &Watch{Start: s, owner: ws, news: news, knownUntil: s.Sent}
	if w.subscribed = time.Until(s.Due) > ws.SubscribeFrom; w.subscribed {
		ws.subs.Retain(s.Channels)
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, key := range w.Keys {
		if ws.watches[key] == nil {
			ws.watches[key] = make(map[*Watch]struct{})
		}
		ws.watches[key][w] = struct{}{}
	}
	if concerned, lifted := ws.newsSinceBooking(w); concerned {
		if lifted {
			w.void.Store(true)
		}
		w.knownUntil = time.Time{}
		w.tell()
	}
	return w
}

// Void reports whether the start is known to be of no use any more.
func (w *Watch) Void() bool { return w.void.Load() }

// Stop ends the watch. It may be called more than once; the first call returns true.
func (w *Watch) Stop() bool {
	if w.stopped.Swap(true) {
		return false
	}
	w.owner.remove(w)
	if w.subscribed {
		w.owner.subs.Release(w.Channels)
	}
	return true
}

func (ws *Watches) remove(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, key := range w.Keys {
		if delete(ws.watches[key], w); len(ws.watches[key]) == 0 {
			delete(ws.watches, key)
		}
	}
}

// pausesKnownUntil returns when all pauses are known from that concern a watch.
func (w *Watch) pausesKnownUntil() time.Time {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	return w.knownUntil
}

// learn takes in what a budget of the watch is like.
func (w *Watch) learn(p notify.Pause) {
	if p.End > w.At || p.Left > max(0, time.Until(w.Due)+w.Doubt+clockDoubt) {
		w.void.Store(true)
	}
}

// tell wakes the caller.
func (w *Watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // it is told already
	}
}

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
	for len(ws.pastNews) > 0 && (now.Sub(ws.pastNews[0].at) > pastTime || len(ws.pastNews) >= pastMost) {
		ws.forgottenUntil, ws.pastNews = ws.pastNews[0].at, ws.pastNews[1:]
	}
	ws.pastNews = append(ws.pastNews, pastInvalidation{p, now})
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

// newsSinceBooking reports whether something was received of a watch's budgets since its booking
// was sent, or may have been, and whether a pause was lifted since then.
func (ws *Watches) newsSinceBooking(w *Watch) (concerned, lifted bool) {
	concerned = w.Sent.Before(ws.forgottenUntil)
	for i := len(ws.pastNews) - 1; i >= 0 && !ws.pastNews[i].at.Before(w.Sent); i-- {
		if p := &ws.pastNews[i]; slices.Contains(w.Keys, p.Key) {
			concerned = true
			lifted = lifted || p.Lifted() && p.at.After(w.Sent)
		}
	}
	return concerned, lifted
}
