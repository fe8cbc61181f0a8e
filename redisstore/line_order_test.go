package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP5_LineAcrossNodes: arrivals alternate between nodes. They start in the order in
// which they came, as far as nodes know of each other, and nothing stays unused.
func TestP5_LineAcrossNodes(t *testing.T) {
	t.Parallel()
	for _, limit := range []throttle.Limit{
		throttle.LeakyBucket(20, time.Second), throttle.PerSecond(20), throttle.TokenBucket(20, time.Second, 20), throttle.FixedWindow(20, time.Second),
	} {
		for _, nodes := range []int{2, 5} {
			t.Run(fmt.Sprint(limit, " ", nodes), func(t *testing.T) {
				inLines(t, nodes, func(t *testing.T, nodes []*cuttable) {
					c := charge("twenty", limit)
					if limit.Kind() == throttle.KindSlidingWindow {
						c.Pace = 47500 * time.Microsecond
					}
					begin := time.Now()
					all := crowdOf(t, nodes, 200, 10*time.Millisecond, c)
					starts := allStart(t, time.Minute, all...)
					ordered(t, 300*time.Millisecond, starts)
					require.Less(t, starts[len(starts)-1].Sub(begin), 11500*time.Millisecond, "P3: 20 of 200 could start in each second")
					if limit.Kind() == throttle.KindSlidingWindow {
						within(t, 20, time.Second, starts)
					}
					for _, n := range nodes {
						gone(t, n.Store)
					}
				})
			})
		}
	}
}

// TestP5_LineOfPriorities: High goes before Normal, and that before Low, wherever they
// stand.
func TestP5_LineOfPriorities(t *testing.T) {
	t.Parallel()
	inLines(t, 3, func(t *testing.T, nodes []*cuttable) {
		c := charge("ten", throttle.LeakyBucket(10, time.Second))
		var low, normal, high []*walker
		for i := range 60 {
			low = append(low, walks(t, nodes[i%3], throttle.Low, c))
		}
		time.Sleep(2 * time.Second)
		for i := range 30 {
			normal = append(normal, walks(t, nodes[i%2], throttle.Normal, c))
		}
		time.Sleep(time.Second)
		came := time.Now()
		for i := range 10 {
			high = append(high, walks(t, nodes[2-i%2], throttle.High, c))
		}
		starts := allStart(t, time.Minute, high...)
		ordered(t, 300*time.Millisecond, starts)
		require.Less(t, starts[9].Sub(came), 2200*time.Millisecond, "what was near is before them")
		starts = allStart(t, time.Minute, normal...)
		ordered(t, 300*time.Millisecond, starts)
		require.Less(t, starts[29].Sub(came), 5200*time.Millisecond)
		starts = allStart(t, time.Minute, low...)
		ordered(t, 300*time.Millisecond, starts)
		require.Less(t, starts[59].Sub(came), 9*time.Second)
	})
}

// TestP5_LineOfManyInOneCall: those who share a call have a ticket each, also if only
// some of them are patient enough for their turn.
func TestP5_LineOfManyInOneCall(t *testing.T) {
	t.Parallel()
	inLines(t, 1, func(t *testing.T, nodes []*cuttable) {
		s := nodes[0]
		c := charge("one", throttle.LeakyBucket(1, time.Second))
		require.Zero(t, book(t, s, c))
		k := booking(c)
		k.MaxWait, k.Horizon = 5500*time.Millisecond, near
		got := make(chan *held)
		for range 12 {
			go func() {
				own := *k
				own.Charges = slices.Clone(k.Charges)
				g, err := s.Book(t.Context(), &own)
				require.NoError(t, err)
				got <- &held{&own, g}
			}()
		}
		var stand []*held
		for range 12 {
			if h := <-got; h.grant.Ready != nil {
				stand = append(stand, h)
			}
		}
		require.Len(t, stand, 5, "the others would wait too long")
		waits := func() int {
			st, err := s.Status(t.Context(), c)
			require.NoError(t, err)
			return st.Waiting
		}
		require.Equal(t, 5, waits())
		for i, h := range stand {
			s.Cancel(h.booking, h.grant)
			require.Equal(t, 4-i, waits())
		}
	})
}
