package redisstore_test

import (
	"context"
	"net/http"
	"sync"
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
		one := charge("one", throttle.PerSecond(1))
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
		start, one := time.Now(), charge("one", throttle.PerSecond(1))
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
			k := bookingFor(maxWait, charge("one", throttle.PerSecond(1)))
			start := time.Now()
			_, err := s.Book(t.Context(), k)
			require.ErrorIs(t, err, errAway)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's own context is fine")
			require.Equal(t, want, time.Since(start))
		})
	}
}

// TestP12_WaitCountsAgainstMaxWait brings the server back while a caller still
// has patience. What is left of it is not enough for the start.
func TestP12_WaitCountsAgainstMaxWait(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		other := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		one := charge("one", throttle.PerMinute(1))
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
		_, got := s.Book(t.Context(), booking(charge("one", throttle.PerSecond(1))))
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
			tr, err := throttle.New(throttle.Config{Store: atRest(t, s), Base: up, Policies: []throttle.Policy{
				{Name: "p", Limit: throttle.PerSecond(40)},
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
		quota := 40 * float64(end-from) / float64(time.Second+throttle.DefaultJitter)
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
