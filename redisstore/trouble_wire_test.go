package redisstore_test

import (
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_DeadConnections freezes all connections of a pool. Those that come later
// work, so the first call on a new one is answered, however many are dead: without
// that each would take its ReadTimeout, a minute here.
func TestP12_DeadConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	wire := redistest.NewWire(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = wire.Addr, time.Minute
	client := clientOf(t, o)
	s := redisstore.New(client, nil)
	const groups = 12
	for client.PoolStats().IdleConns < groups {
		var all sync.WaitGroup
		for i := range groups {
			all.Go(func() {
				_, err := s.Book(t.Context(), booking(inGroup(fmt.Sprint(i), charge("many", throttle.PerSecond(1000000)))))
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	wire.Deafen()
	ctx := forAtMost(t, inTheEnd)
	g, err := s.Book(ctx, booking(hourly))
	require.NoError(t, err)
	require.Zero(t, g.Wait)
}

// TestP12_Frozen has callers whose Redis is behind a network that loses all obey
// their contexts. When it is back they are served, once.
func TestP12_Frozen(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	wire := redistest.NewWire(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = wire.Addr, time.Second
	client := clientOf(t, o)
	s := redisstore.New(client, nil)
	h := &history{T: t}
	for range 4 {
		h.book(s)
	}
	wire.Freeze()
	refuses(t, s, wire.Addr)
	g := meanwhile(t, s, wire.Mend)
	require.Zero(t, g.Wait)
	h.starts = append(h.starts, g.Handle.Start)
	require.Positive(t, h.book(s).Wait)
}

// TestTLS books over TLS, and says what is wrong where it is not to be had. What fails,
// fails in virtual time, so it has failed before MaxWait is over however busy the machine
// is. A server that waits for more would let no virtual time pass.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	const secret = "sesame-52"
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	now := time.Now() // a certificate holds now, not when virtual time begins
	config := func(c *tls.Config) *tls.Config {
		c.Time = func() time.Time { return now }
		return c
	}
	known, mine := server.Config.RootCAs, server.Config.Certificates
	store := func(t *testing.T, addr string, c *tls.Config) *redisstore.Store {
		client := clientOf(t, &redis.Options{Addr: addr, TLSConfig: c, Password: secret})
		return redisstore.New(client, nil)
	}
	k := bookingFor(1500*time.Millisecond, hourly)
	for _, try := range []struct {
		name, addr string
		config     *tls.Config
		want       string
	}{
		{"unknown authority", server.TLSAddr, config(&tls.Config{}), "certificate signed by unknown authority"},
		{"no certificate", server.TLSAddr, config(&tls.Config{RootCAs: known}), "certificate required"},
		{"another name", server.TLSAddr, config(&tls.Config{RootCAs: known, ServerName: "redis.example"}), "wanted to match redis.example"},
		{"TLS here", server.TLSAddr, nil, server.TLSAddr + ": EOF"},
		{"fine", server.TLSAddr, config(&tls.Config{RootCAs: known, Certificates: mine}), ""},
	} {
		t.Run(try.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, err := atRest(t, store(t, try.addr, try.config)).Book(t.Context(), k)
				if try.want == "" {
					require.NoError(t, err)
					require.True(t, g.OK)
					return
				}
				require.ErrorContains(t, err, try.want)
				require.NotContains(t, err.Error(), secret)
			})
		})
	}
	t.Run("no TLS here", func(t *testing.T) {
		t.Parallel()
		_, err := store(t, server.Addr, server.Config).Book(t.Context(), k)
		require.ErrorContains(t, err, "no answer")
		require.NotContains(t, err.Error(), secret)
	})
}
