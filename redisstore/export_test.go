package redisstore

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// NewAt returns a store whose scripts are told the time, so that they run in
// virtual time against a real server.
func NewAt(c redis.UniversalClient, o *Options, now func() int64) *Store {
	s := New(c, o)
	p := s.primary
	p.conn.Now = now
	p.subs.Listen = s.listenAt
	p.allNews, p.noNotice = true, true
	p.line.NoNews = true
	p.watches.SubscribeFrom = 1 << 62 // who listens in virtual time does so by the clock
	return s
}

// Frugal makes a store of NewAt leave out what is not worth a call, as others do.
func (s *Store) Frugal() *Store {
	s.primary.allNews = false
	return s
}

// IsReconcile reports whether a command runs lua/reconcile.lua.
func IsReconcile(cmd redis.Cmder) bool { return cmd.Args()[1] == wire.ReconcileScript.Hash }

// Key returns the key of a budget.
func (s *Store) Key(b throttle.Budget) string { return s.primary.names.Row(&b) }

// Running returns how many groups have a goroutine that makes calls.
func (s *Store) Running() int {
	_, running := s.primary.commit.Len()
	return running
}

// Queued returns how many callers wait for a call of their group.
func (s *Store) Queued() int {
	queued, _ := s.primary.commit.Len()
	return queued
}

// LongWay makes all stores book without the short way of lua/short.lua, until the returned
// function is called.
func LongWay() (restore func()) {
	book := wire.BookScript
	const simple = "local simple = "
	if strings.Count(book.Source, simple) != 1 {
		panic("no short way")
	}
	wire.BookScript = wire.FromSource(strings.Replace(book.Source, simple, simple+"false and ", 1))
	return func() { wire.BookScript = book }
}

// ShortWay makes all stores fail where the short way does not do, until the returned function
// is called.
func ShortWay() (restore func()) {
	book := wire.BookScript
	short, _, found := strings.Cut(book.Source, "return (function()")
	if !found {
		panic("nothing but the short way")
	}
	wire.BookScript = wire.FromSource(short + "return redis.error_reply('WRONGTYPE the long way')")
	return func() { wire.BookScript = book }
}

// Groups returns how many groups are in use, as far as Redis is told.
func (s *Store) Groups() int { return s.fallback.Groups() }
