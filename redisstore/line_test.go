package redisstore_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/moments"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestP5_LineAcrossNodes: arrivals alternate between nodes. They start in the order in
// which they came, as far as nodes know of each other, and nothing stays unused.
func TestP5_LineAcrossNodes(t *testing.T) {
	t.Parallel()
	for _, limit := range []store.Limit{
		store.LeakyBucket(20, time.Second), store.PerSecond(20), store.TokenBucket(20, time.Second, 20), store.FixedWindow(20, time.Second),
	} {
		for _, nodes := range soak.Most([]int{2, 5}, []int{5}) {
			t.Run(fmt.Sprint(limit, " ", nodes), func(t *testing.T) {
				inLines(t, nodes, func(t *testing.T, nodes []*cuttable) {
					c := charge("twenty", limit)
					if limit.Kind() == store.KindSlidingWindow {
						c.Pace = 47500 * time.Microsecond
					}
					begin := time.Now()
					all := crowdOf(t, nodes, 200, 10*time.Millisecond, c)
					starts := allStart(t, time.Minute, all...)
					ordered(t, 300*time.Millisecond, starts)
					require.Less(t, starts[len(starts)-1].Sub(begin), 11500*time.Millisecond, "P3: 20 of 200 could start in each second")
					if limit.Kind() == store.KindSlidingWindow {
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

// TestP5_LineOfManyInOneCall: those who share a call have a ticket each, also if only
// some of them are patient enough for their turn.
func TestP5_LineOfManyInOneCall(t *testing.T) {
	inLines(t, 1, func(t *testing.T, nodes []*cuttable) {
		s := nodes[0]
		c := charge("one", store.LeakyBucket(1, time.Second))
		require.Zero(t, book(t, s, c))
		k := booking(c)
		k.MaxWait, k.Horizon = 5500*time.Millisecond, near
		got := make(chan *held)
		for range 12 {
			go func() {
				own := *k
				own.Charges = slices.Clone(k.Charges)
				g := ask(t, s, &own)
				got <- &held{booking: &own, grant: g}
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
			st := status(t, s, c)
			return st.Waiting
		}
		require.Equal(t, 5, waits())
		for i, h := range stand {
			s.Cancel(h.booking, h.grant)
			require.Equal(t, 4-i, waits())
		}
	})
}

// TestP15_NothingIsLeftOfALine: who left, or started, leaves no timer, no goroutine, no
// subscription and nothing in the store behind.
func TestP15_NothingIsLeftOfALine(t *testing.T) {
	each(t, []bool{true, false}, func(t *testing.T, leave bool) {
		inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
			c := charge("ten", store.LeakyBucket(10, time.Second))
			all := crowdOf(t, nodes, 40, 0, c)
			require.Positive(t, nodes[0].Subscriptions())
			require.Equal(t, 1, nodes[0].Lines())
			time.Sleep(time.Second)
			if leave {
				for _, w := range all {
					w.leaves()
				}
			} else {
				allStart(t, 10*time.Second, all...)
			}
			gone(t, nodes[0].Store, nodes[1].Store)
			time.Sleep(time.Second)
			for _, n := range nodes {
				require.Zero(t, n.Subscriptions())
				require.Zero(t, n.Running())
				require.Zero(t, n.Queued())
			}
			require.Zero(t, status(t, nodes[0], c).Waiting)
			ttl := lifetime(t, nodes[0].Client(), nodes[0].Key(c.Budget))
			require.Less(t, ttl, longer+time.Minute+2*time.Second, "a line that is empty keeps no key")
		})
	})
}

// TestP4_LineMakesFewCalls: those who wait far from their turn make a call now and then,
// however many they are.
func TestP4_LineMakesFewCalls(t *testing.T) {
	onTap(t, nil, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		c := charge("hour", store.PerHour(10))
		all := crowdOf(t, []*cuttable{{Store: s}}, 500, 0, c)
		time.Sleep(time.Minute)
		tap.names()
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, len(tap.names()), 10*60/15+5)
		for _, w := range all {
			w.leaves()
		}
		gone(t, s)
		time.Sleep(time.Minute)
		tap.names()
		time.Sleep(time.Hour)
		require.Empty(t, tap.names())
	})
}

// TestP15_NoGoroutineIsLeftOfALine looks at the program itself, with a real ear.
func TestP15_NoGoroutineIsLeftOfALine(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	c := charge("hour", store.PerHour(1))
	book(t, s, c)
	before := runtime.NumGoroutine()
	var all []*walker
	for range 20 {
		all = append(all, walks(t, s, store.PriorityNormal, c))
	}
	require.Equal(t, 20, s.Standing())
	require.Equal(t, 1, s.Subscriptions())
	for _, w := range all {
		w.leaves()
	}
	gone(t, s)
	// The condition has a goroutine of its own.
	require.Eventually(t, func() bool { return s.Subscriptions() == 0 && s.Running() == 0 && runtime.NumGoroutine() <= before+1 }, awaitMost, 10*time.Millisecond)
}

// outOfOrder are the seeds of random lines in which a caller is passed by more than the
// contract allows: docs/internals/line.md says why.
var outOfOrder = map[uint64]bool{160: true, 172: true, 193: true, 202: true, 210: true, 217: true, 262: true, 287: true}

// calledInVain are the seeds of random lines in which a waiter of a token bucket is called more
// than a hundred times in some seconds before it has a start: see docs/internals/line.md.
var calledInVain = map[uint64]bool{190: true, 283: true}

// TestP5_RandomLinesOfOneProgram compares more lines of one program with the perfect queue.
func TestP5_RandomLinesOfOneProgram(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(200, 5)) {
		seed += 100
		if outOfOrder[seed] || calledInVain[seed] {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomLine(t, lineSlack, func(t *testing.T) store.Store {
				client := server.Client(t)
				forgets(t, client)
				return atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
			}, seed, 150)
		})
	}
}

// TestP1_RunsOfALargeWindow: equal callers of one call that would start within a 128th of a window
// start together. No window holds more than its limit, all of it is used, and no more start at one
// moment than the pace has in a part of the window.
func TestP1_RunsOfALargeWindow(t *testing.T) {
	const per = 200 * time.Millisecond
	for _, of := range soak.Most([]struct{ n, cost int }{{1536, 1}, {255, 1}, {512, 2}, {7168, 7}}, []struct{ n, cost int }{{1536, 1}}) {
		t.Run(fmt.Sprint(of), func(t *testing.T) { runsOf(t, of.n, of.cost, per) })
	}
}

func runsOf(t *testing.T, n, cost int, per time.Duration) {
	inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
		c := charge("large", store.SlidingWindow(n, per))
		c.Pace, c.Cost = per/time.Duration(n), cost
		fit := n / cost
		var all []*walker
		for i := range fit * 4 / 3 { // the race detector can have 8,128 goroutines in all
			all = append(all, comes(t, nodes[i%2], store.PriorityNormal, c))
		}
		starts := allStart(t, time.Minute, all...)
		within(t, fit, per, starts)
		slices.SortFunc(starts, time.Time.Compare)
		require.Less(t, starts[len(starts)-1].Sub(starts[0]), 2*per)
		largest, together, last := 0, 0, time.Time{}
		for _, at := range starts[fit:] { // what has room at once starts at once
			if !at.Equal(last) {
				require.GreaterOrEqual(t, at.Sub(last), per/128)
				together, last = 0, at
			}
			together++
			largest = max(largest, together)
		}
		require.Equal(t, (n+128*cost-1)/(128*cost), largest)
	})
}

// TestP1_ARunHasRoomForAll: a run is of no more callers than there is room for, so no caller waits for
// others.
func TestP1_ARunHasRoomForAll(t *testing.T) {
	const n, per, later = 1536, 200 * time.Millisecond, 50 * time.Millisecond
	inLines(t, 1, func(t *testing.T, nodes []*cuttable) {
		c := charge("large", store.SlidingWindow(n, per))
		c.Pace = per / n
		var all []*walker
		crowd := func(many int) {
			for range many {
				all = append(all, comes(t, nodes[0], store.PriorityNormal, c))
			}
			for _, w := range all {
				<-w.answered
			}
		}
		crowd(3)
		time.Sleep(later)
		crowd(n - 5)
		begin := time.Now()
		crowd(15) // of which two have room now, three when the first three are over, and ten when the others are
		within(t, n, per, allStart(t, time.Minute, all...))
		starts := make(map[time.Duration]int)
		for _, w := range all[n-2:] {
			starts[w.start.Sub(begin).Round(10*time.Millisecond)]++
		}
		require.Equal(t, map[time.Duration]int{0: 2, per - later: 3, per: 10}, starts)
	})
}

// TestP4_NoCallerAsksTwiceAtOneMoment plays random lines in one to four programs, as the test of
// package throttle with this name does in memory.
func TestP4_NoCallerAsksTwiceAtOneMoment(t *testing.T) {
	eachBubble(t, seeds(soak.Most(500, 3)), func(t *testing.T, server *redistest.Server, seed uint64) {
		var stores []store.Store
		for range 1 + seed%4 {
			stores = append(stores, atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock).Listen()))
		}
		require.NoError(t, moments.Play(t.Context(), seed, stores...))
	})
}
