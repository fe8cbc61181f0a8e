package notify

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/store"
)

// Each booked start that lies ahead has a watch, which finds out whether the start has become void: from messages or,
// where messages may have been lost, by a question to Redis before the start.

// SubscribeFrom is how long the wait for a start must be to be worth a subscription. A watch over a
// nearer start asks Redis instead.
const SubscribeFrom = 20 * time.Millisecond

// Watches are all watches of a node. They are safe for concurrent use.
type Watches struct {
	SubscribeFrom time.Duration // see the constant

	conn *conn.Conn
	subs *Subscriptions
	ask  func(ctx context.Context, keys []string) ([]Pause, error)

	mu             sync.Mutex
	watches        map[string]map[*Watch]struct{} // by the keys of their budgets
	pastNews       []pastMessage                  // the oldest first
	forgottenUntil time.Time                      // messages that were received up to this time may be missing in pastNews
	asking         bool                           // serve runs
	next           *query                         // that serve asks next, or nil while no caller waits for it
}

// NewWatches returns the watches of a node. They ask Redis by calling ask, which makes one
// call and returns the pauses of some budgets in order.
func NewWatches(c *conn.Conn, subs *Subscriptions, ask func(context.Context, []string) ([]Pause, error)) *Watches {
	return &Watches{SubscribeFrom: SubscribeFrom, conn: c, subs: subs, ask: ask, watches: make(map[string]map[*Watch]struct{})}
}

// A Start is the booked start over which a watch is kept.
type Start struct {
	Keys  []string      // of the budgets that count
	At    int64         // the start by the server's clock, in microseconds
	Sent  time.Time     // when the booking was sent
	Due   time.Time     // the start by the node's clock, or a little later
	Doubt time.Duration // by how much Due may be too late

	// Charges are the charges of the start whose budgets have a history on this node. A Redis that
	// lost one of these budgets is told of it.
	Charges []store.Charge
}

// A Watch is kept over one start.
type Watch struct {
	Start
	owner      *Watches
	news       chan<- struct{}
	subscribed bool
	begun      time.Time   // when the watch began: messages from before did not come to it
	knownUntil time.Time   // the watch knows all pauses that were stored before this; guarded by the owner's lock
	void       atomic.Bool // the start is of no use any more
	stopped    atomic.Bool
}

// Add begins a watch, which sends on news when the start may be void. If a message about its budgets
// was received since its booking was sent, or may have been received and is forgotten, the watch
// must ask Redis: nobody knows whether the message came before the script that booked.
func (ws *Watches) Add(s Start, news chan<- struct{}) *Watch {
	w := &Watch{Start: s, owner: ws, news: news, knownUntil: s.Sent}
	w.subscribed = time.Until(s.Due) > ws.SubscribeFrom

	// For a near start one question is cheaper than a subscription.
	if w.subscribed {
		ws.subs.Retain()
	}

	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.begun = time.Now()

	for _, key := range w.Keys {
		if ws.watches[key] == nil {
			ws.watches[key] = make(map[*Watch]struct{})
		}
		ws.watches[key][w] = struct{}{}
	}

	// A message may have come before the booking, or after: only a question tells.
	if concerned, void := ws.newsSinceBooking(w); concerned {
		if void {
			w.void.Store(true)
		}
		w.knownUntil = time.Time{}
		w.tell()
	}

	return w
}

// newsSinceBooking reports whether a message about a watch's budgets was received since its booking
// was sent, or may have been, and whether such a message made the watch's start void.
func (ws *Watches) newsSinceBooking(w *Watch) (concerned, void bool) {
	concerned = w.Sent.Before(ws.forgottenUntil)
	for i := len(ws.pastNews) - 1; i >= 0 && !ws.pastNews[i].at.Before(w.Sent); i-- {
		if m := &ws.pastNews[i]; slices.Contains(w.Keys, m.Key) {
			concerned = true

			// A message that was received when the booking was sent is older, and makes nothing void.
			void = void || m.at.After(w.Sent) && m.From <= w.At && w.At < m.Until
		}
	}
	return concerned, void
}

// Stop ends the watch. It may be called more than once.
func (w *Watch) Stop() {
	wasStopped := w.stopped.Swap(true)
	if wasStopped {
		return
	}

	w.owner.remove(w)
	if w.subscribed {
		w.owner.subs.Release()
	}
}

// remove takes a watch out of the lists of all its keys.
func (ws *Watches) remove(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, key := range w.Keys {
		delete(ws.watches[key], w)
		if len(ws.watches[key]) == 0 {
			delete(ws.watches, key)
		}
	}
}

// Void reports whether the start is known to be of no use any more.
func (w *Watch) Void() bool { return w.void.Load() }

// clockDoubt is by how much the End and the Left of a pause may disagree about a start because
// messages and replies are on their way. If they disagree by more, the server's clock was set back
// after the start was booked, and Left counts, too.
const clockDoubt = 250 * time.Millisecond

// learn marks the start as void if a pause of one of its budgets ends after the start, by the pause's End or by its Left:
// see clockDoubt.
func (w *Watch) learn(p Pause) {
	if p.End > w.At || p.Left > max(0, time.Until(w.Due)+w.Doubt+clockDoubt) {
		w.void.Store(true)
	}
}

// tell sends on news.
func (w *Watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not read the earlier news yet
	}
}

// A pastMessage is a received message that starts of a budget are void, or may be: the message of a pause has an
// empty Invalidation, and only Redis knows whether the pause or the booking came first.
type pastMessage struct {
	Invalidation
	at time.Time
}

// A message can be received before the reply to the booking that it makes void. So the messages of
// the last pastTime are kept, the last maxPast of them.
const (
	pastTime = time.Minute
	maxPast  = 1 << 12
)

// Paused passes a pause, or the end of a pause, on to the watches of a budget, the earliest
// start first, so that their callers book anew in that order. It keeps the message for watches
// of bookings that are on their way.
func (ws *Watches) Paused(p Pause) {
	// If a pause was lifted, every start is void: its caller may have an earlier start now.
	if p.Lifted() {
		ws.Invalidated(Invalidation{Key: p.Key, Until: math.MaxInt64})
		return
	}

	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.keep(Invalidation{Key: p.Key})
	for _, w := range ws.inOrder(p.Key) {
		w.learn(p)
		if w.Void() {
			w.tell()
		}
	}
}

// keep keeps a message for watches of bookings that are on their way. The lock is held.
func (ws *Watches) keep(i Invalidation) {
	// Forget old messages, and note up to when: watches of earlier bookings must ask.
	now := time.Now()
	for len(ws.pastNews) > 0 && (now.Sub(ws.pastNews[0].at) > pastTime || len(ws.pastNews) >= maxPast) {
		ws.forgottenUntil, ws.pastNews = ws.pastNews[0].at, ws.pastNews[1:]
	}
	ws.pastNews = append(ws.pastNews, pastMessage{i, now})
}

// Invalidated makes all starts of a budget between two times void, also those of bookings that are on their way.
func (ws *Watches) Invalidated(i Invalidation) {
	// There is no start between two times that are equal or out of order.
	if i.From >= i.Until {
		return
	}

	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.keep(i)
	for _, w := range ws.inOrder(i.Key) {
		if i.From <= w.At && w.At < i.Until {
			w.void.Store(true)
			w.tell()
		}
	}
}

// inOrder returns the watches of a budget, the earliest start first.
func (ws *Watches) inOrder(key string) []*Watch {
	all := slices.Collect(maps.Keys(ws.watches[key]))
	slices.SortFunc(all, func(a, b *Watch) int { return cmp.Compare(a.At, b.At) })
	return all
}

// Charges returns the charges of some watched start that needs a budget, or nil if there is no such
// start.
func (ws *Watches) Charges(key string) []store.Charge {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.watches[key] {
		return w.Start.Charges
	}
	return nil
}

// Confirm reports whether the start may still be used. If the node may have missed a message it asks
// Redis, as long as ctx and maxWait allow.
func (w *Watch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if w.Void() {
		return false, nil
	}

	// A start without keys is held by no pause. With messages complete since the booking, the node knows all that Redis could say.
	if len(w.Keys) > 0 && !w.owner.subs.CompleteSince(w.pausesKnownUntil()) {
		if err := w.owner.query(ctx, w, maxWait); err != nil {
			return false, err
		}
	}
	return !w.Void(), nil
}

// pausesKnownUntil returns the time before which all pauses of the watch's budgets are known.
func (w *Watch) pausesKnownUntil() time.Time {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	return w.knownUntil
}

// A query asks Redis for the pauses of the budgets of some watches. Queries are asked in sequence, and
// callers that ask while a query is on its way share the next query.
type query struct {
	keys   map[string]struct{}
	ctx    context.Context // ends when all callers have left
	stop   context.CancelFunc
	failed chan struct{} // closed when a call has failed
	done   chan struct{}
	err    error // set when done is closed

	// The lock of the watches guards the rest.
	callers int
	fails   int   // how many calls for the query failed
	last    error // why the last of them failed
}

// query asks Redis for the pauses of a watch's budgets, and passes them on to all watches over these budgets. It returns an
// error if Redis refuses, or if ctx or maxWait ends before Redis answers.
func (ws *Watches) query(ctx context.Context, w *Watch, maxWait time.Duration) error {
	since := time.Now()
	timeUp, stop := conn.Timeout(ctx, maxWait, since)
	defer stop()

	// Callers that ask at the same time share a query.
	q := ws.joinQuery(w)
	defer ws.leaveQuery(q)

	// Report an outage to the caller's observer while the caller waits.
	var tell func()
	if observer := outage.From(ctx); observer != nil {
		tell = func() { observer.StoreAway(ws.conn.Cause(ws.unavailability(q, since))) }
	}
	if conn.Await(ctx, since, q.done, timeUp, q.failed, tell) {
		return q.err
	}

	return ws.conn.Unavailable(ws.unavailability(q, since), context.Cause(ctx))
}

// joinQuery adds the budgets of a watch to the next query, and has it asked.
func (ws *Watches) joinQuery(w *Watch) *query {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	// A query that all its callers have left has ended, so it cannot be joined.
	if ws.next == nil || ws.next.ctx.Err() != nil {
		ws.next = &query{keys: make(map[string]struct{}), failed: make(chan struct{}), done: make(chan struct{})}
		ws.next.ctx, ws.next.stop = context.WithCancel(context.Background())
	}

	for _, key := range w.Keys {
		ws.next.keys[key] = struct{}{}
	}

	// One goroutine asks, as long as there is a query.
	ws.next.callers++
	if !ws.asking {
		ws.asking = true
		go ws.serve()
	}

	return ws.next
}

// leaveQuery notes that a caller waits for a query no longer. It ends a query without callers.
func (ws *Watches) leaveQuery(q *query) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q.callers--
	if q.callers == 0 {
		q.stop()
	}
}

// unavailability returns why a query has no answer yet, for a caller that waits since a time.
func (ws *Watches) unavailability(q *query, since time.Time) conn.Unavailability {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return conn.Unavailability{Since: since, Fails: q.fails, Last: q.last}
}

// serve asks the queries in sequence, until there is none.
func (ws *Watches) serve() {
	for {
		ws.mu.Lock()
		q := ws.next

		// The next query is taken as a whole: callers that come from now on share the one after it.
		ws.next, ws.asking = nil, q != nil
		ws.mu.Unlock()
		if q == nil {
			return
		}

		asked := time.Now()
		var found []Pause
		if found, q.err = ws.call(q); q.err == nil {
			ws.answered(q, found, asked)
		}

		close(q.done)
	}
}

// maxKeys bounds how many budgets one call asks about.
const maxKeys = 256

// call asks Redis for the pauses of a query's budgets, again and again until Redis answers or the
// query ends.
func (ws *Watches) call(q *query) (found []Pause, err error) {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(q.keys)), maxKeys) {
		var some []Pause
		err = ws.conn.Retry(q.ctx, func(err error) { ws.fail(q, err) }, func() (err error) {
			some, err = ws.ask(q.ctx, keys)
			return err
		})
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// fail notes why a call for a query failed.
func (ws *Watches) fail(q *query, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q.fails, q.last = q.fails+1, err

	// The channel is closed once, at the first failure.
	if q.fails == 1 {
		close(q.failed)
	}
}

// answered passes the pauses that a query found on to all watches over their budgets. asked is when the query was sent: a
// watch that had begun by then, and whose budgets were all in the query, knows all pauses that were stored before asked.
func (ws *Watches) answered(q *query, found []Pause, asked time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	for _, p := range found {
		for w := range ws.watches[p.Key] {
			w.learn(p)

			// A watch that began later may lack messages that came after the query.
			isUnasked := func(key string) bool { _, ok := q.keys[key]; return !ok }
			if !w.begun.After(asked) && !slices.ContainsFunc(w.Keys, isUnasked) {
				w.knownUntil = asked
			}
			if w.Void() {
				w.tell()
			}
		}
	}
}
