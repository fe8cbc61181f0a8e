package redisstore_test

import (
	"context"
	"net/http"
	"regexp"
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

// figures are what differs from run to run in what is said of an outage.
var figures = regexp.MustCompile(`[\d.]+m?s\b|failed calls: \d+|127\.0\.0\.1:\d+->`)

// plainly returns a text without its figures.
func plainly(text string) string {
	return figures.ReplaceAllStringFunc(text, func(figure string) string {
		switch figure[len(figure)-1] {
		case 's':
			return "SOME TIME"
		case '>':
			return "FROM->"
		}
		return "failed calls: SOME"
	})
}

// TestP12_WhatAUserSees of a real server that is killed, and of one that hangs: in
// errors, and in events while it waits. A killed one refuses connections at once. It is
// asked in virtual time, so that no busy machine makes of that a second of silence.
func TestP12_WhatAUserSees(t *testing.T) {
	t.Parallel()
	const (
		gaveUp = "throttle: the caller gave up after SOME TIME: context deadline exceeded; the store could not be asked: "
		failed = "throttle: the store could not be asked: "
		silent = "redisstore: no answer for SOME TIME"
	)
	for name, c := range map[string]struct {
		away    func(*redistest.Server)
		virtual bool   // the time in which it is asked
		first   string // what a waiting request is told first
		last    string // what it is told after two seconds
	}{
		"killed": {(*redistest.Server).Kill, true, "redisstore: dial tcp ADDR: connect: connection refused",
			silent + " (failed calls: SOME): dial tcp ADDR: connect: connection refused"},
		"hangs": {(*redistest.Server).Pause, false, silent + " from ADDR", silent + " from ADDR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			see := func(t *testing.T) {
				seen := func(err error) string {
					return plainly(regexp.MustCompile(regexp.QuoteMeta(server.Addr)).ReplaceAllString(err.Error(), "ADDR"))
				}
				store, policy := redisstore.New(server.Client(t), nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)}
				if c.virtual {
					atRest(t, store)
				}
				l, err := throttle.NewLimiter(store, policy)
				require.NoError(t, err)
				var told []throttle.Event
				tr, err := throttle.New(throttle.Config{Store: store, Base: &upstream{}, Policies: []throttle.Policy{policy},
					Observe: func(_ context.Context, e throttle.Event) { told = append(told, e) }})
				require.NoError(t, err)
				c.away(server)

				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				var errs [2]error
				var all sync.WaitGroup
				all.Go(func() { errs[0] = l.Pause(ctx, "", time.Second) })
				all.Go(func() { _, errs[1] = l.Status(ctx, "") })
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil)
				require.NoError(t, err)
				_, err = tr.RoundTrip(req)
				all.Wait()
				require.Equal(t, gaveUp+c.last, seen(err))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorAs(t, err, new(*throttle.StoreError))
				for _, err := range errs {
					require.Equal(t, failed+c.last, seen(err))
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				require.Len(t, told, 2)
				require.Equal(t, throttle.StoreFailed, told[0].Kind)
				require.Equal(t, failed+c.first, seen(told[0].Err))
				require.Equal(t, throttle.Event{Kind: throttle.GaveUp, Duration: told[1].Duration, Err: err}, told[1])

				_, err = l.Acquire(throttle.WithMaxWait(t.Context(), 2*time.Second), "", 1)
				require.Equal(t, failed+c.last, seen(err))
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
			if c.virtual {
				synctest.Test(t, see)
			} else {
				see(t)
			}
		})
	}
}

// TestP15_NothingIsLeftOfAnOutage: a thousand callers have given up. A call that is
// on its way ends when the client thinks so, and none is made for nobody.
func TestP15_NothingIsLeftOfAnOutage(t *testing.T) {
	for name, away := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill,
		"hangs":  (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Single(t)
			o := server.Options()
			o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
			client := redis.NewClient(o)
			defer client.Close()
			s := redisstore.New(client, nil)
			tr, err := throttle.New(throttle.Config{Store: s, Base: &upstream{}, Observe: func(context.Context, throttle.Event) {}, Policies: []throttle.Policy{
				{Name: "path", Key: throttle.Path, Limit: throttle.PerHour(5)},
				{Name: "at once", Limit: throttle.Concurrency(3)},
			}})
			require.NoError(t, err)
			away(server)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var all sync.WaitGroup
			for i := range 1000 {
				all.Go(func() {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/"+string(rune('a'+i%20)), nil)
					if err == nil {
						_, err = tr.RoundTrip(req)
					}
					if _, ok := err.(interface{ Timeout() bool }); !ok {
						t.Errorf("want what a deadline makes, got %v", err)
					}
				})
			}
			all.Wait()
			require.Empty(t, leaked(30*time.Second))
			require.Zero(t, s.Running())
			require.LessOrEqual(t, s.Queued(), 100, "the next caller sweeps them out")
		})
	}
}
