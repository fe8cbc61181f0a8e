// Package watch finds out whether booked starts have become void: because a budget was
// paused, because a pause was lifted so that there may be an earlier start, or because
// the upstream has less left than was known. It is told of that; where a node cannot be
// sure to be told, it asks Redis before the start. See docs/bans.md.
package watch

import (
	"context"
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

	mu      sync.Mutex
	watches map[string]map[*Watch]struct{} // by the keys of their budgets
	past    []pastInvalidation             // the oldest first
	pastEnd time.Time                      // what came before then is forgotten
	servers map[string]*server             // those that are asked, by own channel
}

// New returns the watches of a node. They ask Redis by the function, which makes one
// call and returns the pauses of some budgets in order.
func New(c *conn.Conn, subs *notify.Subscriptions, ask func(context.Context, []string) ([]notify.Pause, error)) *Watches {
	return &Watches{
		SubscribeFrom: SubscribeFrom, conn: c, subs: subs, ask: ask,
		watches: make(map[string]map[*Watch]struct{}), servers: make(map[string]*server),
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

// A Watch is kept over one start.
type Watch struct {
	Start
	owner      *Watches
	news       chan<- struct{}
	subscribed bool
	known      time.Time   // all pauses stored before then are; guarded by the owner's lock
	void       atomic.Bool // the start is of no use any more
	stopped    atomic.Bool
}

// Add begins a watch, which sends on news when the start may be void. If something was
// received of its budgets before the reply to its booking came, or may have been and is
// forgotten, the watch must ask: nobody knows which of the two was later.
func (ws *Watches) Add(s Start, news chan<- struct{}) *Watch {
	w := &Watch{Start: s, owner: ws, news: news, known: s.Sent}
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
	if concerned, lifted := ws.missed(w); concerned {
		if lifted {
			w.void.Store(true)
		}
		w.known = time.Time{}
		w.tell()
	}
	return w
}

// Void reports whether the start is known to be of no use any more.
func (w *Watch) Void() bool { return w.void.Load() }

// Confirm reports whether the start may still be used. If that is not sure it asks
// Redis, as long as ctx and maxWait allow.
func (w *Watch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if w.Void() {
		return false, nil
	}
	if len(w.Keys) > 0 && !w.owner.subs.CompleteSince(w.Channels.Own, w.knownSince()) {
		if err := w.owner.query(ctx, w, maxWait); err != nil {
			return false, err
		}
	}
	return !w.Void(), nil
}

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

// knownSince returns when all pauses are known from that concern a watch.
func (w *Watch) knownSince() time.Time {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	return w.known
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
