package fallback

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/keeper"
	"github.com/fleetthrottle/throttle/store"
)

// A Store sends callers to a primary, and to a store of this node while the primary
// is away.
type Store struct {
	Options
	keeper.Finder
	primary Primary

	mu     sync.Mutex
	groups map[string]*group
}

// Groups returns how many groups are in use.
func (s *Store) Groups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups)
}

// local returns a group's share, in which callers book while the primary is away; nil: it is not
// away.
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
	lastUsed     time.Time     // when there was one last
	routeChanged chan struct{} // closed, and made anew, when callers may go another way
	beats        heartbeats

	up             context.Context // ends, with errAway, when the primary is given up
	giveUp         context.CancelCauseFunc
	local          *localShare // where callers are then
	answeringSince time.Time   // since when the primary answers again
}

const (
	linger     = 10 * time.Second       // for how long a group counts as used that is not
	steadyFor  = 500 * time.Millisecond // how long the primary has to answer until it is back
	reportTime = 2 * time.Second
)

// enter says that the group is used until leave.
func (s *Store) enter(name string) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		g = &group{store: s, name: name, routeChanged: make(chan struct{}), beats: heartbeats{began: time.Now()}}
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

// nextKind returns the kind of the next heartbeat. over says that the group is forgotten, and sends
// no heartbeat any more.
func (g *group) nextKind() (k Kind, over bool) {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
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

// idle reports whether nobody has used the group for a while, and no start on this node
// counts any more.
func (g *group) idle(now time.Time) bool {
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
	now := time.Now()
	switch {
	case k == Leave && g.users == 0:
		delete(g.store.groups, g.name)
		return 0, true
	case k == Leave: // used again
		g.beats = heartbeats{began: now}
		return 0, false
	case err != nil:
		g.answeringSince = time.Time{}
		if errors.Is(err, conn.ErrUnfit) {
			g.signal() // callers are told
		}
		return g.missed(now), false
	}
	g.beats.note(k, r, sent, now)
	switch {
	case g.local == nil:
		if g.signal(); k == Look || !r.Counts {
			return 0, false // and now a heartbeat
		}
		return beatEvery - now.Sub(sent), false
	case g.answeringSince.IsZero():
		g.answeringSince = now
	case now.Sub(g.answeringSince) > steadyFor:
		g.comeBack()
	}
	return lookEvery, false
}

// send sends a heartbeat and waits for the answer, for replyTime at most, and not beyond when the
// primary must be given up.
func (g *group) send(k Kind) (r Reply, sent time.Time, err error) {
	g.store.mu.Lock()
	sent = time.Now()
	h, end := g.beats.next(k, sent), sent.Add(replyTime)
	if at, sure := g.beats.lostAt(g.store.FailOpen); sure && g.local == nil && at.After(sent) && at.Before(end) {
		end = at
	}
	g.store.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	r, err = g.store.primary.Heartbeat(ctx, g.name, h)
	if err == nil {
		return r, sent, nil
	}
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	if g.beats.fails++; ctx.Err() == nil {
		g.beats.lastErr = err
	}
	return r, sent, err
}

// missed takes in that a heartbeat had no answer. It gives the primary up if the primary has not
// answered for too long: then callers book in a new share. It returns how long to wait before the
// next heartbeat. The store is locked.
func (g *group) missed(now time.Time) time.Duration {
	at, sure := g.beats.lostAt(g.store.FailOpen)
	switch {
	case g.local != nil || !sure:
	case at.After(now):
		return min(lookEvery, at.Sub(now))
	default:
		g.local = newLocalShare(g.store.Options, g.store.primary, g.name, g.beats.divisor.get(), at, make(map[string]store.Charge))
		g.giveUp(errAway)
		g.signal()
		g.store.primary.Wake(g.name)
	}
	return lookEvery
}

// comeBack ends the share, tells the primary of the starts in it, and has callers book in the
// primary. If the primary does not take that in, a new share begins. The store is locked, but
// unlocked during the calls of the primary.
func (g *group) comeBack() {
	started := g.local.close()
	g.store.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	var r Reply
	var sent time.Time
	err := g.store.primary.TellStarts(ctx, slices.Collect(maps.Values(started)))
	if err == nil {
		r, sent, err = g.send(Beat)
	}
	g.store.mu.Lock()
	if err == nil && r.Counts {
		g.usePrimary()
		g.beats.note(Beat, r, sent, time.Now())
	} else {
		// The heartbeat may have been heard, and then the others left no room for a while.
		g.local = newLocalShare(g.store.Options, g.store.primary, g.name, g.beats.divisor.get(), g.beats.sent.Add(shareWait), started)
		g.answeringSince = time.Time{}
	}
	g.signal()
}
