package redisstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP8_LeavesOnTheWay replaces a start and leaves before the answer comes. Both
// the old place and the new one are given back, each once.
func TestP8_LeavesOnTheWay(t *testing.T) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, server.Client(t), isScript)
		five := charge("five", throttle.PerSecond(5))
		var grants []**outcome
		for range 5 {
			grants = append(grants, bookAside(t.Context(), s, booking(five)))
		}
		for range 2 {
			tap.pass <- struct{}{}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		k := booking(five)
		k.Instead = (*grants[0]).grant.Mark
		got := bookAside(ctx, s, k)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, (*got).err, context.Canceled)
		close(tap.pass)
		synctest.Wait()
		require.Equal(t, time.Duration(0), book(t, s, five))
		require.Equal(t, span, book(t, s, five))
	})
}

// A cutter cuts the connection of one script call when the server has answered,
// so that the answer is lost.
type cutter struct{ armed atomic.Bool }

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &cuttable{conn, c}, err
}

type cuttable struct {
	net.Conn
	c *cutter
}

func (c *cuttable) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil && bytes.Contains(p, []byte("evalsha")) && c.c.armed.CompareAndSwap(true, false) {
		_, _ = c.Conn.Read(make([]byte, 1)) // it was done
		_ = c.Close()
	}
	return n, err
}

// TestP8_LostAnswers loses the answer of a call that gives a place back. It is
// not given back again, by whomever: that would be another's.
func TestP8_LostAnswers(t *testing.T) {
	server := redistest.Shared(t)
	five := charge("five", throttle.PerSecond(5))
	onCut := func(t *testing.T, f func(t *testing.T, s *redisstore.Store, c *cutter, k *throttle.Booking, g throttle.Grant)) {
		synctest.Test(t, func(t *testing.T) {
			var c cutter
			o := server.Options()
			o.Dialer = c.dial
			client := redis.NewClient(o)
			defer client.Close()
			s, _ := loaded(t, client, nil)
			for range 4 {
				book(t, s, five)
			}
			k := booking(five)
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			f(t, s, &c, k, g)
			require.False(t, c.armed.Load(), "no answer was lost")
		})
	}
	t.Run("cancel", func(t *testing.T) {
		onCut(t, func(t *testing.T, s *redisstore.Store, c *cutter, k *throttle.Booking, g throttle.Grant) {
			c.armed.Store(true)
			s.Cancel(k, g)
			require.Equal(t, time.Duration(0), book(t, s, five))
			require.Equal(t, span, book(t, s, five))
		})
	})
	t.Run("instead", func(t *testing.T) {
		onCut(t, func(t *testing.T, s *redisstore.Store, c *cutter, k *throttle.Booking, g throttle.Grant) {
			c.armed.Store(true)
			k.Instead = g.Mark
			again, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			require.GreaterOrEqual(t, again.Mark-g.Mark, span.Microseconds(), "the lost start may be used by somebody")
		})
	})
}
