package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/store"
)

// A fakeRedis answers queries.
type fakeRedis struct {
	mu     sync.Mutex
	asked  [][]string
	pauses map[string]Pause
	err    error
	takes  time.Duration
}

func (f *fakeRedis) ask(_ context.Context, keys []string) (all []Pause, err error) {
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
	subs := New(c, func() Channels { return Channels{} }, nil)
	subs.Listen = func(context.Context, *Subscription) {}
	return NewWatches(c, subs, f.ask)
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
func pause(key string, d time.Duration) Pause {
	return Pause{Key: key, End: time.Now().Add(d).UnixMicro(), Left: d}
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
		ws.Paused(Pause{Key: "k"})
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
		ws.Invalidated(Invalidation{Key: "k", From: w.At + 1, Until: w.At + 2})
		ws.Invalidated(Invalidation{Key: "k", From: w.At - 1, Until: w.At})
		require.False(t, w.Void())
		ws.Invalidated(Invalidation{Key: "k", From: w.At, Until: w.At + 1})
		require.True(t, w.Void())
	})
}

// TestP1_InvalidatedBeforeTheReply: what made a start void between its booking and its watch is not lost, and concerns no later booking.
func TestP1_InvalidatedBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := watches(&fakeRedis{})
		void, earlier := start(10*time.Millisecond, "k"), start(5*time.Millisecond, "k")
		time.Sleep(time.Millisecond)
		ws.Invalidated(Invalidation{Key: "k", From: void.At, Until: void.At + 1})
		require.True(t, ws.Add(void, make(chan struct{}, 1)).Void())
		require.False(t, ws.Add(earlier, make(chan struct{}, 1)).Void())

		// The next booking knows what the row has now.
		time.Sleep(time.Millisecond)
		next := start(9*time.Millisecond, "k")
		next.At = void.At
		require.False(t, ws.Add(next, make(chan struct{}, 1)).Void())
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
		ws.Paused(Pause{Key: "k"})
		news := make(chan struct{}, 1)
		w := ws.Add(booked, news)
		<-news
		require.True(t, w.Void())

		booked = start(10*time.Millisecond, "k")
		p := pause("k", time.Minute)
		f.pauses = map[string]Pause{"k": p}
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

// TestP11_AQueryFromBeforeThePause: the answer to a question that was asked before a message says nothing of that message to a watch that began
// behind both.
func TestP11_AQueryFromBeforeThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, pauses := time.Second, map[string]Pause{}
		ws := watches(nil)
		ws.ask = func(_ context.Context, keys []string) (all []Pause, err error) {
			for _, key := range keys {
				all = append(all, Pause{Key: key, End: pauses[key].End, Left: pauses[key].Left})
			}
			time.Sleep(takes) // the answer is on its way
			return all, nil
		}

		// The first watch asks, because its booking is older than the subscription. From then on no message is lost.
		first := ws.Add(start(time.Minute, "k"), nil)
		time.Sleep(time.Millisecond)
		now := time.Now()
		ws.subs.sub.heartbeat = heartbeat{subscribed: now, completeFrom: now, completeUntil: now}
		var all sync.WaitGroup
		all.Go(func() { require.True(t, confirm(t, first)) })
		synctest.Wait()

		// The second is booked, the budget is closed, the message comes, and then the reply to the booking.
		time.Sleep(time.Millisecond)
		booked := start(2*time.Second, "k")
		time.Sleep(time.Millisecond)
		pauses["k"] = pause("k", 30*time.Second)
		ws.Paused(pauses["k"])
		time.Sleep(time.Millisecond)
		second := ws.Add(booked, make(chan struct{}, 1))
		all.Wait()
		require.False(t, confirm(t, second))
		first.Stop()
		second.Stop()
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

// A fakeConn keeps what is published.
type fakeConn struct{ published chan string }

func (c fakeConn) Publish(_ context.Context, _, message string) error {
	c.published <- message
	return nil
}

// Subscribe finds nobody to listen to.
func (fakeConn) Subscribe(context.Context, ...string) *redis.PubSub { return nil }

func channels() Channels { return Channels{Own: "own", Shared: "shared"} }

// listening returns subscriptions whose connection is the test: it is told of each.
func listening(receive func(Message)) (s *Subscriptions, c fakeConn, subs <-chan *Subscription) {
	c = fakeConn{make(chan string, 100)}
	s = New(c, channels, receive)
	began := make(chan *Subscription, 10)
	s.Listen = func(_ context.Context, sub *Subscription) { began <- sub }
	return s, c, began
}

// TestP15_ASubscriptionEndsOnce: the last user leaves at the moment when the
// subscription is about to end, for many times: either may come first.
func TestP15_ASubscriptionEndsOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s, _, _ := listening(nil)
			s.Retain()
			s.Release()
			time.Sleep(100 * time.Millisecond)
			s.Retain()
			time.Sleep(400 * time.Millisecond)
			s.Release()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			s.Retain()
			time.Sleep(time.Minute)
			require.True(t, s.Active())
			s.Release()
			time.Sleep(time.Minute)
			require.False(t, s.Active())
		})
	}
}

// TestP15_NobodyToListenTo: a subscription ends though it never had a connection.
func TestP15_NobodyToListenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(fakeConn{}, channels, nil)
		s.Retain()
		time.Sleep(time.Minute)
		s.Release()
		time.Sleep(linger)
		synctest.Wait()
		require.False(t, s.Active())
	})
}

// TestP11_Heartbeat: a subscription is believed to be complete since the first beat that
// came back on its connection, until none has for two seconds.
func TestP11_Heartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, subs := listening(func(Message) {})
		s.Retain()
		sub := <-subs
		echo := func() {
			sub.beat(t.Context())
			synctest.Wait()
			sub.Deliver(&redis.Message{Channel: "own", Payload: <-c.published})
		}
		sub.beat(t.Context())
		synctest.Wait()
		require.Empty(t, c.published, "nothing is received yet")
		early := beat(time.Since(origin)).String()
		time.Sleep(time.Second)
		sub.Deliver(&redis.Subscription{Channel: "shared"})
		sub.Deliver(&redis.Message{Channel: "own", Payload: early})
		require.False(t, s.CompleteSince(time.Now()), "it was sent before")

		began := time.Now()
		echo()
		require.True(t, s.CompleteSince(began))
		require.False(t, s.CompleteSince(began.Add(-1)))
		sub.beat(t.Context())
		synctest.Wait()
		require.Empty(t, c.published, "one a second")
		require.Equal(t, beatEvery, sub.listenTime())
		time.Sleep(beatEvery)
		echo()
		time.Sleep(validFor - 1)
		require.True(t, s.CompleteSince(began))
		time.Sleep(time.Nanosecond)
		require.False(t, s.CompleteSince(began), "no beat came back")
		echo()
		require.True(t, s.CompleteSince(began))
		sub.disconnected()
		require.False(t, s.CompleteSince(time.Now()))
		sub.Deliver(&redis.Subscription{Channel: "shared"})
		time.Sleep(beatEvery)
		echo()
		require.False(t, s.CompleteSince(began), "something may have been lost between two connections")
		s.Release()
	})
}

// TestDeliver: what is received is passed on, but for beats and for what makes no sense.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Message
		s, _, subs := listening(func(m Message) { got = append(got, m) })
		s.Retain()
		sub := <-subs
		for _, m := range []any{
			&redis.Subscription{Channel: "own"}, &redis.Message{Channel: "shared", Payload: "lost k"},
			&redis.Message{Channel: "own", Payload: "5 k"}, &redis.Message{Channel: "own", Payload: "~5"},
			&redis.Message{Channel: "shared", Payload: strings.Repeat("x", 10)}, &redis.Pong{},
		} {
			sub.Deliver(m)
		}
		require.Equal(t, []Message{Subscribed{"own"}, Loss{"k"}, Slots{"k", []int64{5}}}, got)
		s.Release()
	})
}

func TestTimedOut(t *testing.T) {
	require.False(t, timedOut(errors.New("EOF")))
	require.True(t, timedOut(context.DeadlineExceeded))
}

// TestParse reads messages as the scripts write them.
func TestParse(t *testing.T) {
	for text, want := range map[string]Message{
		"1700000000000000 250000 ns:5:key": Pause{"ns:5:key", 1_700_000_000_000_000, 250 * time.Millisecond},
		"0 0 a key with spaces":            Pause{"a key with spaces", 0, 0},
		"anew 10 20 key":                   Invalidation{"key", 10, 20},
		"come 7 1 2 3 key":                 Turns{Key: "key", Line: 7, Cuts: [3]int64{1, 2, 3}},
		"cuts 7 2 2 99 5 1 0 6 a key":      Turns{Key: "a key", Line: 7, Lanes: []Cut{{2, 99, 5}, {1, 0, 6}}},
		"cuts 7 0 key":                     nil,
		"cuts 7 2 2 99 5 key":              nil,
		"cuts 7 9000000000 1 1 1 key":      nil,
		"lost key":                         Loss{"key"},
		"":                                 nil,
		"1 key":                            nil,
		"anew 10 key":                      nil,
		"come 7 1 2 key":                   nil,
		"come 7 1 2 x key":                 nil,
		"99999999999999999999 1 key":       nil,
	} {
		require.Equal(t, want, parseShared(text), text)
	}
	for text, want := range map[string]Message{
		"~12":            beat(12),
		"~x":             nil,
		"5,6 key":        Slots{"key", []int64{5, 6}},
		"5 a key":        Slots{"a key", []int64{5}},
		"5,x,6 key":      Slots{"key", []int64{5, 6}},
		"no arrival":     Slots{"arrival", nil},
		beat(3).String(): beat(3),
	} {
		require.Equal(t, want, parseOwn(text), text)
	}
	require.Equal(t, Loss{"k"}, parseShared(Loss{"k"}.String()))
}

// FuzzParse: whatever is published, a message is what it says, or nothing.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"1 2 k", "anew 1 2 k", "come 1 2 3 4 k", "lost k", "cuts 1 1 2 3 4 k", "~5", "1,2 k", "-1 -1 ", "come 1 2 3 4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var again string
		switch m := parseShared(text).(type) {
		case Pause:
			again = fmt.Sprintf("%d %d %s", m.End, m.Left/time.Microsecond, m.Key)
		case Invalidation:
			again = fmt.Sprintf("anew %d %d %s", m.From, m.Until, m.Key)
		case Turns:
			again = fmt.Sprintf("come %d %d %d %d %s", m.Line, m.Cuts[0], m.Cuts[1], m.Cuts[2], m.Key)
			if m.Lanes != nil {
				again = fmt.Sprintf("cuts %d %d ", m.Line, len(m.Lanes))
				for _, l := range m.Lanes {
					again += fmt.Sprintf("%d %d %d ", l.Class, l.Share, l.Cut)
				}
				again += m.Key
			}
		case Loss:
			again = m.String()
		}
		if again != "" {
			require.Equal(t, parseShared(text), parseShared(again))
		}
		if b, ok := parseOwn(text).(beat); ok {
			require.Equal(t, b, parseOwn(b.String()))
		}
	})
}
