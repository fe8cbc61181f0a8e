package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

// A fakeRedis answers queries.
type fakeRedis struct {
	mu     sync.Mutex
	asked  [][]string
	pauses map[string]notify.Pause
	err    error
	takes  time.Duration
}

func (f *fakeRedis) ask(_ context.Context, keys []string) (all []notify.Pause, err error) {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, slices.Sorted(slices.Values(keys)))
	for _, key := range keys {
		p := f.pauses[key]
		p.Key = key
		all = append(all, p)
	}
	return all, f.err
}

// client sends nothing.
var client = redis.NewClient(&redis.Options{})

// watches returns those of a node that no message reaches.
func watches(f *fakeRedis) *Watches {
	c := conn.New(client)
	subs := notify.New(c, func() notify.Channels { return notify.Channels{} }, nil)
	subs.Listen = func(context.Context, *notify.Subscription) {}
	return New(c, subs, f.ask)
}

// start is one in d from now, by both clocks.
func start(d time.Duration, keys ...string) Start {
	now := time.Now()
	return Start{
		Keys: keys,
		At:   now.Add(d).UnixMicro(), Sent: now, Due: now.Add(d),
	}
}

// pause is one of that length from now.
func pause(key string, d time.Duration) notify.Pause {
	return notify.Pause{Key: key, End: time.Now().Add(d).UnixMicro(), Left: d}
}

func confirm(t *testing.T, w *Watch) bool {
	t.Helper()
	ok, err := w.Confirm(t.Context(), -1)
	require.NoError(t, err)
	return ok
}

// TestP11_Paused: a pause makes those starts void that it ends after, and wakes their
// callers; the end of one wakes all.
func TestP11_Paused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		news := make(chan struct{}, 1)
		early, late, other := ws.Add(start(time.Second, "k"), news), ws.Add(start(time.Minute, "k"), nil), ws.Add(start(time.Second, "o"), nil)
		ws.Paused(pause("k", 2*time.Second))
		<-news
		require.True(t, early.Void())
		require.False(t, late.Void())
		require.False(t, confirm(t, early))
		ws.Paused(notify.Pause{Key: "k"})
		require.True(t, late.Void(), "there may be an earlier start")
		require.True(t, confirm(t, other))
		last := ws.Add(start(time.Minute, "l"), nil)
		for _, w := range []*Watch{early, late, other} {
			w.Stop()
			w.Stop() // once more, which ends nothing of another watch
		}
		require.Len(t, ws.watches, 1)
		time.Sleep(time.Second) // the subscription lingers
		require.True(t, ws.subs.Active())
		last.Stop()
		require.Empty(t, ws.watches)
		time.Sleep(time.Second)
		require.False(t, ws.subs.Active())
	})
}

// TestP11_TheServersClockWasSetBack: the end of a pause lies before the start by the
// server's clock, but what is left of it does not.
func TestP11_TheServersClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		w := ws.Add(start(10*time.Millisecond, "k"), nil)
		p := pause("k", time.Minute)
		p.End = w.At - 1
		ws.Paused(p)
		require.True(t, w.Void())
	})
}

// TestP5_InOrder: callers are woken in the order of their starts.
func TestP5_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		for range 10 {
			ws.Add(start(10*time.Millisecond, "k"), nil)
			time.Sleep(time.Millisecond)
		}
		all := ws.inOrder("k")
		require.Len(t, all, 10)
		require.True(t, slices.IsSortedFunc(all, func(a, b *Watch) int { return a.Due.Compare(b.Due) }))
	})
}

// TestP11_Invalidated makes only those starts void that lie in between.
func TestP11_Invalidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		w := ws.Add(start(10*time.Millisecond, "k"), nil)
		ws.Invalidated(notify.Invalidation{Key: "k", From: w.At + 1, Until: w.At + 2})
		ws.Invalidated(notify.Invalidation{Key: "k", From: w.At - 1, Until: w.At})
		require.False(t, w.Void())
		ws.Invalidated(notify.Invalidation{Key: "k", From: w.At, Until: w.At + 1})
		require.True(t, w.Void())
	})
}

// TestP11_PausedBeforeTheReply: what was received between a booking and its watch is not
// lost.
func TestP11_PausedBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRedis{}
		ws := watches(f)
		booked := start(10*time.Millisecond, "k")
		time.Sleep(time.Millisecond)
		ws.Paused(notify.Pause{Key: "k"})
		news := make(chan struct{}, 1)
		w := ws.Add(booked, news)
		<-news
		require.True(t, w.Void())

		booked = start(10*time.Millisecond, "k")
		p := pause("k", time.Minute)
		f.pauses = map[string]notify.Pause{"k": p}
		ws.Paused(p)
		w = ws.Add(booked, news)
		<-news
		require.False(t, w.Void(), "nobody knows which was first")
		require.False(t, confirm(t, w), "but Redis")

		booked, news = start(10*time.Millisecond, "other"), make(chan struct{}, 1)
		for range maxPast + 1 {
			ws.Paused(p)
		}
		ws.Add(booked, news)
		require.Empty(t, news)
		time.Sleep(time.Nanosecond)
		for range maxPast {
			ws.Paused(p)
		}
		time.Sleep(2 * pastTime)
		ws.Paused(p)
		ws.Add(booked, news)
		<-news // what is forgotten may have concerned it
	})
}

// TestP4_QueriesAreShared: callers that ask while a query is on its way share the next
// one. One that leaves does not end it for those that come later.
func TestP4_QueriesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRedis{takes: time.Second}
		ws := watches(f)
		var all sync.WaitGroup
		confirms := func(key string) {
			w := ws.Add(start(10*time.Millisecond, key), nil)
			all.Go(func() {
				ok, err := w.Confirm(t.Context(), -1)
				require.NoError(t, err)
				require.True(t, ok)
			})
		}
		confirms("a")
		synctest.Wait()
		leaver := ws.Add(start(10*time.Millisecond, "d"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := leaver.Confirm(ctx, -1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, key := range []string{"b", "c", "b"} {
			confirms(key)
		}
		all.Wait()
		require.Equal(t, [][]string{{"a"}, {"b", "c"}}, f.asked)
		synctest.Wait()
		require.False(t, ws.asking)
	})
}

// TestP12_NoReply: the caller is told why there is no reply, waits as long as its MaxWait
// lets it, and the query ends with its last caller.
func TestP12_NoReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		f := &fakeRedis{err: broken}
		ws := watches(f)
		w := ws.Add(start(10*time.Millisecond, "k"), nil)
		var told []error
		began := time.Now()
		_, err := w.Confirm(outage.WithObserver(t.Context(), func(err error) { told = append(told, err) }), 3*time.Second)
		require.ErrorIs(t, err, broken)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, []error{broken}, told)
		synctest.Wait()
		require.False(t, ws.asking)

		f.err = nil
		require.True(t, confirm(t, w), "a query that nobody waits for is not joined")
	})
}

// TestP12_Charges: a start that is watched says what Redis is to be told of, if it lost
// one of its budgets.
func TestP12_Charges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		require.Nil(t, ws.Charges("k"))
		s := start(10*time.Millisecond, "k", "other")
		s.Charges = []store.Charge{{Cost: 1}, {Cost: 2}}
		w := ws.Add(s, nil)
		require.Equal(t, s.Charges, ws.Charges("other"))
		w.Stop()
		require.Nil(t, ws.Charges("k"))
	})
}
