package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
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
				l := limiter(t, store, policy)
				var told []throttle.Event
				tr, err := throttle.New(throttle.Config{Store: store, Base: &upstream{}, Policies: []throttle.Policy{policy},
					Observe: func(_ context.Context, e throttle.Event) { told = append(told, e) }})
				require.NoError(t, err)
				c.away(server)

				ctx := forAtMost(t, 2*time.Second)
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
			client := clientOf(t, o)
			s := redisstore.New(client, nil)
			tr, err := throttle.New(throttle.Config{Store: s, Base: &upstream{}, Observe: func(context.Context, throttle.Event) {}, Policies: []throttle.Policy{
				{Name: "path", Key: throttle.Path, Limit: throttle.PerHour(5)},
				{Name: "at once", Limit: throttle.Concurrency(3)},
			}})
			require.NoError(t, err)
			away(server)
			ctx := forAtMost(t, 300*time.Millisecond)
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

// spelled returns an error and all that it wraps, in all spellings.
func spelled(err error) string {
	text := fmt.Sprintf("%v\n%+v\n%#v\n", err, err, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text += spelled(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text += spelled(inner)
		}
	}
	return text
}

// TestP14_WhatRedisSaysIsNoSecret: servers repeat what they do not understand, and
// dialling repeats addresses.
func TestP14_WhatRedisSaysIsNoSecret(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says error
		want string
	}{
		{said("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'pa55word' "), "ERR unknown command 'HELLO'"},
		{said("LOADING the dataset of\nredis://me:pa55word@10.0.0.1:6379/0"), "LOADING the dataset of\n…@10.0.0.1:6379/0"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "too many colons in address", Addr: "redis://me:pa55word@host:6379"}},
			"dial tcp: address …@host:6379: too many colons in address"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "me:pa55@word@host", IsNotFound: true}},
			"dial tcp: lookup …@host: no such host"},
	} {
		runBubble(t, c.want, func(t *testing.T, server *redistest.Server) {
			s, _ := saying(t, server.Client(t), c.says)
			ctx := forAtMost(t, time.Second)
			ctx, told := observed(ctx)
			_, err := s.Book(ctx, booking(charge("one", throttle.PerSecond(1))))
			require.ErrorContains(t, err, server.Addr+": "+c.want)
			text := spelled(&throttle.StoreError{Err: err})
			for _, w := range told() {
				text += w.text
			}
			require.NotContains(t, text, "pa55")
			require.NotContains(t, text, "word")
			require.Equal(t, errors.As(c.says, new(redis.Error)), errors.As(err, new(redis.Error)), "it is as final as before")
		})
	}
}

// TestP14_NoKeyOfACommandThatIsNotThere: operators take commands away by name.
func TestP14_NoKeyOfACommandThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, "--rename-command", "EVALSHA", "")
	l := limiter(t, redisstore.New(server.Client(t), nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	_, err := l.Acquire(t.Context(), "tenant", 1)
	require.EqualError(t, err, "throttle: the store could not be asked: redisstore: "+server.Addr+": ERR unknown command 'evalsha'")
	require.NotContains(t, spelled(err), redisstore.DefaultNamespace+":5:")
}

// TestP14_AnAddressWithAPassword is a mistake, and no reason to print it.
func TestP14_AnAddressWithAPassword(t *testing.T) {
	t.Parallel()
	client := clientOf(t, &redis.Options{Addr: "redis://me:pa55word@localhost:6379/0", DialerRetries: 1})
	l := limiter(t, redisstore.New(client, nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	_, err := l.TryAcquire(t.Context(), "", 1)
	require.ErrorContains(t, err, "too many colons in address")
	require.NotContains(t, spelled(err), "pa55word")
	require.True(t, strings.HasPrefix(err.Error(), "throttle: the store could not be asked: redisstore: no answer for "))
}

// TestP12_TheClientsDeadlineIsNotTheCallers, whose context is fine.
func TestP12_TheClientsDeadlineIsNotTheCallers(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, _ := saying(t, server.Client(t), fmt.Errorf("dial: %w", context.DeadlineExceeded))
		k := bookingFor(time.Second, charge("one", throttle.PerSecond(1)))
		_, err := s.Book(t.Context(), k)
		require.EqualError(t, err, "redisstore: no answer for 1s (failed calls: 7): "+server.Addr+": dial: context deadline exceeded")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
