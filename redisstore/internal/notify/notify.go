// Package notify brings a node the news of Redis while one of its callers waits, and finds out whether booked starts have
// become void: because a budget was paused, because a pause was lifted so that there may be an earlier start, or because
// the upstream has less left than was known. Messages of the scripts and of the fleet tell the node so. A subscription
// knows since when it has surely received all messages, because it publishes beats to itself, and receives them. Where
// it cannot be sure, the node asks Redis before the start. See docs/internals/bans.md.
//
// First come the watches over booked starts, then the subscription, then the messages.
package notify

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

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
	pastNews       []pastInvalidation             // the oldest first
	forgottenUntil time.Time                      // invalidations that came before then are forgotten
	asking         bool                           // serve runs
	next           *query                         // that serve asks next, or nil while no caller waits for it
}

// NewWatches returns the watches of a node. They ask Redis by the function, which makes one
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

	// A start that is near is asked for once, which is cheaper than a subscription.
	if w.subscribed {
		ws.subs.Retain()
	}

	ws.mu.Lock()
	defer ws.mu.Unlock()

	for _, key := range w.Keys {
		if ws.watches[key] == nil {
			ws.watches[key] = make(map[*Watch]struct{})
		}
		ws.watches[key][w] = struct{}{}
	}

	// A message may have come before the booking, or after: only a question tells.
	if concerned, lifted := ws.newsSinceBooking(w); concerned {
		if lifted {
			w.void.Store(true)
		}
		w.knownUntil = time.Time{}
		w.tell()
	}

	return w
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

// Stop ends the watch. It may be called more than once.
func (w *Watch) Stop() {
	if w.stopped.Swap(true) {
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

// learn takes in the pause of a budget of the watch: if it ends after the start, the start is void.
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

// A pastInvalidation is a pause that was received, or the end of a pause.
type pastInvalidation struct {
	Pause
	at time.Time
}

// A pause can be received before the reply to the booking that it makes void. So the messages of
// the last pastTime are kept, the last maxPast of them.
const (
	pastTime = time.Minute
	maxPast  = 1 << 12
)

// Paused passes a pause, or the end of a pause, on to the watches of a budget, the earliest
// start first, so that their callers book anew in that order.
func (ws *Watches) Paused(p Pause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	// Old messages are forgotten, and it is noted up to when: a watch of an earlier booking must ask.
	now := time.Now()
	for len(ws.pastNews) > 0 && (now.Sub(ws.pastNews[0].at) > pastTime || len(ws.pastNews) >= maxPast) {
		ws.forgottenUntil, ws.pastNews = ws.pastNews[0].at, ws.pastNews[1:]
	}

	ws.pastNews = append(ws.pastNews, pastInvalidation{p, now})

	for _, w := range ws.inOrder(p.Key) {
		// The end of a pause voids every start: callers may start earlier now.
		w.learn(p)
		if p.Lifted() {
			w.void.Store(true)
		}
		if w.Void() {
			w.tell()
		}
	}
}

// Invalidated makes the starts of a budget void that lie between two times.
func (ws *Watches) Invalidated(i Invalidation) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
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

	// With messages complete since the booking, the node knows all that Redis could say.
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

// query asks Redis for the pauses of a watch's budgets, and tells all watches over them.
func (ws *Watches) query(ctx context.Context, w *Watch, maxWait time.Duration) error {
	since := time.Now()
	timeUp, stop := conn.Timeout(ctx, maxWait, since)
	defer stop()

	// Callers that ask at the same time share a query.
	q := ws.joinQuery(w)
	defer ws.leaveQuery(q)

	// The observer hears of an outage while the caller waits.
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

	if ws.next == nil || ws.next.ctx.Err() != nil { // ended: all its callers have left
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
		err := ws.conn.Retry(q.ctx, func(err error) { ws.fail(q, err) }, func() (err error) {
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

// answered passes the pauses that a query found on to all watches over their budgets. asked is when
// the query was sent: a watch all of whose budgets were in the query knows all pauses before that.
func (ws *Watches) answered(q *query, found []Pause, asked time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()

	for _, p := range found {
		for w := range ws.watches[p.Key] {
			w.learn(p)

			// Only if all of its budgets were asked about, the watch knows all pauses.
			if !slices.ContainsFunc(w.Keys, func(key string) bool { _, ok := q.keys[key]; return !ok }) {
				w.knownUntil = asked
			}
			if w.Void() {
				w.tell()
			}
		}
	}
}

// A Conn is the way to Redis.
type Conn interface {
	Publish(ctx context.Context, channel, message string) error

	// Subscribe returns nil where there is nobody to listen to.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Channels are the two channels that a subscription listens to.
type Channels struct {
	Own    string // this node's
	Shared string // the channel of all nodes
}

// ChannelsOf returns the channels of a node.
func ChannelsOf(n *wire.Space) Channels {
	return Channels{n.Own(), n.Shared()}
}

// Subscriptions are the subscriptions of a node: a single one while a caller waits, and for a little longer.
type Subscriptions struct {
	// Listen keeps a subscription until ctx ends. Tests in virtual time replace it.
	Listen func(ctx context.Context, sub *Subscription)

	conn     Conn
	channels func() Channels
	receive  func(Message)

	mu  sync.Mutex
	sub *Subscription // nil while nobody waits
}

// A Subscription is one connection that listens, or tries to.
type Subscription struct {
	Channels
	owner *Subscriptions

	// The lock of the owner guards the rest.
	users     int
	idle      *time.Timer
	stop      context.CancelFunc
	heartbeat heartbeat
}

// linger is for how long a subscription stays without users: the next one often comes
// soon.
const linger = 500 * time.Millisecond

// New returns the subscriptions of a node, which pass messages on to receive.
func New(conn Conn, channels func() Channels, receive func(Message)) *Subscriptions {
	s := &Subscriptions{conn: conn, channels: channels, receive: receive}
	s.Listen = s.listen
	return s
}

// Retain adds a user of the subscription, which begins with the first user.
func (s *Subscriptions) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The first user begins the subscription.
	if s.sub == nil {
		var ctx context.Context
		s.sub = &Subscription{Channels: s.channels(), owner: s}
		ctx, s.sub.stop = context.WithCancel(context.Background())
		go s.Listen(ctx, s.sub)
	}
	s.sub.users++
}

// Release removes a user. The subscription ends soon after the last user.
func (s *Subscriptions) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.sub
	sub.users--
	switch {
	case sub.users > 0:
	case sub.idle != nil:
		sub.idle.Reset(linger)

	// The next user often comes soon, so the subscription lingers.
	default:
		sub.idle = time.AfterFunc(linger, func() { s.end(sub) })
	}
}

// end ends a subscription that has no users. A timer that is set anew while end waits for the lock calls end
// twice: then the subscription has ended before, and there may be a new one.
func (s *Subscriptions) end(sub *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.users == 0 && s.sub == sub {
		s.sub = nil
		sub.stop()
	}
}

// Active reports whether there is a subscription.
func (s *Subscriptions) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sub != nil
}

// A heartbeat says since when a subscription has received all messages: the beats that the subscription publishes
// take the way of all messages. A connection that is up proves nothing. It may be half open, or lead to a server
// that has ceased to be master.
type heartbeat struct {
	subscribed    time.Time // when the server had confirmed the shared channel; the zero time before that
	completeFrom  time.Time // no message since then was lost; the zero time if that is not known
	completeUntil time.Time // and before then
	sent          time.Time // when the last beat was
	sending       bool      // and it is still on its way to the server
}

const (
	beatEvery = time.Second
	minQuiet  = 50 * time.Millisecond
	validFor  = 2 * beatEvery // for how long after the last beat a subscription is believed to be complete
)

// origin is the time from which the times of beats count.
var origin = time.Now()

// CompleteSince reports whether the node has surely received all that was published since a time, except what
// is on its way.
func (s *Subscriptions) CompleteSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sub == nil {
		return false
	}

	// Beats have come back since before that time, and the last one a short time ago.
	h := &s.sub.heartbeat
	return !h.completeFrom.IsZero() && !h.completeFrom.After(t) && time.Since(h.completeUntil) < validFor
}

// connected notes that the shared channel is confirmed.
func (sub *Subscription) connected() {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	sub.heartbeat = heartbeat{subscribed: time.Now(), sending: sub.heartbeat.sending}
}

// disconnected notes that the connection is gone.
func (sub *Subscription) disconnected() {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	sub.heartbeat = heartbeat{sending: sub.heartbeat.sending}
}

// received notes that a beat came back.
func (sub *Subscription) received(b beat) {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h, sent := &sub.heartbeat, origin.Add(time.Duration(b))
	if h.subscribed.IsZero() || sent.Before(h.subscribed) {
		return // it was sent before the connection could receive all
	}
	if h.completeFrom.IsZero() {
		h.completeFrom = sent
	}
	h.completeUntil = sent
}

// listenTime returns how long to listen before it is time for the next beat.
func (sub *Subscription) listenTime() time.Duration {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()
	h := &sub.heartbeat
	if h.subscribed.IsZero() || h.sending {
		return silence
	}
	return min(silence, max(minQuiet, beatEvery-time.Since(h.sent)))
}

// beat publishes a beat, if it is time to. The call takes as long as the client lets
// it, so it has a goroutine of its own.
func (sub *Subscription) beat(ctx context.Context) {
	sub.owner.mu.Lock()
	defer sub.owner.mu.Unlock()

	// Not before the server has confirmed the subscription, or the beat would be lost.
	h, now := &sub.heartbeat, time.Now()
	if h.subscribed.IsZero() || h.sending || now.Sub(h.sent) < beatEvery {
		return
	}

	// Only one beat is on its way at a time: a slow server is not given more of them.
	h.sent, h.sending = now, true
	go func() {
		// Whether it worked shows when the beat comes back.
		_ = sub.owner.conn.Publish(ctx, sub.Own, beat(now.Sub(origin)).String())
		sub.owner.mu.Lock()
		defer sub.owner.mu.Unlock()
		sub.heartbeat.sending = false
	}()
}

// silence is after what time without a message a connection is tried.
const silence = time.Second

// listen connects again and again until ctx ends.
func (s *Subscriptions) listen(ctx context.Context, sub *Subscription) {
	for pauses := (conn.Backoff{}); ctx.Err() == nil; pauses.Wait(ctx, nil) {
		c := s.conn.Subscribe(ctx, sub.Own, sub.Shared)
		if c == nil {
			continue
		}

		// A read that waits ends only when the connection is closed.
		stop := context.AfterFunc(ctx, func() { c.Close() })
		if sub.readLoop(ctx, c) {
			pauses = conn.Backoff{}
		}

		sub.disconnected()
		stop()
		c.Close()
	}
}

// readLoop reads one connection until it fails, and reports whether it ever worked.
// After a silence it sends a beat, and then asks for any answer.
func (sub *Subscription) readLoop(ctx context.Context, c *redis.PubSub) (worked bool) {
	for silences := 0; ; {
		m, err := c.ReceiveTimeout(ctx, sub.listenTime())
		switch {
		case err == nil:
			worked, silences = true, 0
			sub.Deliver(m)
		// After a silence, any answer to a ping shows that the connection is alive.
		case !timedOut(err) || silences > 1 || silences == 1 && c.Ping(ctx) != nil:
			return worked
		default:
			silences++
		}

		sub.beat(ctx)
	}
}

// Deliver takes what came on a connection, as the client knows it.
func (sub *Subscription) Deliver(m any) {
	var known Message
	switch m := m.(type) {
	// Only the shared channel brings pauses, so the connection is complete from its confirmation on.
	case *redis.Subscription:
		if m.Channel == sub.Shared {
			sub.connected()
		}
		known = Subscribed{m.Channel}

	case *redis.Message:
		if m.Channel == sub.Shared {
			known = parseShared(m.Payload)
		} else {
			known = parseOwn(m.Payload)
		}
	}

	// Beats are for the subscription itself, and all other messages for the node.
	if b, ok := known.(beat); ok {
		sub.received(b)
	} else if known != nil {
		sub.owner.receive(known)
	}
}

// timedOut reports whether nothing came, though the connection may be fine.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A Message is one of the types below. The scripts publish most of them; nodes publish a Loss and their own beats.
type Message any

// Subscribed says that messages on a channel are received from now on. Earlier messages
// may be lost.
type Subscribed struct{ Channel string }

// A Pause says until when a budget is paused, of lua/age.lua.
type Pause struct {
	Key  string
	End  int64         // by the server's clock, in microseconds, or 0 if the pause was lifted
	Left time.Duration // until then
}

// Lifted reports whether the pause was lifted.
func (p Pause) Lifted() bool { return p.End == 0 }

// An Invalidation says that the starts of a budget are void that lie between two times of the server's clock: at or
// after From, and before Until. lua/reconcile.lua publishes it.
type Invalidation struct {
	Key         string
	From, Until int64
}

// Turns says whose turn it is in the line of a budget: the turn of the callers whose tickets are below the cut of
// their class. lua/queue.lua publishes it.
type Turns struct {
	Key   string
	Line  int64
	Cuts  [3]int64 // by class, of callers without a share
	Lanes []Cut    // that have moved, of a line with shares, which has no Cuts
}

// A Cut is the cut of the callers of one class and one share. Callers without a share have the share 0.
type Cut struct {
	Class int64
	Share uint64
	Cut   int64
}

// Slots says for which of this node's waiters a concurrency limit has slots set aside;
// of lua/slots.lua. Waiters are named by their arrivals.
type Slots struct {
	Key      string
	Arrivals []int64
}

// A Loss says that Redis lost a budget. The node that finds out publishes it.
type Loss struct{ Key string }

// A beat is a message that a subscription publishes to itself, at a time since origin.
type beat time.Duration

// The first words of messages. A Pause begins with a number.
const (
	invalidationMark = "anew "
	turnsMark        = "come "
	cutsMark         = "cuts "
	lossMark         = "lost "
	beatMark         = "~"
)

// String returns the message as it is published.
func (l Loss) String() string { return lossMark + l.Key }

// String returns the message as it is published.
func (b beat) String() string { return beatMark + strconv.FormatInt(int64(b), 10) }

// parseShared takes a message apart that all nodes receive. It returns nil if the message makes no sense.
func parseShared(text string) Message {
	// A mark in front tells what the numbers are. A pause has no mark.
	if rest, ok := strings.CutPrefix(text, invalidationMark); ok {
		if n, key := numbers(rest, 2); n != nil {
			return Invalidation{key, n[0], n[1]}
		}
	} else if rest, ok := strings.CutPrefix(text, turnsMark); ok {
		if n, key := numbers(rest, 4); n != nil {
			return Turns{Key: key, Line: n[0], Cuts: [3]int64(n[1:])}
		}
	} else if rest, ok := strings.CutPrefix(text, cutsMark); ok {
		return parseCuts(rest)
	} else if key, ok := strings.CutPrefix(text, lossMark); ok {
		return Loss{key}
	} else if n, key := numbers(text, 2); n != nil {
		return Pause{key, n[0], time.Duration(n[1]) * time.Microsecond}
	}

	return nil
}

// maxCuts is how many lanes a line can have.
const maxCuts = 1024

// parseCuts takes a message about lanes of shares apart. It returns nil if the message makes no sense.
func parseCuts(text string) Message {
	n, rest := numbers(text, 2)
	if n == nil || n[1] < 1 || n[1] > maxCuts {
		return nil
	}

	all, key := numbers(rest, 3*int(n[1]))
	if all == nil {
		return nil
	}

	t := Turns{Key: key, Line: n[0]}
	for i := 0; i < len(all); i += 3 {
		t.Lanes = append(t.Lanes, Cut{all[i], uint64(all[i+1]), all[i+2]})
	}

	return t
}

// parseOwn takes a message apart that only this node receives. It returns nil if the message makes no sense.
func parseOwn(text string) Message {
	if nanos, ok := strings.CutPrefix(text, beatMark); ok {
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return nil
		}
		return beat(n)
	}

	// Arrivals are separated by commas, and the key of the budget follows.
	list, key, _ := strings.Cut(text, " ")
	s := Slots{Key: key}
	for name := range strings.SplitSeq(list, ",") {
		if at, err := strconv.ParseInt(name, 10, 64); err == nil {
			s.Arrivals = append(s.Arrivals, at)
		}
	}

	return s
}

// numbers returns the first count numbers of a text, and the rest of the text. It returns nil if the text begins
// with fewer numbers.
func numbers(text string, count int) (n []int64, rest string) {
	for range count {
		number, more, ok := strings.Cut(text, " ")
		v, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			return nil, ""
		}
		n, text = append(n, v), more
	}
	return n, text
}
