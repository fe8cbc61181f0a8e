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
	"errors"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/node"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in Redis. It is safe for concurrent use.
//
// While Redis is away every method with a context tries again, with a growing pause, for as long as
// the context and the MaxWait of a booking allow; see [Options.Outage] for bookings
// that need not wait. A Redis that does not answer soon is told of a Cancel in the background, for
// a moment, and after that by the next caller; it is told of a Release with the next call, or
// forgets. Reconcile makes no call for a quota that says nothing new. Refuse learns nothing from a start that
// was taken from a share while Redis was away, because no row knows that start.
type Store struct {
	budgets  store.Store     // the budgets of the fleet, in Redis, and of this node alone, in memory
	fallback *fallback.Store // serves the fleet's budgets while Redis is away. It is nil if callers wait then.
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
			FailOpen: o.Outage == OutageFailOpen, Conn: s.primary.conn, History: s.primary.history, Pauses: s.primary.pauses,
			Shut: s.primary.shut, Watches: s.primary.watches, Local: func() store.Store { return memstore.New() },
		})
		shared = s.fallback
	}

	s.budgets = scoped.Compose(shared, memstore.New())
	return s
}

// The methods of [store.Store], written out so that the documentation of this
// package has them.

// Book books the earliest start at which all charges of b have room, in one script call,
// and says how long it is until then: see [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	return s.budgets.Book(ctx, b)
}

// A primary keeps the budgets of the fleet in Redis. It knows neither the budgets of this
// node alone nor the fallback. Its Node books, and has the callers that wait. The primary has no lock.
// The locks of the packages below it are taken in this order:
//
//   - the record locks of leases (node), in the order of their keys. They are the only ones
//     that are held during a call;
//   - the groups of the fallback, then a local share, then the share's store in memory;
//   - the node;
//   - the subscriptions and the watches (notify), and the history: while one of these
//     is held no second lock is taken.
type primary struct {
	*node.Node
	client   redis.UniversalClient
	conn     *conn.Conn
	names    *wire.Space
	history  *history.History
	pauses   *history.PauseEnds
	shut     *history.PauseEnds // unlimited budgets that Redis said to be shut: see docs/internals/unlimited.md
	subs     *notify.Subscriptions
	watches  *notify.Watches
	onPause  atomic.Pointer[func()] // called at each pause, or nil: see Store.OnPause
	setUses  atomic.Int64           // how often setUsed was called: the number of its last call
	allNews  bool                   // for tests: quotas are reported even if they say nothing new
	noNotice bool                   // for tests: no loss is announced, so that there are no calls in the background
}

// newPrimary returns a primary that keeps budgets in the Redis of a client. It sends nothing.
func newPrimary(client redis.UniversalClient, o *Options) *primary {
	p := &primary{
		client: client, conn: conn.New(client), names: wire.NewSpace(o.Namespace), history: history.New(),
		pauses: history.RestorePauseEnds(nil), shut: history.RestorePauseEnds(nil),
	}

	// A cluster needs all keys of a script in one slot, so they have one hash tag.
	p.names.Tagged = o.HashTags || !p.conn.Single()
	p.names.DB = p.conn.DB

	// Messages come to receive, which passes them on to the watches and to the node.
	p.subs = notify.New(p.conn, func() notify.Channels { return notify.ChannelsOf(p.names) }, p.receive)
	p.watches = notify.NewWatches(p.conn, p.subs, p.askPauses)
	p.Node = node.New(node.Options{
		Conn: p.conn, Names: p.names, History: p.history, Offsets: history.NewClockOffsets(),
		Pauses: p.pauses, Shut: p.shut, Subs: p.subs, Lost: p.announceLoss, RenewEvery: node.RenewEvery,
	})
	return p
}

// Namespace returns the namespace in which the store keeps budgets: the namespace of its
// Options, or [DefaultNamespace]. It is "" for a store that was made of wrong Options.
func (s *Store) Namespace() string { return s.namespace }

// SetUsed sets how much of its window a budget of the fleet has used, and returns how much that was
// before. A used below 0 counts as 0, and a used beyond the limit as the limit. SetUsed changes
// nothing, and ok is false, if Redis counts no starts of the budget: the budget has been idle for
// long, its limit has no windows, or the budget belongs to one node. Callers whose booked start does
// not fit any more, or could be earlier now, book again. While Redis is away SetUsed tries again for at
// most half an hour.
func (s *Store) SetUsed(ctx context.Context, c store.Charge, used int) (before int, ok bool, err error) {
	// A store of wrong options has no primary.
	if s.primary == nil {
		return 0, false, s.Traits().Err
	}
	if c.Node {
		return 0, false, nil
	}

	return s.primary.setUsed(ctx, &c, max(0, min(used, c.Limit.Capacity())))
}

// OnPause has tell called when the store learns that a budget of the fleet was closed, or
// opened: by its own calls at any time, and by other programs while callers wait for the
// budget. tell must not block. It replaces the function of the last call, and OnPause(nil)
// removes it. Package fleet uses OnPause to ask who closed the budget.
func (s *Store) OnPause(tell func()) {
	switch {
	case s.primary == nil: // a store that was made of wrong options learns of no pause
	case tell == nil:
		s.primary.onPause.Store(nil)
	default:
		s.primary.onPause.Store(&tell)
	}
}

// Cancel gives back a start that was not used, or a place in line. It returns no
// error: a start whose return Redis does not learn of stays charged.
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

// Pause implements [store.Store].
func (p *primary) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	_, _, err := p.pause(ctx, c, store.Refusal{Length: max(0, min(d, store.MaxAhead))}, false)
	return err
}

// Resume implements [store.Store].
func (p *primary) Resume(ctx context.Context, c store.Charge) error {
	_, _, err := p.pause(ctx, c, store.Refusal{}, true)
	return err
}

// Refuse implements [store.Store]. The budget learns nothing from a start that no row knows,
// because the start was taken from a share while Redis was away.
func (p *primary) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	// Slots have no starts, so there is nothing to learn from.
	if wire.ForSlots(&c) {
		r.Start.Handle = store.Handle{}
	}

	// An Ago of 0 would be an operator's pause.
	r.Length, r.Ago = max(0, min(r.Length, store.MaxAhead)), max(time.Microsecond, r.Ago)
	return p.pause(ctx, c, r, false)
}

// pause closes a budget for r.Length: because of a refusal if r.Ago is not 0, and otherwise as an operator
// does. If lift is true it ends all pauses of the budget instead. It returns the budget's ceiling
// before and after the call. If the end of the pause changed, the script tells the rest of the fleet, and
// pause tells the watches and lines of this node.
func (p *primary) pause(ctx context.Context, c store.Charge, r store.Refusal, lift bool) (from, to float64, err error) {
	key := p.names.Of(&c)
	asked := time.Now()

	// The request is built anew for each try. Redis may have been away, so the lengths of time are as of now.
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.PauseReply] {
		q := wire.PauseRequest{
			Key: key, Charge: &c, Shared: p.names.Shared(), Lift: lift,
			Ago: r.Ago, Took: cmp.Or(r.Took, r.Ago), Start: r.Start.Handle.Start,
		}

		passed := time.Since(asked)
		q.Length = max(0, r.Length-passed)
		if q.Ago > 0 {
			q.Ago = min(q.Ago, store.MaxAhead) + passed
		}

		return q
	})
	if err != nil {
		return 0, 0, err
	}

	// Redis has just said that the budget is open.
	if lift {
		p.shut.Forget(key)
	}
	if reply.Changed {
		p.paused(notify.Pause{Key: key, End: reply.End, Left: wire.Wait(reply.End - reply.Now)})
	}

	return reply.From, reply.To, nil
}

// Reconcile implements [store.Store]. It makes no call for a quota that can lower nothing, or that says
// nothing new: see history.ReportsQuota.
func (p *primary) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	// Three kinds have nothing that a quota could lower. A bucket needs no Reset. Every other quota is void without a Reset, unless it tells a limit.
	switch c.Limit.Kind() {
	case store.KindLeakyBucket, store.KindConcurrency, store.KindUnlimited:
		return nil
	case store.KindTokenBucket:
	default:
		if q.Reset <= 0 && q.Told == (store.Limit{}) {
			return nil
		}
	}

	// An upstream may state any number.
	q.Left, q.Reset = max(0, q.Left), min(q.Reset, store.MaxPenalty)
	key := p.names.Row(&c.Budget)
	generation, report := p.history.ReportsQuota(key, &c, q, time.Now())
	if !report && !p.allNews {
		return nil
	}

	return p.reconcile(ctx, key, generation, &c, q)
}

// reconcile tells Redis how much of a budget is left, and remembers the reply. The script tells the rest of the fleet
// which starts became void, and reconcile tells the watches of this node.
func (p *primary) reconcile(ctx context.Context, key string, generation int64, c *store.Charge, q store.Quota) error {
	asked := time.Now()
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.ReconcileReply] {
		// While Redis is away the upstream's answer grows older.
		passed := time.Since(asked)
		return wire.ReconcileRequest{
			Key: key, Charge: c, Shared: p.names.Shared(), Left: q.Left,
			Reset: q.Reset - passed, Age: min(q.Age, store.MaxAhead) + passed, Generation: generation, Told: q.Told,
		}
	})
	if err != nil {
		return err
	}

	// Remember what Redis has now, so that the next quota of the same kind makes no call.
	known := history.QuotaReply{Left: reply.Left, Generation: reply.Generation}
	p.history.ObserveQuota(key, c, q, known, time.Now())
	p.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})

	return nil
}

// errUnknownCount is why SetUsed gives up although its context has not ended.
var errUnknownCount = errors.New("redisstore: nobody knows whether the count is set")

// setUsed sets how much of a budget is used, see Store.SetUsed. The script tells the rest of the fleet
// which starts became void; setUsed tells the watches of this node.
func (p *primary) setUsed(ctx context.Context, c *store.Charge, used int) (before int, ok bool, err error) {
	// No copy is sent when Redis may have forgotten that an earlier one was done.
	ctx, stop := context.WithTimeoutCause(ctx, wire.SetUsedTime/2, errUnknownCount)
	defer stop()

	key, record := p.names.Of(c), p.names.SetUsedRecord(p.setUses.Add(1))
	reply, err := conn.Ask(ctx, p.conn, nil, func() wire.Request[wire.SetUsedReply] {
		return wire.SetUsedRequest{Key: key, Record: record, Charge: c, Shared: p.names.Shared(), Used: used}
	})
	if err != nil {
		return 0, false, err
	}
	p.watches.Invalidated(notify.Invalidation{Key: key, From: reply.From, Until: reply.Until})
	return int(reply.Before), reply.Done, nil
}

// Status implements [store.Store].
func (p *primary) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[store.Status] {
		return wire.StatusRequest{Key: p.names.Of(&c), Charge: &c}
	})
}

// keptInRedis is the beginning of a kept Turn of a namespace.
func (p *primary) keptInRedis() []byte {
	h := fnv.New64a()
	h.Write([]byte(p.names.Namespace()))
	return h.Sum([]byte{'r'})
}

// Traits implements [store.Store].
func (p *primary) Traits() store.Traits { return store.Traits{Places: true} }

// PauseNote implements [store.Store]. Package fleet reads the notes of operators.
func (p *primary) PauseNote(store.Budget) store.PauseNote { return store.PauseNote{} }

// KeepTurn implements [store.Store].
func (p *primary) KeepTurn(_ *store.Booking, t store.Turn) []byte {
	return p.Node.KeepTurn(p.keptInRedis(), t)
}

// RestoreTurn implements [store.Store].
func (p *primary) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	// The beginning names the namespace: a place of a different namespace is void here.
	own := p.keptInRedis()
	if len(kept) < len(own) || string(kept[:len(own)]) != string(own) {
		return nil, false
	}
	return p.Node.RestoreTurn(b, kept[len(own):])
}

// Appoint implements [store.Store].
func (p *primary) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[time.Duration] {
		return wire.AppointRequest{Key: p.names.Appointments(&c.Budget), Wait: min(wait, store.MaxAhead), Length: ledger.Distance(&c), Again: again}
	})
}

// Watch implements [store.Store].
func (p *primary) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	sent := node.SentAt(g.Handle.Stamp)
	start := notify.Start{
		At: g.Handle.Start, Sent: sent, Due: sent.Add(g.Age + g.Wait), Doubt: g.Age,
	}

	// Budgets of slots have no history of starts, and pauses of shadow budgets hold nobody.
	for i := range b.Charges {
		c := &b.Charges[i]
		if !wire.ForSlots(c) {
			start.Charges = append(start.Charges, *c)
		}
		if !c.Shadow {
			start.Keys = append(start.Keys, p.names.Of(c))
		}
	}

	return p.watches.Add(start, news)
}

// askPauses asks Redis once for the pauses of some budgets.
func (p *primary) askPauses(ctx context.Context, keys []string) ([]notify.Pause, error) {
	ends, err := conn.AskOnce(ctx, p.conn, func() wire.Request[[]wire.PauseEnd] { return wire.PausesRequest{Keys: keys} })
	if err != nil {
		return nil, err
	}
	found := make([]notify.Pause, len(keys))
	for i, e := range ends {
		found[i] = notify.Pause{Key: keys[i], End: e.End, Left: e.Left}
	}
	return found, nil
}

// receive hands a message of the scripts, or of other nodes, to the part of the store that needs it.
func (p *primary) receive(m notify.Message) {
	switch m := m.(type) {
	case notify.Subscribed:
		p.Subscribed(m.Channel)
	case notify.Pause:
		p.paused(m)
	case notify.Invalidation:
		p.watches.Invalidated(m)
	case notify.Turns:
		p.Turns(m)
	case notify.Slots:
		p.Granted(m)
	case notify.Loss:
		p.lost(m.Key)
	}
}

// paused notes that a budget was closed or opened, and tells the lines and the watches of this node, and the function of OnPause.
func (p *primary) paused(m notify.Pause) {
	if m.Lifted() {
		p.pauses.Forget(m.Key)
		p.shut.Forget(m.Key)
		p.Lifted(m.Key)
	} else {
		// The end is by this node's clock, as the ends of all pauses that the node knows.
		now := time.Now()
		end := now.Add(min(m.Left, store.MaxPenalty))
		p.pauses.Note(m.Key, end, now)
		p.Paused(m.Key, end)
	}

	// Watches are told last, when lines and pauses know already.
	p.watches.Paused(m)
	if tell := p.onPause.Load(); tell != nil {
		(*tell)()
	}
}

// A node whose callers all sleep makes no call, and it may be the only node that knows its last bookings.
// So when Redis loses a budget, the node that finds out announces the loss, and all nodes tell
// Redis their history of the budget at once: see docs/internals/state-loss.md.

// announceLoss tells the fleet that a budget was lost, unless a loss of it was news less than a second ago. The
// call has a goroutine of its own, because it takes as long as the client lets it.
func (p *primary) announceLoss(key string) {
	if !p.noNotice && p.history.NoteLoss(key, time.Now()) {
		// A failure does no harm: without the announcement the nodes tell Redis with their next calls.
		go func() {
			_ = p.conn.Publish(context.Background(), p.names.Shared(), notify.Loss{Key: key}.String())
		}()
	}
}

// lost has the waiters of a budget that Redis lost book again. If starts of this node under the budget are still to
// come, the node tells Redis its history of the budget, unless a loss of it was news less than a second ago.
func (p *primary) lost(key string) {
	p.Forgotten(key)
	if all := p.watches.Charges(key); len(all) > 0 && p.history.NoteLoss(key, time.Now()) {
		p.Report(all)
	}
}

// Heartbeat implements [fallback.Primary]; see lua/heartbeat.lua.
func (p *primary) Heartbeat(ctx context.Context, group string, h fallback.Heartbeat) (fallback.Reply, error) {
	return conn.AskOnce(ctx, p.conn, func() wire.Request[fallback.Reply] {
		return wire.HeartbeatRequest{Key: p.names.Heartbeats(group), Node: p.names.Node, Heartbeat: h}
	})
}

// Key implements [fallback.Primary].
func (p *primary) Key(c *store.Charge) string { return p.names.Row(&c.Budget) }

// PauseKey implements [fallback.Primary].
func (p *primary) PauseKey(c *store.Charge) string { return p.names.Of(c) }

// Keep implements [fallback.Primary].
func (p *primary) Keep(c *store.Charge) time.Duration { return node.Keep(c) }

// maxReport bounds how many budgets one call reports.
const maxReport = 80

// TellStarts implements [fallback.Primary].
func (p *primary) TellStarts(ctx context.Context, charges []store.Charge) error {
	// Most budgets have nothing to tell.
	unreported := slices.DeleteFunc(slices.Clone(charges), func(c store.Charge) bool {
		return !p.history.HasUnreported(p.names.Row(&c.Budget), time.Now())
	})
	for some := range slices.Chunk(unreported, maxReport) {
		if err := p.ReportNow(ctx, some); err != nil {
			return err
		}
		for i := range some {
			p.history.MarkReported(p.names.Row(&some[i].Budget))
		}
	}
	return nil
}
