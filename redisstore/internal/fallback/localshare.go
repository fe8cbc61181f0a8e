package fallback

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

// A localShare is a node's share of a group's limits, kept in a store of its own while
// the primary is away; with FailOpen there are no limits.
type localShare struct {
	Options
	primary Primary
	starts  notify.Invalidation // names all starts of the share, for the watches
	divisor int                 // a limit n has a share of n/divisor; with 0 there are no limits
	store   store.Store         // has the shares as limits

	mu              sync.Mutex
	closed          bool                    // the primary is back
	othersLeaveRoom time.Time               // from then on all other nodes leave room for the share; it may be still to come
	opensAfter      map[string]time.Time    // for each budget whose share has opened, when that was, less a window: see opensAt
	started         map[string]store.Charge // the budgets that were used here
	storePauses     map[string]time.Time    // penalties that the store knows
}

// newLocalShare returns a share with an empty store. othersLeaveRoom is the time from which on all other nodes leave room
// for the share; it may be still to come. started, which the share keeps, has the budgets that an earlier share of this
// node used.
func newLocalShare(o Options, p Primary, group string, divisor int, othersLeaveRoom time.Time, started map[string]store.Charge) *localShare {
	// With a divisor of 0 the share has no limits: see charge.
	if o.FailOpen {
		divisor = 0
	}
	return &localShare{
		Options: o, primary: p, starts: startsOf(group), divisor: divisor, othersLeaveRoom: othersLeaveRoom, store: o.Local(), opensAfter: make(map[string]time.Time),
		storePauses: make(map[string]time.Time), started: started,
	}
}

// startsOf names all starts in the shares of a group. No budget in Redis has such a key.
func startsOf(group string) notify.Invalidation {
	return notify.Invalidation{Key: "share of " + group, Until: 1}
}

// isShared reports whether the limit of a charge can be divided into shares.
func isShared(c *store.Charge) bool {
	switch c.Limit.Kind() {
	case store.KindLeakyBucket, store.KindConcurrency, store.KindUnlimited, store.KindTold:
		return false
	}
	return true
}

// charge returns a charge as the share's store has it, with the share as its limit. Without a divisor, and if the limit
// is Unlimited or Told, it has no limit. If the share never has room for the charge, charge returns it as it is, and ok is
// false unless it is a shadow.
func (l *localShare) charge(c store.Charge) (part store.Charge, ok bool) {
	n, d := c.Limit.N(), l.divisor
	switch {
	// A divisor of 0 means that nothing is held back, as FailOpen asks for.
	case d == 0:
		c.Limit, c.KeepFree, c.Pace, c.Jitter = store.Unlimited(), 0, 0, 0
		return c, true
	case c.Limit.Kind() == store.KindUnlimited:
		return c, true
	case c.Limit.Kind() == store.KindTold: // only the store knows the number
		c.Limit = store.Unlimited()
		return c, true
	// The limit cannot be divided, or the share has no room for the cost. A shadow needs no room.
	case !isShared(&c), c.Cost > share(c.Limit.Capacity(), d)-(c.KeepFree+d-1)/d:
		return c, c.Shadow
	case c.Limit.Kind() == store.KindTokenBucket:
		// Where d periods are too long for a Duration, fewer tokens flow in in fewer periods, rounded down.
		k := min(d, int(store.MaxAhead/c.Limit.Per()))
		c.Limit = store.TokenBucket(n*k/d, c.Limit.Per()*time.Duration(k), share(c.Limit.Capacity(), d))
	case c.Limit.Per() == 0: // a window of the calendar
		c.Limit = store.SlidingWindow(share(n, d), l.primary.Keep(&c))
	default:
		c.Limit = store.SlidingWindow(share(n, d), c.Limit.Per())
	}

	// What must stay free is divided, too, and rounded up.
	c.KeepFree = (c.KeepFree + d - 1) / d
	return c, true
}

// share returns the share of a limit n, with a divisor.
func share(n, divisor int) int { return n / divisor }

// booking returns a booking as the share's store has it. ok is false if the share never has room for one of the charges.
func (l *localShare) booking(b *store.Booking) (own store.Booking, ok bool) {
	own = *b
	own.Horizon, own.Turn = 0, nil // no lines: when the share ends their waiters would be forgotten
	if !own.Instead.Local {
		own.Instead = store.Handle{}
	}

	// The charges are the caller's, so the share's charges are a copy.
	own.Charges = make([]store.Charge, len(b.Charges))
	for i := range b.Charges {
		part, ok := l.charge(b.Charges[i])
		if !ok {
			return own, false
		}
		own.Charges[i] = part
	}

	return own, true
}

// opensAt returns when the share of a charge's budget can be used: a window after the last start that any
// node can have booked in the primary, which may be far ahead. It returns the zero time if the charge has no
// share to wait for. Once the share is open, opensAt notes that in opensAfter. l is locked.
func (l *localShare) opensAt(part *store.Charge, now time.Time) time.Time {
	if l.divisor == 0 || part.Shadow || !isShared(part) {
		return time.Time{}
	}

	// What decided when the share opened stays: from then on the history has starts of the share, too.
	key := l.primary.Key(part)
	last, opened := l.opensAfter[key]
	if !opened {
		last = latest(l.othersLeaveRoom, l.History.LastStart(key).Add(shareWait))
	}

	at := last.Add(part.Span())
	if !at.After(now) {
		l.opensAfter[key] = last
	}

	return at
}

// book books a start in the share. answered is false if the share cannot be used: then opens is when it can be, or the zero
// time if it never can be, or has ended. A refusal is an answer, too. A near start counts as used at once.
func (l *localShare) book(b *store.Booking) (g store.Grant, opens time.Time, answered bool) {
	own, ok := l.booking(b)
	l.mu.Lock()
	defer l.mu.Unlock()

	now := time.Now()
	if !ok || l.closed {
		return g, time.Time{}, false
	}

	// A start needs room in all budgets, so the latest of them decides.
	for i := range own.Charges {
		opens = latest(opens, l.opensAt(&own.Charges[i], now))
	}

	if opens.After(now) {
		return g, opens, false
	}

	l.pauseKnown(b.Charges, own.Charges, now)
	g, _ = l.store.Book(context.Background(), &own) // memory does not fail
	if !g.OK {
		return g, opens, true
	}

	// A near start is used without a call of Confirm, so it counts now. A start farther ahead counts when it is confirmed.
	if g.Wait <= countedByBook {
		l.countStarts(b.Charges, now.Add(g.Wait))
	}

	g.Handle.Local = true
	return g, opens, true
}

// countedByBook is how far ahead a start may be that its caller uses without a call of Confirm, and
// that book therefore counts.
const countedByBook = 50 * time.Millisecond

// pauseKnown closes budgets in the share's store that the node knows to be closed; parts are the charges as the share's store has them. The
// share is locked.
func (l *localShare) pauseKnown(charges, parts []store.Charge, now time.Time) {
	for i := range charges {
		key := l.primary.PauseKey(&charges[i])
		if end := latest(l.Pauses.End(key), l.Shut.End(key)); end.After(l.storePauses[key]) {
			l.storePauses[key] = end
			_ = l.store.Pause(context.Background(), parts[i], end.Sub(now)) // memory does not fail
		}
	}
}

// resume opens a budget in the share's store. From then on any pause of the budget is news to pauseKnown.
func (l *localShare) resume(ctx context.Context, c store.Charge, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.storePauses, key)
	if part, ok := l.charge(c); ok {
		_ = l.store.Resume(ctx, part) // memory does not fail
	}
}

// countStarts notes that a start is used, in the history of each charge's budget, so that the
// primary is told of it later. The share is locked.
func (l *localShare) countStarts(charges []store.Charge, start time.Time) {
	for i := range charges {
		l.countStart(&charges[i], charges[i].Cost, start)
	}
}

// countStart notes in the history that cost of a charge's budget is used by a start at a time. The
// share is locked.
func (l *localShare) countStart(c *store.Charge, cost int, start time.Time) {
	// What is in flight ends by itself, and unlimited budgets count nothing.
	if k := c.Limit.Kind(); k == store.KindConcurrency || k == store.KindUnlimited || k == store.KindTold {
		return
	}
	key := l.primary.Key(c)
	l.started[key] = *c
	l.History.AddUnreported(key, history.Sample{By: start, Count: int64(cost)}, l.primary.Keep(c))
}

// settle changes the costs of a start in the share, and adds to the history what is above the booked costs.
func (l *localShare) settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	own, _ := l.booking(b) // the charges had room when the start was booked
	err := l.store.Settle(ctx, &own, g, costs)
	l.mu.Lock()
	defer l.mu.Unlock()

	// For a lower cost the history counts too much, which is safe.
	for i := range b.Charges {
		if more := costs[i] - b.Charges[i].Cost; more > 0 {
			l.countStart(&b.Charges[i], more, time.Now())
		}
	}
	return err
}

// longestKeep returns for how long a start in the share matters at the most, or 0 if there was no start.
func (l *localShare) longestKeep() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.started {
		longest = max(longest, l.primary.Keep(&c))
	}
	return longest
}

// close ends the share: nothing is booked in it any more, and all its sleepers are woken. It returns
// a charge of each budget that was used, by the budget's key.
func (l *localShare) close() map[string]store.Charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.Watches.Invalidated(l.starts)
	return maps.Clone(l.started)
}
