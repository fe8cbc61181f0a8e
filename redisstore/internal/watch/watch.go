// Package watch finds out whether booked starts have become void: because a budget was
// paused, because a pause was lifted so that there may be an earlier start, or because
// the upstream has less left than was known. Messages tell the node so. Where a node cannot be
// sure to receive all messages, it asks Redis before the start. See docs/internals/bans.md.
package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

// SubscribeFrom is how long the wait for a start must be to be worth a subscription. A watch over a
// nearer start asks Redis instead.
const SubscribeFrom = 20 * time.Millisecond

// Watches are all watches of a node.
type Watches struct {
	SubscribeFrom time.Duration // the constant, unless a test has watches always ask

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

// A Start is the booked start over which a watch is kept.
type Start struct {
	Channels notify.Channels
	Keys     []string      // of the budgets that count
	At       int64         // the start by the server's clock, in microseconds
	Sent     time.Time     // when the booking was sent
	Due      time.Time     // the start by the node's clock, or a little later
	Doubt    time.Duration // by how much Due may be too late

	// Charges are those of the start whose budgets a node has a history of. If Redis
	// lost one of them it is told.
	Charges []store.Charge
}

// clockDoubt is by how much the End and the Left of a pause may disagree about a start because
// messages and replies are on their way. If they disagree by more, the server's clock was set back
// after the start was booked, and Left counts, too.
const clockDoubt = 250 * time.Millisecond

// A querier asks a server one query after the other. Callers that ask while a query is on its
// way share the next one.
type querier struct{ next *query } // nil: nobody waits for a next query

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
	fails   int   // how many calls for the query failed
	last    error // why the last of them failed
}

// A Watch is kept over one start.
type Watch struct {
	Start
	owner      *Watches
	news       chan<- struct{}
	subscribed bool
	knownUntil time.Time   // the watch knows all pauses that were stored before this; guarded by the owner's lock
	void       atomic.Bool // the start is of no use any more
	stopped    atomic.Bool
}

// Add begins a watch, which sends on news when the start may be void. If a message about its budgets
// was received since its booking was sent, or may have been received and is forgotten, the watch
// must ask Redis: nobody knows whether the script that booked knew of what the message says.
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

// pausesKnownUntil returns the time before which all pauses of the watch's budgets are known.
func (w *Watch) pausesKnownUntil() time.Time {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	return w.knownUntil
}

// learn takes in the pause of a budget of the watch: if it ends after the start, the start is void.
func (w *Watch) learn(p notify.Pause) {
	if p.End > w.At || p.Left > max(0, time.Until(w.Due)+w.Doubt+clockDoubt) {
		w.void.Store(true)
	}
}

// tell sends on news.
func (w *Watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not taken in what was sent before
	}
}

// A pastInvalidation is a pause that was received, or the end of one.
type pastInvalidation struct {
	notify.Pause
	at time.Time
}

// A pause can be received before the reply to the booking that it makes void. So the messages of
// the last pastTime are kept, the last pastMost of them.
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

// Charges returns the charges of some watched start that needs a budget; nil if there is no such
// start.
func (ws *Watches) Charges(key string) []store.Charge {
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

// newsSinceBooking reports whether a message about a watch's budgets was received since its booking
// was sent, or may have been, and whether one said since then that a pause was lifted.
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
