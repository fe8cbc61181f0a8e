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
// [Redis]: https://github.com/fleetthrottle/throttle/blob/main/docs/redis.md
package redisstore

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/line"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in Redis. It is safe for concurrent use.
//
// While Redis is away Book, Pause, Refuse, Resume, Reconcile and Status try again, with a growing
// pause, for as long as ctx and the MaxWait of a booking allow; see [Options.Outage] for bookings
// that need not wait. A Redis that does not answer soon is told of a Cancel in the background, for
// a moment, and after that by the next caller; it is told of a Release with the next call, or
// forgets. Reconcile does not tell what is not worth a call. A start that no row knows, because it
// was taken from a share while Redis was away, teaches Refuse nothing.
type Store struct {
	budgets  store.Store     // those of the fleet, in Redis, and those of this node alone, in memory
	fallback *fallback.Store // what the fleet's go through while Redis is away; nil: callers wait
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
		return &Store{budgets: misused{err: err}}
	}

	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	s := &Store{primary: newPrimary(client, &o), namespace: o.Namespace}
	shared := store.Store(s.primary)
	if o.Outage == OutageSplit || o.Outage == OutageFailOpen {
		s.fallback = fallback.New(s.primary, fallback.Options{
			FailOpen: o.Outage == OutageFailOpen, Conn: s.primary.conn, History: s.primary.history, Pauses: s.primary.pauses,
			Local: func() store.Store { return memstore.New() },
		})
		shared = s.fallback
	}
	s.budgets = scoped.Compose(shared, memstore.New())
	return s
}

// newPrimary returns the budgets in the Redis of a client.
func newPrimary(client redis.UniversalClient, o *Options) *primary {
	p := &primary{
		client: client, conn: conn.New(client), names: names.New(o.Namespace),
		history: history.New(), offsets: history.NewClockOffsets(),
		pauses: history.RestorePauseEnds(nil), shut: history.RestorePauseEnds(nil),
	}
	p.names.Tagged, p.names.DB = o.HashTags || !p.conn.Single(), p.conn.DB
	p.subs = notify.New(p.conn, p.receive)
	p.watches = watch.New(p.conn, p.subs, p.askPauses)
	p.line = line.New(&line.Options{Names: p.names, Subs: p.subs, Post: func(op *commit.Op) { p.commit.Post(op) }})
	p.commit = commit.New(commit.Options{
		Conn: p.conn, Names: p.names, History: p.history, Offsets: p.offsets,
		Pauses: p.pauses, Shut: p.shut, Line: p.line, Lost: p.announceLoss,
	})
	return p
}

// Namespace returns the namespace in which the store keeps budgets: that of its
// Options, or [DefaultNamespace]. It is "" for a store that was made of wrong Options.
func (s *Store) Namespace() string { return s.namespace }

// SetUsed sets how much of its window a budget of the fleet has used, from nothing to its limit,
// and returns how much that was before. Where Redis has no count of the budget, because nothing
// has started under it for long or its limit has no windows, it does nothing, and ok is false.
// Starts that are booked for later are booked anew, if they do not fit any more or may be sooner.
func (s *Store) SetUsed(ctx context.Context, c store.Charge, used int) (before int, ok bool, err error) {
	if s.primary == nil {
		return 0, false, s.Traits().Err
	}
	if c.Node {
		return 0, false, nil
	}

	return s.primary.setUsed(ctx, &c, max(0, min(used, c.Limit.Capacity())))
}

// OnPause has tell called when the store hears that a budget of the fleet was closed, or
// opened: of all pauses while callers wait for their budgets, and of its own. It must not
// block. It takes the place of the one before; nil: nobody is told. Package fleet uses it,
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
