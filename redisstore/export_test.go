package redisstore

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// NewAt returns a store whose scripts are told the time, so that they run in
// virtual time against a real server.
func NewAt(c redis.UniversalClient, o Options, now func() int64) *Store {
	s := New(c, o)
	p := s.primary
	p.conn.Now = now
	p.subs.Listen = s.listenAt
	p.allNews, p.noNotice = true, true
	p.NoNews = true
	p.watches.SubscribeFrom = 1 << 62 // who listens in virtual time does so by the clock
	return s
}

// Frugal makes a store of NewAt leave out what is not worth a call, as others do.
func (s *Store) Frugal() *Store {
	s.primary.allNews = false
	return s
}

// IsReconcile reports whether a command runs lua/reconcile.lua.
func IsReconcile(cmd redis.Cmder) bool { return cmd.Args()[1] == wire.ReconcileScript.Hash() }

// IsBooking reports whether a command runs lua/book.lua.
func IsBooking(cmd redis.Cmder) bool {
	script := cmd.Args()[1]
	return script == wire.BookScript.Hash() || script == wire.BookScript.Source()
}

// Key returns the key of a budget.
func (s *Store) Key(b store.Budget) string { return s.primary.names.Row(&b) }

// Client returns the client of the store.
func (s *Store) Client() redis.UniversalClient { return s.primary.client }

// Running returns how many groups have a goroutine that makes calls.
func (s *Store) Running() int {
	return s.primary.Load().Running
}

// Queued returns how many callers wait for a call of their group.
func (s *Store) Queued() int {
	return s.primary.Load().Queued
}

// LongWay makes all stores book without the short way of lua/entries.lua, until the returned
// function is called.
func LongWay() (restore func()) {
	book := wire.BookScript
	const simple = "local simple = "
	if strings.Count(book.Source(), simple) != 1 {
		panic("no short way")
	}
	wire.BookScript = wire.FromSource(strings.Replace(book.Source(), simple, simple+"false and ", 1))
	return func() { wire.BookScript = book }
}

// ShortWay makes all stores fail where the short way does not do, until the returned function
// is called.
func ShortWay() (restore func()) {
	book := wire.BookScript
	short, _, found := strings.Cut(book.Source(), "return (function()")
	if !found {
		panic("nothing but the short way")
	}
	wire.BookScript = wire.FromSource(short + "return redis.error_reply('WRONGTYPE the long way')")
	return func() { wire.BookScript = book }
}

// MistakenScript makes all stores book with a script that has a mistake, until the returned
// function is called.
func MistakenScript(t *testing.T, from, to string) (restore func()) {
	book := wire.BookScript
	require.Equal(t, 1, strings.Count(book.Source(), from), from)
	wire.BookScript = wire.FromSource(strings.Replace(book.Source(), from, to, 1))
	return func() { wire.BookScript = book }
}

// Groups returns how many groups are in use, as far as Redis is told.
func (s *Store) Groups() int { return s.fallback.Groups() }

// tick is how often a store in virtual time looks for messages.
const tick = 50 * time.Millisecond

// listenAt is the Listen of a store in virtual time. A goroutine that waits for the
// network keeps a bubble's clock from moving, so it asks now and then what has
// come, and is a timer in between: a bubble may end while somebody waits.
func (s *Store) listenAt(ctx context.Context, sub *notify.Subscription) {
	s.listenUnless(ctx, sub, new(atomic.Bool))
}

// listenUnless is listenAt on a connection that is cut, and not made anew, while cut is true.
func (s *Store) listenUnless(ctx context.Context, sub *notify.Subscription, cut *atomic.Bool) {
	var c *redis.PubSub // nil while there is no connection
	closes := func() {
		if c != nil {
			c.Close()
		}
		c = nil
	}

	var look func()
	look = func() {
		switch {
		case ctx.Err() != nil:
			closes()
			return
		case cut.Load():
			closes()
		case c == nil:
			c = s.primary.client.Subscribe(context.Background(), sub.Own, sub.Shared)
		}

		if c != nil && (c.Ping(ctx) != nil || !drain(ctx, c, sub)) {
			closes()
			return
		}
		time.AfterFunc(tick, look)
	}
	look()
}

// Cuttable returns what cuts the connection on which a store of NewAt hears, and what lets it connect anew. It is called before
// the store listens.
func (s *Store) Cuttable() (cut, mend func()) {
	var isCut atomic.Bool
	s.primary.subs.Listen = func(ctx context.Context, sub *notify.Subscription) { s.listenUnless(ctx, sub, &isCut) }
	return func() { isCut.Store(true) }, func() { isCut.Store(false) }
}

// drain reads all that came before the answer to a ping.
func drain(ctx context.Context, c *redis.PubSub, sub *notify.Subscription) bool {
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return false
		}
		if _, ok := m.(*redis.Pong); ok {
			return true
		}
		sub.Deliver(m)
	}
}

// Disconnect keeps all messages from the store.
func (s *Store) Disconnect() { s.primary.subs.Listen = func(context.Context, *notify.Subscription) {} }

// NeverRenew lets leases run out.
func (s *Store) NeverRenew() { s.primary.RenewEvery = 24 * time.Hour }

// Subscriptions returns how many the store has.
func (s *Store) Subscriptions() int {
	if s.primary.subs.Active() {
		return 1
	}
	return 0
}

// Complete reports whether the store has surely received all that was published since a time.
func (s *Store) Complete(since time.Time) bool {
	return s.primary.subs.CompleteSince(since)
}

// Subscribe listens for one more, as for a sleeper.
func (s *Store) Subscribe() {
	s.primary.subs.Retain()
}

// Unsubscribe listens for one less.
func (s *Store) Unsubscribe() {
	s.primary.subs.Release()
}

// Leases returns how many budgets of concurrency the store knows.
func (s *Store) Leases() int { return s.primary.Load().Leases }

// LeasesKey returns the key of a budget of concurrency.
func (s *Store) LeasesKey(b store.Budget) string { return s.primary.names.Leases(&b) }

// ID returns what a store is called among those that use the same Redis.
func (s *Store) ID() string { return s.primary.names.Node }

// RecordKey returns the key of the record of a group's last call.
func (s *Store) RecordKey(group string) string { return s.primary.names.Record(group) }

// HeartbeatKey returns the key of who uses a group.
func (s *Store) HeartbeatKey(group string) string { return s.primary.names.Heartbeats(group) }

// PauseChannel returns where all stores hear of pauses.
func (s *Store) PauseChannel() string { return s.primary.names.Shared() }

// WakeChannel returns where this store is called when a waiter has room.
func (s *Store) WakeChannel() string { return s.primary.names.Own() }

// Tag returns what stands between the braces of the namespace's hash tag.
func (s *Store) Tag() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.primary.names.Tag(), "{"), "}:")
}

// Closed returns for how long the store believes a key's budget to be closed.
func (s *Store) Closed(key string) time.Duration {
	return time.Until(s.primary.pauses.Snapshot()[key])
}

// HeadNumbers is how many numbers a stored row begins with; HeadSize is which of them is how
// many entries it has, HeadNamed the length of the names of its earlier generations, and HeadLined that
// of its line.
const (
	HeadNumbers = 40
	HeadNamed   = 13
	HeadSize    = 17
	HeadLined   = 30
)

// Names is how many generations of a row have a name.
const Names = wire.Lives

// TestHeadNumbers: tests that read and spoil rows know how they are stored.
func TestHeadNumbers(t *testing.T) {
	require.Contains(t, wire.BookScript.Source(), "'<"+strings.Repeat("d", HeadNumbers)+"'")
}

// Standing returns how many callers of this store wait in lines.
func (s *Store) Standing() int {
	return s.primary.Load().Waiting
}

// Coming returns how many were called and are not there yet.
func (s *Store) Coming() int {
	return s.primary.Load().Summoned
}

// Lines returns in how many lines callers of this store wait.
func (s *Store) Lines() int {
	return s.primary.Load().Lines
}

// Listen makes a store of NewAt hear whose turn it is, as others do.
func (s *Store) Listen() *Store {
	s.primary.NoNews = false
	return s
}
