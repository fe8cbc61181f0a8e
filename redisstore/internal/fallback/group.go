package fallback

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Store sends callers to a primary, and to a store of this node while the primary
// is away.
type Store struct {
	Options
	primary Primary

	mu      sync.Mutex
	groups  map[string]*group
	telling map[*penalty]struct{} // penalties of which the primary is being told: a share that begins takes them over
	away    bool                  // a group has given the primary up, and no heartbeat was answered since
}

// A penalty closes a budget until its end.
type penalty struct {
	key string // as of Primary.PauseKey
	end time.Time
}

// tell notes a penalty of which the primary is being told, and told takes the note back. A share that begins meanwhile
// begins with the penalty, because the primary may not have heard of it yet.
func (s *Store) tell(c *store.Charge, d time.Duration) (told func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &penalty{s.primary.PauseKey(c), time.Now().Add(min(d, store.MaxAhead))}
	s.telling[p] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.telling, p)
	}
}

// Groups returns how many groups are in use.
func (s *Store) Groups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups)
}

// local returns a group's share, in which callers book while the primary is away. Before that it returns nil.
func (s *Store) local(group string) *localShare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[group]; g != nil {
		return g.local
	}
	return nil
}

// A group is budgets that one request can need together, while they are in use and a
// little longer. The store's lock guards all of it.
type group struct {
	store        *Store
	name         string
	users        int           // calls that book, and watches
	lastUsed     time.Time     // when the last of these left
	routeChanged chan struct{} // closed, and made anew, when the route may have changed
	beats        heartbeats

	up             context.Context // ends, with errAway, when the primary is given up
	giveUp         context.CancelCauseFunc
	local          *localShare // where callers are then
	answeringSince time.Time   // since when the primary answers again
}

const (
	linger     = 10 * time.Second       // how long an unused group still counts as used
	steadyFor  = 500 * time.Millisecond // how long the primary has to answer until it is back
	reportTime = 2 * time.Second
)

// enter returns the group with a name, which counts as used until leave. The first user begins its heartbeats.
func (s *Store) enter(name string) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		// With FailOpen, and if the primary is known to be away, one heartbeat without an answer is enough to give it up.
		began := time.Now()
		if s.FailOpen && s.away {
			began = began.Add(-openWait)
		}
		g = &group{store: s, name: name, routeChanged: make(chan struct{}), beats: heartbeats{began: began}}
		g.usePrimary()
		s.groups[name] = g
		go g.run()
	}
	g.users++
	return g
}

// leave ends what enter began.
func (g *group) leave() {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	g.users--
	g.lastUsed = time.Now()
}

// usePrimary has callers book in the primary from now on. The store is locked.
func (g *group) usePrimary() {
	g.local, g.answeringSince = nil, time.Time{}
	g.up, g.giveUp = context.WithCancelCause(context.Background())
}

// signal has all callers that wait look at their route again. The store is locked.
func (g *group) signal() {
	close(g.routeChanged)
	g.routeChanged = make(chan struct{})
}

// run sends a heartbeat, and sets when it runs again, until the group is forgotten.
func (g *group) run() {
	// A wait of 0 means that the next heartbeat is due now: the same goroutine goes on.
	for {
		kind, over := g.nextKind()
		if over {
			return
		}

		wait, over := g.beat(kind)
		if over {
			return
		}

		if wait > 0 {
			time.AfterFunc(wait, g.run)
			return
		}
	}
}

// nextKind returns the kind of the next heartbeat. It forgets a group that nobody uses, and whose leaving
// nobody needs to be told: then over is true, and no heartbeat is sent any more.
func (g *group) nextKind() (k Kind, over bool) {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()

	// A group that nobody uses leaves, so that others need not leave room for it. Nobody can be told while the primary is given up, and nobody needs
	// to be told if the primary never counted this node. A primary that may be away is first asked whether it answers.
	switch idle := g.idle(time.Now()); {
	case idle && (g.local != nil || g.beats.heard.IsZero()):
		delete(g.store.groups, g.name)
		return Leave, true
	case idle:
		return Leave, false
	case g.local != nil || g.beats.fails > 0:
		return Look, false
	}
	return Beat, false
}

// idle reports whether nobody has used the group for linger, and no start of its share
// counts any more.
func (g *group) idle(now time.Time) bool {
	// Callers that wait in line book again later: they use the group.
	if g.store.primary.Waiting(g.name) {
		g.lastUsed = now
	}
	after := linger
	if g.local != nil {
		after = max(after, g.local.longestKeep())
	}
	return g.users == 0 && now.Sub(g.lastUsed) > after
}

// beat sends a heartbeat and acts on the answer, or on the lack of one. It returns how long to wait
// before the next heartbeat. over says that the group is forgotten.
func (g *group) beat(k Kind) (wait time.Duration, over bool) {
	r, sent, err := g.send(k)
	g.store.mu.Lock()
	defer g.store.mu.Unlock()

	// Callers may have used the group while the heartbeat was on its way.
	now := time.Now()
	switch {
	case k == Leave && g.idle(now):
		delete(g.store.groups, g.name)
		return 0, true
	// The group is used again. Even if nobody has answered the Leave, the group counts as gone, and begins anew.
	case k == Leave:
		g.beats = heartbeats{began: now}
		return 0, false
	case err != nil:
		g.answeringSince = time.Time{}
		if errors.Is(err, conn.ErrUnfit) {
			g.signal() // callers that wait return the error
		}
		return g.missed(now), false
	}

	g.store.away = false
	g.beats.note(k, r, sent, now)

	if g.local == nil {
		// Callers that waited for the primary go on.
		g.signal()

		// A Look only asks, and a heartbeat that came too late does not count: send one at once.
		if k == Look || !r.Counts {
			return 0, false
		}
		return beatEvery - now.Sub(sent), false
	}

	// While the primary is given up, it must answer for some time before callers return.
	switch {
	case g.answeringSince.IsZero():
		g.answeringSince = now
	case now.Sub(g.answeringSince) > steadyFor:
		g.comeBack()
	}

	return lookEvery, false
}

// send sends a heartbeat and waits for the answer: for replyTime at most, and not beyond the moment when
// the primary must be given up. It notes a failure.
func (g *group) send(k Kind) (r Reply, sent time.Time, err error) {
	g.store.mu.Lock()
	sent = time.Now()
	h, end := g.beats.next(k, sent), sent.Add(replyTime)

	// An answer after at comes too late, because the primary is given up then. If at is past, this heartbeat is the last attempt.
	at, sure := g.beats.lostAt(g.store.FailOpen)
	mayGiveUp := sure && g.local == nil
	if mayGiveUp && at.After(sent) && at.Before(end) {
		end = at
	}

	g.store.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()

	r, err = g.store.primary.Heartbeat(ctx, g.name, h)
	if err == nil {
		return r, sent, nil
	}

	// The failure is remembered for callers that wait. A heartbeat that was only late has no reason of its own.
	g.store.mu.Lock()
	defer g.store.mu.Unlock()

	g.beats.fails++
	if ctx.Err() == nil {
		g.beats.lastErr = err
	}

	return r, sent, err
}

// missed is called when a heartbeat had no answer. If the primary has not answered for too long, and was not
// given up before, missed gives it up: from then on callers book in a new share. It returns how long to wait
// before the next heartbeat. The store is locked.
func (g *group) missed(now time.Time) time.Duration {
	at, sure := g.beats.lostAt(g.store.FailOpen)
	switch {
	case g.local != nil || !sure: // the primary was given up before, or must not be given up yet
	case at.After(now):
		return min(lookEvery, at.Sub(now))
	default:
		g.local = newLocalShare(g.store.Options, g.store.primary, g.name, g.beats.divisor.get(), at, make(map[string]store.Charge))
		g.store.away = true

		// The share begins with the penalties of which the primary has not heard yet.
		for p := range g.store.telling {
			g.store.Pauses.Note(p.key, p.end, now)
		}

		// Calls on their way to the primary end, and callers look at their route again.
		g.giveUp(errAway)
		g.signal()
		g.store.primary.Wake(g.name)
	}
	return lookEvery
}

// comeBack ends the share, reports its starts to the primary, and has callers book in the primary
// again. If the primary does not answer, or does not count the node, a new share begins. The store is
// locked, but unlocked during the calls of the primary.
func (g *group) comeBack() {
	// The share ends first: no start may begin in it once the primary has heard of its starts.
	started := g.local.close()
	g.store.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	var r Reply
	var sent time.Time

	// Report the starts before the first heartbeat: after that heartbeat the other nodes leave no room for the share any more.
	err := g.store.primary.TellStarts(ctx, slices.Collect(maps.Values(started)))
	if err == nil {
		r, sent, err = g.send(Beat)
	}

	g.store.mu.Lock()
	if err == nil && r.Counts {
		g.usePrimary()
		g.beats.note(Beat, r, sent, time.Now())
	} else {
		// The primary may have counted the heartbeat, and then the rest of the fleet left no room for a while.
		g.local = newLocalShare(g.store.Options, g.store.primary, g.name, g.beats.divisor.get(), g.beats.sent.Add(shareWait), started)
		g.answeringSince = time.Time{}
	}

	g.signal()
}

// A Heartbeat is the message of a node about itself in a group, and a Reply is the answer of the primary.
type (
	Heartbeat = wire.Heartbeat
	Kind      = wire.HeartbeatKind
	Reply     = wire.HeartbeatReply
)

// The kinds of heartbeats.
const (
	Look, Beat, Leave = wire.Look, wire.Beat, wire.Leave
)

const (
	beatEvery = time.Second
	lookEvery = 250 * time.Millisecond
	replyTime = time.Second         // a primary that takes longer is away
	knownFor  = wire.SuspectedAfter // the fleet counts on a node for that long, and then suspects it
	believed  = 3 * time.Second     // how long a reply says which nodes are suspected
	shareWait = 5 * time.Second     // from the last heartbeat until all others leave room
	openWait  = 2 * time.Second     // from the last answer until FailOpen begins
)

// heartbeats remember the heartbeats that a node has sent for a group, and the answers.
type heartbeats struct {
	began    time.Time // when the node began to use the group
	since    time.Time // when the first heartbeat of those answered without a gap was sent
	sent     time.Time // when the last heartbeat was sent, answered or not
	heard    time.Time // when the last heartbeat that was answered and counts was sent
	answered time.Time // when the last answer came, also to a look
	now      int64     // the time of the primary's clock in the last answer, in microseconds
	last     Reply     // to the last heartbeat that counts
	divisor  largest   // Divisor of the replies
	nodes    largest   // Nodes of the replies

	fails   int   // how many heartbeats in a row were not answered
	lastErr error // of the last of these that was not just late, or nil
}

// next returns the heartbeat of a kind that is sent now.
func (h *heartbeats) next(k Kind, now time.Time) Heartbeat {
	b := Heartbeat{Kind: k, Divisor: h.divisor.get(), Nodes: h.nodes.get()}
	if k == Beat {
		h.sent = now
	}

	// The primary's time now, as far as its last answer tells: a heartbeat that comes much later was held up.
	if h.now != 0 {
		b.Due = h.now + now.Sub(h.answered).Microseconds()
	}
	return b
}

// note records the answer to a heartbeat that was sent at sent.
func (h *heartbeats) note(k Kind, r Reply, sent, now time.Time) {
	h.answered, h.now, h.fails, h.lastErr = now, r.Now, 0, nil
	if k != Beat || !r.Counts {
		return
	}

	// After a gap the rest of the fleet may have forgotten this node, so the time in which it is known begins anew.
	if h.since.IsZero() || sent.Sub(h.heard) > knownFor {
		h.since = sent
	}
	h.heard, h.last = sent, r
	h.divisor.note(r.Divisor, now)
	h.nodes.note(r.Nodes, now)
}

// lostAt returns when the primary is to be given up if it does not answer until then. It returns
// false if the primary is not given up, because not all other nodes know yet that this node has a share.
func (h *heartbeats) lostAt(failOpen bool) (time.Time, bool) {
	if failOpen {
		return latest(h.began, h.answered).Add(openWait), true
	}
	return h.sent.Add(shareWait), h.last.Divisor > 0 && h.heard.Sub(h.since) > knownFor
}

// recent reports whether the last answer is so young that it still says which nodes are suspected.
func (h *heartbeats) recent(now time.Time) bool {
	return !h.heard.IsZero() && now.Sub(h.heard) < believed
}

// A largest is the largest of the numbers that were noted in the last largestFor, or twice as long. So a
// primary that forgot some nodes does not make the shares of the rest larger at once.
type largest struct {
	recent, before int       // the largest number of this interval, and of the interval before
	turned         time.Time // when this interval began
}

// largestFor is for how long a number is remembered at least.
const largestFor = 15 * time.Second

// note notes a number, as of now.
func (l *largest) note(n int, now time.Time) {
	if now.Sub(l.turned) > largestFor {
		l.before, l.recent, l.turned = l.recent, 0, now
	}
	l.recent = max(l.recent, n)
}

// get returns the largest number, or 0 if none was noted.
func (l *largest) get() int { return max(l.recent, l.before) }

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
