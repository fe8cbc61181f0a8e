// Package fallback lets the nodes of a fleet work on while they have lost the store
// that they share: each keeps its share of the limits by itself, or none at all.
// docs/outages.md says what is guaranteed.
package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
)

// A Primary is the store that nodes share, and can lose.
type Primary interface {
	throttle.Store

	// Heartbeat sends a heartbeat of this node. It returns when ctx ends.
	Heartbeat(ctx context.Context, group string, h Heartbeat) (Reply, error)

	// Key names a budget in the node's history, and Keep is for how long its starts matter.
	Key(c *throttle.Charge) string
	Keep(c *throttle.Charge) time.Duration

	// Report tells the primary of the unreported starts of some budgets, one charge each.
	Report(ctx context.Context, charges []throttle.Charge) error

	// InLine reports whether callers wait in line for budgets of a group, and WakeLine
	// lets them book again.
	InLine(group string) bool
	WakeLine(group string)
}

// Options are what a Store needs to know. All but FailOpen are required.
type Options struct {
	FailOpen bool                  // there are no limits while the primary is away
	Conn     *conn.Conn            // says why the primary does not answer
	History  *history.History      // takes the starts that the primary does not know of
	Pauses   *history.PauseEnds    // penalties that the node knows of
	Local    func() throttle.Store // returns an empty store of this node
}

// A Store sends callers to a primary, and to a store of this node while the primary
// is away.
type Store struct {
	Options
	primary Primary

	mu     sync.Mutex
	groups map[string]*group
}

// New returns a Store before a primary.
func New(p Primary, o Options) *Store {
	return &Store{Options: o, primary: p, groups: make(map[string]*group)}
}

// Groups returns how many groups are in use.
func (s *Store) Groups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups)
}

// local returns where a group's callers are while the primary is away, else nil.
func (s *Store) local(group string) *localShare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[group]; g != nil {
		return g.local
	}
	return nil
}

// Cancel implements [throttle.Store].
func (s *Store) Cancel(b *throttle.Booking, g throttle.Grant) {
	if !g.Handle.Local {
		s.primary.Cancel(b, g)
	} else if l := s.local(b.Charges[0].Budget.Group); l != nil {
		own, _ := l.booking(b)
		l.store.Cancel(&own, g)
	}
}

// Release implements [throttle.Store]. A local store holds nothing.
func (s *Store) Release(b *throttle.Booking, g throttle.Grant) {
	if !g.Handle.Local {
		s.primary.Release(b, g)
	}
}

// Settle implements [throttle.Store].
func (s *Store) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	if !g.Handle.Local {
		return s.primary.Settle(ctx, b, g, costs)
	}
	if l := s.local(b.Charges[0].Budget.Group); l != nil {
		return l.settle(ctx, b, g, costs)
	}
	return nil
}

// Pause implements [throttle.Store].
func (s *Store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	s.pauseLocal(ctx, c, d)
	return s.primary.Pause(ctx, c, d)
}

// Refuse implements [throttle.Store]. A start that the primary does not know of teaches
// nothing.
func (s *Store) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	s.pauseLocal(ctx, c, r.Length)
	if r.Start.Handle.Local {
		r.Start = throttle.Grant{}
	}
	return s.primary.Refuse(ctx, c, r)
}

// pauseLocal closes a budget on this node, if the primary is away.
func (s *Store) pauseLocal(ctx context.Context, c throttle.Charge, d time.Duration) {
	if l := s.local(c.Budget.Group); l != nil {
		now := time.Now()
		s.Pauses.Note(s.primary.Key(&c), now.Add(min(d, farthest.Wait)), now)
		if part, ok := l.charge(c); ok {
			_ = l.store.Pause(ctx, part, d) // memory does not fail
		}
	}
}

// Resume implements [throttle.Store].
func (s *Store) Resume(ctx context.Context, c throttle.Charge) error {
	if l := s.local(c.Budget.Group); l != nil {
		s.Pauses.Forget(s.primary.Key(&c))
		if part, ok := l.charge(c); ok {
			_ = l.store.Resume(ctx, part)
		}
	}
	return s.primary.Resume(ctx, c)
}

// Reconcile implements [throttle.Store].
func (s *Store) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	return s.primary.Reconcile(ctx, c, q)
}

// Status implements [throttle.Store]. While the primary is away it is that of the share, and an
// observer is told so.
func (s *Store) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	if l := s.local(c.Budget.Group); l != nil {
		if observer := outage.From(ctx); observer != nil {
			observer.StoreAway(errAway)
		}
		if part, ok := l.charge(c); ok {
			return l.store.Status(ctx, part)
		}
	}
	return s.primary.Status(ctx, c)
}

// errAway ends calls of a primary that is given up.
var errAway = errors.New("redisstore: Redis is away")
