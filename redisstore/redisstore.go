// Package redisstore keeps budgets in Redis, so that all processes that use the
// same Redis and the same policy names share them. It works with standalone
// servers, Sentinel and Cluster, and takes nothing but the client: there is no
// set-up, no list of nodes, and nothing to close.
//
// A booking is one script call, decided by the server's clock. Each budget is
// one key of at most 4 KB that expires when it is idle. It needs Redis 7.0 or
// later; the page on [Redis] says which rights and settings. What happens while
// Redis is away is for [Options.Outage] to say.
//
// [Redis]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/redis.md
package redisstore

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in Redis. It is safe for concurrent use.
//
// While Redis is away Book, Pause, Refuse, Resume, Reconcile and Status try again, with a growing
// pause, for as long as ctx and the MaxWait of a booking allow; see [Options.Outage] for bookings
// that need not wait. A Redis that does not answer soon is told of a Cancel in the background, for
// a moment, and after that by the next caller; it is told of a Release with the next call, or
// forgets. Reconcile makes no call for a quota that says nothing new. Refuse learns nothing from a start that
// was taken from a share while Redis was away, because no row knows that start.
type Store struct {
	budgets  store.Store     // the budgets of the fleet, in Redis, and of this node alone, in memory
	fallback *fallback.Store // serves the fleet's budgets while Redis is away; nil if callers wait then
	primary  *primary

	namespace string // as Options has it, or the default
}

// New returns a store on client, which stays the caller's: throttle never
// closes it. New sends nothing, so Redis need not be up.
//
// A nil client or wrong Options are refused by throttle.New, NewLimiters and
// NewLimiter, which return all mistakes of New, each as a *[store.OptionError],
// and by every call of the store that can return an error.
func New(client redis.UniversalClient, o Options) *Store {
	if err := check(client, &o); err != nil {
		// A store of wrong options answers each call with the mistakes, because New returns no error.
		return &Store{budgets: misused{err: err}}
	}

	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	s := &Store{primary: newPrimary(client, &o), namespace: o.Namespace}
	shared := store.Store(s.primary)

	// Only these two modes need a store before the primary. With OutageWait callers wait in the primary itself.
	if o.Outage == OutageSplit || o.Outage == OutageFailOpen {
		s.fallback = fallback.New(s.primary, fallback.Options{
			FailOpen: o.Outage == OutageFailOpen, Conn: s.primary.conn, History: s.primary.history, Pauses: s.primary.pauses, Watches: s.primary.watches,
			Local: func() store.Store { return memstore.New() },
		})
		shared = s.fallback
	}

	s.budgets = scoped.Compose(shared, memstore.New())
	return s
}

// Namespace returns the namespace in which the store keeps budgets: the namespace of its
// Options, or [DefaultNamespace]. It is "" for a store that was made of wrong Options.
func (s *Store) Namespace() string { return s.namespace }

// SetUsed sets how much of its window a budget of the fleet has used, from nothing to its limit,
// and returns how much that was before. Where Redis has no count of the budget, because nothing
// has started under it for long or its limit has no windows, it does nothing, and ok is false.
// Starts that are booked for later are booked anew, if they do not fit any more or may be sooner.
func (s *Store) SetUsed(ctx context.Context, c store.Charge, used int) (before int, ok bool, err error) {
	if s.primary == nil {
		// A store of wrong options has no primary.
		return 0, false, s.Traits().Err
	}
	if c.Node {
		return 0, false, nil
	}

	return s.primary.setUsed(ctx, &c, max(0, min(used, c.Limit.Capacity())))
}

// OnPause has tell called when the store hears that a budget of the fleet was closed, or
// opened: of all pauses while callers wait for their budgets, and of its own. It must not
// block. It replaces the function of the last call. After OnPause(nil) nobody is told. Package fleet uses OnPause
// to ask who closed the budget.
func (s *Store) OnPause(tell func()) {
	switch {
	case s.primary == nil: // a store that was made of wrong options hears of no pause
	case tell == nil:
		s.primary.onPause.Store(nil)
	default:
		s.primary.onPause.Store(&tell)
	}
}

// The methods of [store.Store], written out so that the documentation of this
// package has them.

// Book books the earliest start at which all charges of b have room, in one script call,
// and says how long it is until then: see [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	return s.budgets.Book(ctx, b)
}

// Cancel gives back a start that was not used, or a place in line. It returns no
// error: a start that Redis does not hear of stays charged.
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	s.budgets.Cancel(b, g)
}

// Release gives back the slots of Concurrency limits that a start holds.
func (s *Store) Release(b *store.Booking, g store.Grant) {
	s.budgets.Release(b, g)
}

// Settle changes the cost of a start, to costs[i] for b.Charges[i].
func (s *Store) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	return s.budgets.Settle(ctx, b, g, costs)
}

// Pause closes the budget of c for d, for all programs that share it.
func (s *Store) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	return s.budgets.Pause(ctx, c, d)
}

// Refuse closes the budget of c because its upstream refused a request, and returns
// the ceiling of an Adaptive budget before and after.
func (s *Store) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	return s.budgets.Refuse(ctx, c, r)
}

// Resume opens the budget of c.
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	return s.budgets.Resume(ctx, c)
}

// Reconcile lowers the rest of the budget of c to the upstream's figure.
func (s *Store) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	return s.budgets.Reconcile(ctx, c, q)
}

// Watch tells news when a booked start may have become useless, until the watch is
// stopped.
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	return s.budgets.Watch(b, g, news)
}

// Status describes the budget of c, and changes nothing.
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return s.budgets.Status(ctx, c)
}

// Traits says what the store can do beyond the duties of every store.
func (s *Store) Traits() store.Traits {
	return s.budgets.Traits()
}

// KeepTurn returns the place of a caller that leaves its line, for RestoreTurn.
func (s *Store) KeepTurn(b *store.Booking, t store.Turn) []byte {
	return s.budgets.KeepTurn(b, t)
}

// RestoreTurn returns the place of a caller that comes back. It returns false if the
// bytes do not hold a place in the same budgets.
func (s *Store) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	return s.budgets.RestoreTurn(b, kept)
}

// Appoint returns in how long a caller that leaves its line should come again.
func (s *Store) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.budgets.Appoint(ctx, c, wait, again)
}

// PauseNote returns what an operator said who closed the budget. A redisstore by
// itself knows of none: see fleet.Start.
func (s *Store) PauseNote(b store.Budget) store.PauseNote {
	return s.budgets.PauseNote(b)
}
