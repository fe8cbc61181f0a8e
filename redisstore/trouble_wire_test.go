package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
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
	tunnel := redistest.NewTunnel(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = tunnel.Addr, time.Minute
	client := redis.NewClient(o)
	defer client.Close()
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
	tunnel.Freeze()
	tunnel.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
	defer cancel()
	g, err := s.Book(ctx, booking(hourly))
	require.NoError(t, err)
	require.Zero(t, g.Wait)
}

// TestP12_Frozen has callers whose Redis is behind a network that loses all obey
// their contexts. When it is back they are served, once.
func TestP12_Frozen(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	tunnel := redistest.NewTunnel(t, server.Addr)
	o := server.Options()
	o.Addr, o.ReadTimeout = tunnel.Addr, time.Second
	client := redis.NewClient(o)
	defer client.Close()
	s := redisstore.New(client, nil)
	h := &history{T: t}
	for range 4 {
		h.book(s)
	}
	tunnel.Freeze()
	refuses(t, s, tunnel.Addr)
	g := meanwhile(t, s, tunnel.Thaw)
	require.Zero(t, g.Wait)
	h.starts = append(h.starts, g.Handle.Start)
	require.Positive(t, h.book(s).Wait)
}

// TestTLS books over TLS, and says what is wrong where it is not to be had.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	const secret = "sesame-52"
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	for _, try := range []struct {
		name, addr string
		config     *tls.Config
		want       string
	}{
		{"fine", server.TLSAddr, server.Config, ""},
		{"unknown authority", server.TLSAddr, &tls.Config{}, "certificate signed by unknown authority"},
		{"no certificate", server.TLSAddr, &tls.Config{RootCAs: server.Config.RootCAs}, "certificate required"},
		{"another name", server.TLSAddr, &tls.Config{RootCAs: server.Config.RootCAs, ServerName: "redis.example"}, "wanted to match redis.example"},
		{"no TLS here", server.Addr, server.Config, "no answer"},
		{"TLS here", server.TLSAddr, nil, server.TLSAddr + ": EOF"},
	} {
		t.Run(try.name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: try.addr, TLSConfig: try.config, Password: secret})
			defer client.Close()
			k := booking(hourly)
			k.MaxWait = 1500 * time.Millisecond
			g, err := redisstore.New(client, nil).Book(t.Context(), k)
			if try.want == "" {
				require.NoError(t, err)
				require.True(t, g.OK)
				return
			}
			require.ErrorContains(t, err, try.want)
			require.NotContains(t, err.Error(), secret)
		})
	}
}
