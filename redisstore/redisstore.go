// Package redisstore keeps budgets in Redis, so that all processes that use the
// same Redis and the same policy names share them. It works with standalone
// servers, Sentinel and Cluster, and takes nothing but the client: there is no
// set-up, no list of nodes, and nothing to close.
//
// A booking is one script call, decided by the server's clock. Each budget is
// one key of at most 4 KB that expires when it is idle. It needs Redis 7.0 or
// later; docs/redis.md says which rights and settings. What happens while Redis
// is away is for [Options.Outage] to say.
package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/fallback"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
)

// DefaultNamespace is the Namespace of Options that do not set one.
const DefaultNamespace = "throttle"

// Options are all optional; nil means the defaults.
type Options struct {
	// Namespace begins every key. Programs share budgets only within one
	// namespace. Defaults to [DefaultNamespace].
	Namespace string

	// HashTags puts the budgets that one request can need into one slot of a
	// Redis Cluster, by a hash tag that the policies' hosts give. It is always
	// so with a cluster client or a ring; set it for a plain client that talks
	// to a cluster through a proxy. All programs that share budgets must agree.
	// Defaults to false.
	HashTags bool

	// Outage is what to do while Redis is away. Programs that share budgets
	// should agree: one that does not share leaves no room for those that do.
	// Defaults to [Wait].
	Outage Outage
}

// A Store keeps budgets in Redis. It is safe for concurrent use.
type Store struct {
	budgets  throttle.Store  // those of the fleet, in this store, and those of this node alone, in memory
	fallback *fallback.Store // what budgets goes through while Redis is away; nil: callers wait
	client   redis.UniversalClient
	conn     *conn.Conn
	prefix   string
	tagged   bool   // see Options.HashTags
	id       string // this store among those that use the same Redis: random
	lanes    lanes
	flights  flights
	queues   queues
	offsets  *history.ClockOffsets
	subs     *notify.Subscriptions
	watches  *watch.Watches
	history  *history.History
	pauses   *history.PauseEnds
	shut     *history.PauseEnds // gates that Redis said to be shut; see gates.go
	callers  sync.Pool
	frugal   bool // what is not worth a call is not told: see internal/history
	mute     bool // nobody is told what was lost: a test wants no calls in the background
}

// New returns a store on client, which stays the caller's: throttle never
// closes it. New sends nothing, so Redis need not be up.
func New(client redis.UniversalClient, o *Options) *Store {
	s := &Store{client: client, conn: conn.New(client), frugal: true}
	s.lanes.conn, s.lanes.up, s.lanes.all = s.conn, above{s}, make(map[string]*lane)
	s.flights.all, s.flights.every = make(map[string]*flight), renewEvery
	s.history, s.offsets = history.New(), history.NewClockOffsets()
	s.pauses, s.shut = history.RestorePauseEnds(nil), history.RestorePauseEnds(nil)
	s.queues.all, s.queues.coming = make(map[string]*queue), make(map[string]*gathering)
	s.subs = notify.New(s.conn, s.receive)
	s.watches = watch.New(s.conn, s.subs, s.askPauses)
	id := make([]byte, 9)
	rand.Read(id) // never fails
	s.id = base64.RawURLEncoding.EncodeToString(id)
	name := DefaultNamespace
	if o != nil && o.Namespace != "" {
		name = o.Namespace
	}
	// The version of the stored form is part of every key, so that programs
	// with different forms never share a row.
	s.prefix = escape.Replace(name) + ":5:"
	s.tagged = !s.conn.Single() || o != nil && o.HashTags
	fleet := throttle.Store(fleetStore{s})
	if o != nil && (o.Outage == Share || o.Outage == FailOpen) {
		s.fallback = fallback.New(fleetStore{s}, fallback.Options{
			FailOpen: o.Outage == FailOpen, Conn: s.conn, History: s.history, Pauses: s.pauses,
			Local: func() throttle.Store { return memstore.New() },
		})
		fleet = s.fallback
	}
	s.budgets = scoped.Compose(fleet, memstore.New())
	return s
}

// escape keeps names from ending a hash tag early, and no two become one.
var escape = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

// plain is escape for what must not look like more than one part of a key.
var plain = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25", ":", "%3A")

// key returns the budget's key. In a cluster its hash tag is the group, so that
// the budgets of one request lie in one slot. The group depends on the other
// policies, so it stays out of the key where it is not needed: a budget keeps
// its state by policy and key, whatever happens to the table around it.
func (s *Store) key(b *throttle.Budget) string {
	return s.prefix + s.tag(b.Group) + escape.Replace(b.Policy) + ":" + base64.RawURLEncoding.EncodeToString(b.Key[:])
}

// recordKey returns the key under which Redis remembers the last call of this
// store in a lane. No budget has it: those end in a hash of 22 letters.
func (s *Store) recordKey(group string) string {
	return s.prefix + s.tag(group) + "calls:" + s.id + ":" + plain.Replace(group)
}

// tag returns the hash tag of a group, where there is a cluster.
func (s *Store) tag(group string) string {
	if !s.tagged {
		return ""
	}
	return "{" + escape.Replace(group) + "}:"
}

// Book implements [throttle.Store]. While Redis is away it tries again, with a
// growing pause, for as long as ctx and b.MaxWait allow.
func (s *Store) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	return s.budgets.Book(ctx, b)
}

// Cancel implements [throttle.Store]. A Redis that does not answer soon is told
// in the background, for a moment; after that the next caller tells it.
func (s *Store) Cancel(b *throttle.Booking, g throttle.Grant) { s.budgets.Cancel(b, g) }

// Release implements [throttle.Store]. A Redis that does not answer soon is told
// with the next call, or forgets.
func (s *Store) Release(b *throttle.Booking, g throttle.Grant) { s.budgets.Release(b, g) }

// Settle implements [throttle.Store].
func (s *Store) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	return s.budgets.Settle(ctx, b, g, costs)
}

// Pause implements [throttle.Store]. While Redis is away it tries again as long
// as ctx allows.
func (s *Store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	return s.budgets.Pause(ctx, c, d)
}

// Refuse implements [throttle.Store]. A start that no row knows, because it was taken from
// a share while Redis was away, teaches nothing.
func (s *Store) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	return s.budgets.Refuse(ctx, c, r)
}

// Resume implements [throttle.Store].
func (s *Store) Resume(ctx context.Context, c throttle.Charge) error { return s.budgets.Resume(ctx, c) }

// Reconcile implements [throttle.Store]. What is not worth a call is not told.
// While Redis is away it tries again as long as ctx allows.
func (s *Store) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	return s.budgets.Reconcile(ctx, c, q)
}

// Watch implements [throttle.Store].
func (s *Store) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	return s.budgets.Watch(b, g, news)
}

// Status implements [throttle.Store].
func (s *Store) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	return s.budgets.Status(ctx, c)
}
