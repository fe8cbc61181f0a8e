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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// passing are errors after which it helps to ask again.
var passing = []error{
	errAway,
	said("LOADING Redis is loading the dataset in memory"),
	said("READONLY You can't write against a read only replica."),
	said("MASTERDOWN Link with MASTER is down"),
	said("CLUSTERDOWN The cluster is down"),
	said("BUSY Redis is busy running a script."),
	said("NOREPLICAS Not enough good replicas to write."),
	said("OOM command not allowed when used memory > 'maxmemory'."),
}

// TestP12_ServiceResumes lets callers wait for a server that is not ready. They
// are served soon after it is.
func TestP12_ServiceResumes(t *testing.T) {
	eachBubble(t, passing, func(t *testing.T, server *redistest.Server, err error) {
		s, away := saying(t, server.Client(t), err)
		one := charge("one", store.PerSecond(1))
		first := bookAside(t.Context(), s, booking(one))
		rest(time.Minute)
		require.Nil(t, *first)
		// At 0, 10, 30, 70, 150, 310, 630 ms, then every 500.
		require.Equal(t, int64(7+118), away.calls.Load())
		second := bookAside(t.Context(), s, booking(one))

		away.err.Store(nil)
		rest(500 * time.Millisecond)
		require.NoError(t, (*first).err)
		require.NoError(t, (*second).err)
		require.LessOrEqual(t, (*first).after, time.Minute+500*time.Millisecond)
		start := func(o *outcome) time.Time { return time.UnixMicro(o.grant.Handle.Start) }
		require.Equal(t, span, start(*first).Sub(start(*second)).Abs())
	})
}

// TestP12_ContextIsObeyed ends the context of callers while the server is away,
// and while it does not answer at all.
func TestP12_ContextIsObeyed(t *testing.T) {
	t.Parallel()
	const room = 333 * time.Millisecond
	try := func(t *testing.T, s *redisstore.Store) {
		start, one := time.Now(), charge("one", store.PerSecond(1))
		ctx := forAtMost(t, room)
		got := bookAside(ctx, s, booking(one))
		pauseErr := s.Pause(ctx, one, time.Second)
		_, statusErr := s.Status(ctx, one)
		require.Equal(t, room, time.Since(start))
		synctest.Wait()
		for _, err := range []error{(*got).err, pauseErr, statusErr} {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, room, (*got).after)
	}
	runBubble(t, "away", func(t *testing.T, server *redistest.Server) {
		s, _ := saying(t, server.Client(t), errAway)
		try(t, s)
	})
	runBubble(t, "silent", func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		try(t, s)
		close(tap.pass)
	})
}

// TestP12_NeverWaiting books without waiting for room: Redis is given a second.
// A MaxWait bounds the whole, but a tenth of a second is always given.
func TestP12_NeverWaiting(t *testing.T) {
	t.Parallel()
	for maxWait, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: 100 * time.Millisecond, 5 * time.Second: 5 * time.Second,
	} {
		runBubble(t, maxWait.String(), func(t *testing.T, server *redistest.Server) {
			s, _ := saying(t, server.Client(t), errAway)
			k := bookingFor(maxWait, charge("one", store.PerSecond(1)))
			start := time.Now()
			_, err := s.Book(t.Context(), k)
			require.ErrorIs(t, err, errAway)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's own context is fine")
			require.Equal(t, want, time.Since(start))
		})
	}
}

// TestP12_ShadowsDoNotWaitForRedis: work under shadow policies alone starts while Redis refuses, and waits
// for half a second at most while Redis says nothing.
func TestP12_ShadowsDoNotWaitForRedis(t *testing.T) {
	t.Parallel()
	for silent, most := range map[bool]time.Duration{false: 0, true: 500 * time.Millisecond} {
		runBubble(t, fmt.Sprint(silent), func(t *testing.T, server *redistest.Server) {
			c := newSharers(t, server, 1, redisstore.Options{}, forty)
			l := limiter(t, c.nodes[0].store, throttle.Policy{Name: "shadow", Limit: store.PerHour(1), Shadow: true})
			start := func() time.Duration {
				begin := time.Now()
				_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
				require.NoError(t, err)
				return time.Since(begin)
			}
			used := func() int {
				st, err := l.Status(t.Context(), "")
				require.NoError(t, err)
				return st.Used
			}
			require.Zero(t, start())
			require.Equal(t, 1, used())
			away(silent, c.nodes...)
			for range 10 {
				require.LessOrEqual(t, start(), most)
				time.Sleep(300 * time.Millisecond)
			}
			back(c.nodes...)
			time.Sleep(2 * time.Second)
			counted := used()
			require.Zero(t, start())
			require.Equal(t, counted+1, used())
			c.end()
		})
	}
}

// TestP12_WaitCountsAgainstMaxWait brings the server back while a caller still
// has patience. What is left of it is not enough for the start.
func TestP12_WaitCountsAgainstMaxWait(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		other := redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)
		one := charge("one", store.PerMinute(1))
		k := bookingFor(61*time.Second, one)
		got := bookAside(t.Context(), s, k)
		time.Sleep(2 * time.Second)
		book(t, other, one)
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.Less(t, (*got).grant.Wait, time.Minute)
	})
}

// TestP12_FinalErrors are returned at once: asking again would not help.
func TestP12_FinalErrors(t *testing.T) {
	eachBubble(t, []error{
		said("WRONGPASS invalid username-password pair or user is disabled."),
		said("NOAUTH Authentication required."),
		said("NOPERM this user has no permissions to run the 'evalsha' command"),
		said("ERR user_script:1: something is wrong"),
		redis.ErrClosed,
	}, func(t *testing.T, server *redistest.Server, err error) {
		s, away := saying(t, server.Client(t), err)
		start := time.Now()
		_, got := s.Book(t.Context(), booking(charge("one", store.PerSecond(1))))
		require.ErrorIs(t, got, err)
		require.ErrorContains(t, got, "redisstore: ")
		require.Zero(t, time.Since(start))
		require.Equal(t, int64(1), away.calls.Load())
	})
}

// A counter is an upstream that notes when requests come, and likes them.
type counter struct {
	ok
	arrivals
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.add()
	return c.ok.RoundTrip(r)
}

// TestP12_SlowForAWhile lets Redis take long for each answer, for some seconds.
// Three seconds later nearly all of the quota is used again.
func TestP12_SlowForAWhile(t *testing.T) {
	const near, far = 300 * time.Microsecond, 1500 * time.Millisecond
	const back, end = 11 * time.Second, 24 * time.Second
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		var takes atomic.Int64
		up := &counter{arrivals: arrivals{began: time.Now()}}
		client.AddHook(middle(func(_ redis.Cmder, next func() error) error {
			half := time.Duration(takes.Load()) / 2
			time.Sleep(half)
			defer time.Sleep(half)
			return next()
		}))
		var fleet []*throttle.Transport
		for range 4 {
			tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: atRest(t, s), Base: up, Policies: []throttle.Policy{
				{Name: "p", Match: "/", Limit: store.PerSecond(40)},
			}})
			require.NoError(t, err)
			fleet = append(fleet, tr)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 80 {
			crowd.Go(func() { sendUntil(ctx, fleet[i%len(fleet)]) })
		}
		for _, phase := range []struct{ takes, until time.Duration }{{near, back - 6*time.Second}, {far, back}, {near, end}} {
			takes.Store(int64(phase.takes))
			time.Sleep(phase.until - time.Since(up.began))
		}
		cancel()
		crowd.Wait()
		from := back + 3*time.Second
		quota := 40 * float64(end-from) / float64(time.Second+defaultJitter)
		require.GreaterOrEqual(t, float64(up.between(from, end)), 0.95*quota)
		most, at := up.worst(time.Second)
		require.LessOrEqual(t, most, 40, "at %v", at)
	})
}

// sendUntil sends one request after the other until ctx ends.
func sendUntil(ctx context.Context, tr *throttle.Transport) {
	for ctx.Err() == nil {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/", nil)
		if resp, err := tr.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
}

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
				store, policy := redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "p", Limit: store.PerSecond(9)}
				if c.virtual {
					atRest(t, store)
				}
				l := limiter(t, store, policy)
				policy.Match = "/"
				var told []throttle.Event
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: &upstream{}, Policies: []throttle.Policy{policy},
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
				require.Equal(t, throttle.EventStoreFailed, told[0].Kind)
				require.Equal(t, failed+c.first, seen(told[0].Err))
				require.Equal(t, throttle.Event{Kind: throttle.EventGaveUp, Duration: told[1].Duration, Err: err}, told[1])

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
			s := redisstore.New(client, redisstore.Options{})
			tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: &upstream{}, Observe: func(context.Context, throttle.Event) {}, Policies: []throttle.Policy{
				{Name: "path", Match: "/", Key: throttle.RawPath, Limit: store.PerHour(5)},
				{Name: "at once", Match: "/", Limit: store.Concurrency(3)},
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
			_, err := s.Book(ctx, booking(charge("one", store.PerSecond(1))))
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
	l := limiter(t, redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "p", Limit: store.PerSecond(9), Keyed: true})
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "tenant", 1)
	require.EqualError(t, err, "throttle: the store could not be asked: redisstore: "+server.Addr+": ERR unknown command 'evalsha'")
	require.NotContains(t, spelled(err), redisstore.DefaultNamespace+":7:")
}

// TestP14_AnAddressWithAPassword is a mistake, and no reason to print it.
func TestP14_AnAddressWithAPassword(t *testing.T) {
	t.Parallel()
	client := clientOf(t, &redis.Options{Addr: "redis://me:pa55word@localhost:6379/0", DialerRetries: 1})
	l := limiter(t, redisstore.New(client, redisstore.Options{}), throttle.Policy{Name: "p", Limit: store.PerSecond(9)})
	_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 1)
	require.ErrorContains(t, err, "too many colons in address")
	require.NotContains(t, spelled(err), "pa55word")
	require.True(t, strings.HasPrefix(err.Error(), "throttle: the store could not be asked: redisstore: no answer for "))
}

// TestP12_TheClientsDeadlineIsNotTheCallers, whose context is fine.
func TestP12_TheClientsDeadlineIsNotTheCallers(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, _ := saying(t, server.Client(t), fmt.Errorf("dial: %w", context.DeadlineExceeded))
		k := bookingFor(time.Second, charge("one", store.PerSecond(1)))
		_, err := s.Book(t.Context(), k)
		require.EqualError(t, err, "redisstore: no answer for 1s (failed calls: 7): "+server.Addr+": dial: context deadline exceeded")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
