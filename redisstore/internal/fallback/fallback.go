// Package fallback lets the nodes of a fleet work on while they have lost the store
// that they share: each keeps its share of the limits by itself, or none at all.
// docs/run/failures.md says what is guaranteed, docs/internals/shares.md how.
package fallback

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

// New returns a Store before a primary.
func New(p Primary, o Options) *Store {
	return &Store{Options: o, primary: p, groups: make(map[string]*group), telling: make(map[*penalty]struct{})}
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	keeper, c := s.keeper(ctx, c)
	return keeper.Status(ctx, c)
}

// keeper returns the store that describes a budget, and the budget's charge in that store. While the
// primary is away keeper reports the outage to the observer of ctx, and returns the store of this
// node's share, unless the share never has room for the charge.
func (s *Store) keeper(ctx context.Context, c store.Charge) (store.Store, store.Charge) {
	// The share knows what this node has booked while the primary cannot be asked.
	if l := s.local(c.Budget.Group); l != nil {
		if observer := outage.From(ctx); observer != nil {
			observer.StoreAway(errAway)
		}
		if part, ok := l.charge(c); ok {
			return l.store, part
		}
	}
	return s.primary, c
}

// Cancel implements [store.Store]. A start of a share that has ended stays counted.
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	if !g.Handle.Local {
		s.primary.Cancel(b, g)
	} else if l := s.local(b.Charges[0].Budget.Group); l != nil {
		part, _ := l.booking(b) // the charges had room when the start was booked
		l.store.Cancel(&part, g)
	}
}

// Release implements [store.Store]. A share has slots only of shadow charges.
func (s *Store) Release(b *store.Booking, g store.Grant) {
	if !g.Handle.Local {
		s.primary.Release(b, g)
	} else if l := s.local(b.Charges[0].Budget.Group); l != nil {
		part, _ := l.booking(b) // the charges had room when the start was booked
		l.store.Release(&part, g)
	}
}

// Settle implements [store.Store]. A start of a share that has ended keeps its costs.
func (s *Store) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if !g.Handle.Local {
		return s.primary.Settle(ctx, b, g, costs)
	}
	if l := s.local(b.Charges[0].Budget.Group); l != nil {
		return l.settle(ctx, b, g, costs)
	}
	return nil
}

// Pause implements [store.Store].
func (s *Store) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	defer s.tell(&c, d)()
	s.pauseLocal(ctx, c, d)
	return s.primary.Pause(ctx, c, d)
}

// Refuse implements [store.Store]. The primary does not know the starts of a share, and
// learns nothing from them.
func (s *Store) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	defer s.tell(&c, r.Length)()
	s.pauseLocal(ctx, c, r.Length)
	if r.Start.Handle.Local {
		r.Start = store.Grant{}
	}
	return s.primary.Refuse(ctx, c, r)
}

// pauseLocal does nothing unless the primary is away. Then it notes the pause, and closes the budget in this node's share.
func (s *Store) pauseLocal(ctx context.Context, c store.Charge, d time.Duration) {
	// The share keeps the pause, and Redis hears of it with a later booking of this node: see history.PauseEnds.
	if l := s.local(c.Budget.Group); l != nil {
		now := time.Now()
		s.Pauses.Note(s.primary.PauseKey(&c), now.Add(min(d, store.MaxAhead)), now)
		if part, ok := l.charge(c); ok {
			_ = l.store.Pause(ctx, part, d) // memory does not fail
		}
	}
}

// Resume implements [store.Store]. It also opens the budget in this node's share, whether or not the primary answers.
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	// A share that begins while the primary is being told of a penalty takes over that penalty (see tell), but not one that is lifted here.
	key := s.primary.PauseKey(&c)
	s.mu.Lock()
	maps.DeleteFunc(s.telling, func(p *penalty, _ struct{}) bool { return p.key == key })
	s.mu.Unlock()

	if l := s.local(c.Budget.Group); l != nil {
		// Otherwise the node would tell Redis of the pause again, and the share's next booking would close the budget again: see pauseKnown. Without a
		// share the primary forgets both once the pause is lifted there.
		s.Pauses.Forget(key)
		s.Shut.Forget(key)
		l.resume(ctx, c, key)
	}
	return s.primary.Resume(ctx, c)
}

// Reconcile implements [store.Store].
func (s *Store) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	return s.primary.Reconcile(ctx, c, q)
}

// A Primary is the store that nodes share, and can lose.
type Primary interface {
	store.Store

	// Heartbeat sends a heartbeat of this node and returns the answer. It returns an error at the latest when ctx ends.
	Heartbeat(ctx context.Context, group string, h Heartbeat) (Reply, error)

	// Key names a budget in the node's history, PauseKey names it in the node's PauseEnds, and Keep is for how long its starts matter.
	Key(c *store.Charge) string
	PauseKey(c *store.Charge) string
	Keep(c *store.Charge) time.Duration

	// TellStarts tells the primary of the unreported starts of some budgets, one charge each.
	TellStarts(ctx context.Context, charges []store.Charge) error

	// Waiting reports whether callers stand in line for budgets of a group, and Wake
	// lets them book again.
	Waiting(group string) bool
	Wake(group string)
}

// Options are the parts of the node that a Store works with. All except FailOpen are required.
type Options struct {
	FailOpen bool               // there are no limits while the primary is away
	Conn     *conn.Conn         // says why the primary does not answer
	History  *history.History   // takes the starts that the primary does not know of
	Pauses   *history.PauseEnds // penalties that the node knows of
	Shut     *history.PauseEnds // unlimited budgets that the primary said to be closed
	Watches  *notify.Watches    // over the starts of this node
	Local    func() store.Store // returns an empty store of this node
}

// errAway ends calls of a primary that is given up.
var errAway = errors.New("redisstore: Redis is away")

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits { return s.primary.Traits() }

// PauseNote implements [store.Store].
func (s *Store) PauseNote(b store.Budget) store.PauseNote { return s.primary.PauseNote(b) }

// KeepTurn implements [store.Store]. Nobody stands in line in a share.
func (s *Store) KeepTurn(b *store.Booking, t store.Turn) []byte {
	return s.primary.KeepTurn(b, t)
}

// RestoreTurn implements [store.Store].
func (s *Store) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	return s.primary.RestoreTurn(b, kept)
}

// Appoint implements [store.Store]. While the primary is away nobody makes appointments.
func (s *Store) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	if s.local(c.Budget.Group) != nil {
		return wait, nil
	}
	return s.primary.Appoint(ctx, c, wait, again)
}
