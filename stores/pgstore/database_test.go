//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
)

// newServer starts a server whose database has been set up.
func newServer(t *testing.T, settings ...string) *pgtest.Server {
	t.Helper()
	s := pgtest.Start(t, settings...)
	require.NoError(t, pgstore.Setup(t.Context(), s.URL(), pgstore.Options{}))
	return s
}

// TestDatabase: what rowstore asks of a database, and the contract of stores on it.
func TestDatabase(t *testing.T) {
	server := newServer(t)
	rowtest.Run(t, func(t *testing.T) rowstore.Database { return pgstore.NewDatabase(t, server.URL(), pgstore.Options{}) }, rowstore.Options{})
	rowtest.Connection(t, server.Addr(), func(t *testing.T, address string) rowstore.Database {
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.Host = address
		return pgstore.NewDatabase(t, u.String(), pgstore.Options{})
	})
}

// TestWrongOptions: what cannot be meant is refused, all of it at once, and no password is told.
func TestWrongOptions(t *testing.T) {
	const right, wrongURL = "postgres://app:secret@localhost:1/app", "postgres://app:secret@localhost:port/app"
	for _, c := range []struct {
		url   string
		o     pgstore.Options
		wrong []string
	}{
		{right, pgstore.Options{}, nil},
		{right, pgstore.Options{Schema: "_a1", Connections: 1}, nil},
		{wrongURL, pgstore.Options{}, []string{"the URL"}},
		{right, pgstore.Options{Schema: "Throttle"}, []string{`Options.Schema: "Throttle"`}},
		{right, pgstore.Options{Connections: -1}, []string{"Options.Connections: -1"}},
		{right, pgstore.Options{Rows: rowstore.Options{Rows: -1}}, []string{"Options.Rows: -1"}},
		{wrongURL, pgstore.Options{Schema: "a b", Connections: -2, Rows: rowstore.Options{Lease: 5}}, []string{"the URL", "Options.Schema", "Options.Connections", "Options.Lease"}},
	} {
		s, err := pgstore.New(c.url, c.o)
		require.Equal(t, len(c.wrong) == 0, err == nil, "%v", err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, wrong)
			require.NotContains(t, err.Error(), "secret")
		}
	}

	_, err := pgstore.NewFromPool(nil, pgstore.Options{Connections: -1})
	require.ErrorAs(t, err, new(*store.OptionError))
	require.ErrorContains(t, err, "pool: is nil")
	require.ErrorContains(t, err, "Options.Connections")
	err = pgstore.Setup(t.Context(), wrongURL, pgstore.Options{Schema: "A"})
	require.ErrorContains(t, err, "the URL")
	require.ErrorContains(t, err, "Options.Schema")
}

// TestNewFromPool: a store connects as a pool does, and uses none of its connections: here the pool has one, which its caller
// holds, and later the pool is closed.
func TestNewFromPool(t *testing.T) {
	server := newServer(t)
	config, err := pgxpool.ParseConfig(newDatabase(t, server))
	require.NoError(t, err)
	var before, after, own int
	config.MaxConns = 1
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { before++; return nil }
	config.AfterConnect = func(context.Context, *pgx.Conn) error { after++; return nil }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{before, after})

	s, err := pgstore.NewFromPool(pool, pgstore.Options{BeforeConnect: func(context.Context, *pgx.ConnConfig) error { own++; return nil }})
	require.NoError(t, err)
	b := &store.Booking{MaxWait: time.Minute, Charges: []store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: store.PerHour(2), Cost: 1}}}
	book := func() bool {
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		return g.OK && g.Wait == 0
	}
	require.True(t, book())
	require.Greater(t, before, 1)
	require.Equal(t, []int{before - 1, before}, []int{own, after})
	held.Release()
	pool.Close()
	require.True(t, book())
}

// TestNewFromPoolThatRefuses: an error of a pool's hook is that of the store.
func TestNewFromPoolThatRefuses(t *testing.T) {
	errHook := errors.New("no role")
	for _, set := range []func(*pgxpool.Config){
		func(c *pgxpool.Config) {
			c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return errHook }
		},
		func(c *pgxpool.Config) { c.AfterConnect = func(context.Context, *pgx.Conn) error { return errHook } },
	} {
		config, err := pgxpool.ParseConfig(newDatabase(t, newServer(t)))
		require.NoError(t, err)
		set(config)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		s, err := pgstore.NewFromPool(pool, pgstore.Options{})
		require.NoError(t, err)
		_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: store.PerHour(2), Cost: 1}}})
		require.ErrorIs(t, err, errHook)
		pool.Close()
	}
}

// newDatabase returns the URL of a database of its own.
func newDatabase(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	name := fmt.Sprint("test", databases.Add(1))
	exec(t, connect(t, server), "CREATE DATABASE "+name)
	url := strings.Replace(server.URL(), "/postgres?", "/"+name+"?", 1)
	require.NoError(t, pgstore.Setup(t.Context(), url, pgstore.Options{}))
	return url
}

var databases atomic.Int64
