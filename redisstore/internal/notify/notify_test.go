package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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
