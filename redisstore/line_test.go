package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
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
	require.Eventually(t, func() bool { return s.Subscriptions() == 0 && s.Running() == 0 && runtime.NumGoroutine() <= before+1 }, inTheEnd, 10*time.Millisecond)
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
	for seed := range uint64(min(200, soak.Seeds(40, 5))) { // outOfOrder and calledInVain know these 200
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
	eachBubble(t, seeds(soak.Seeds(30, 3)), func(t *testing.T, server *redistest.Server, seed uint64) {
		var stores []store.Store
		for range 1 + seed%4 {
			stores = append(stores, atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock).Listen()))
		}
		require.NoError(t, moments.Play(t.Context(), seed, stores...))
	})
}

// TestP7_LineOfADeadNode: a node dies, and all who stand in line there never come. The
// others lose little, whatever the limit is like.
func TestP7_LineOfADeadNode(t *testing.T) {
	t.Parallel()
	for _, limit := range []store.Limit{store.LeakyBucket(20, time.Second), store.PerSecond(20), store.PerSecond(4), store.TokenBucket(20, time.Second, 20)} {
		for _, nodes := range []int{2, 4} {
			t.Run(fmt.Sprint(limit, " ", nodes), func(t *testing.T) {
				inLines(t, nodes, func(t *testing.T, nodes []*cuttable) {
					all := crowdOf(t, nodes, soak.Most(160, 80), time.Millisecond, charge("twenty", limit))
					begin := all[0].came
					time.Sleep(time.Second)
					dead := nodes[len(nodes)-1]
					dead.cut()
					var others []*walker
					used := 0
					for _, w := range all {
						if w.store != store.Store(dead) {
							others = append(others, w)
							continue
						}
						w.dies()
						if w.grant.OK {
							used++
						}
					}
					starts := allStart(t, 5*time.Minute, others...)
					perfect := time.Duration(len(others)+used) * limit.Per() / time.Duration(limit.N())
					late := starts[len(starts)-1].Sub(begin) - perfect
					require.Less(t, late, 3*time.Second, "P3: what the dead were to have")
					ordered(t, 2500*time.Millisecond, starts)
					dead.mend()
					for _, n := range nodes[:len(nodes)-1] {
						gone(t, n.Store)
					}
				})
			})
		}
	}
}

// TestP12_ForgottenLine: the server forgets everything, or one key, or its scripts, while
// fifty wait in two nodes. All of them start, and the limit holds.
func TestP12_ForgottenLine(t *testing.T) {
	t.Parallel()
	c := charge("five", store.PerSecond(5))
	for name, forget := range map[string]func(t *testing.T, n *cuttable){
		"all": func(t *testing.T, n *cuttable) { n.trace.forgets(func() { forgets(t, n.Client()) }) },
		"the key": func(t *testing.T, n *cuttable) {
			n.trace.forgets(func() { require.NoError(t, n.Client().Del(t.Context(), n.Key(c.Budget)).Err()) })
		},
		"scripts": func(t *testing.T, n *cuttable) { require.NoError(t, n.Client().ScriptFlush(t.Context()).Err()) },
	} {
		for times := range 3 {
			t.Run(fmt.Sprint(name, " ", times+1), func(t *testing.T) {
				inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
					all := crowdOf(t, nodes, 50, time.Millisecond, c)
					begin := all[0].came
					for range times + 1 {
						time.Sleep(1700 * time.Millisecond)
						forget(t, nodes[0])
					}
					starts := allStart(t, 5*time.Minute, all...)
					require.Less(t, starts[49].Sub(begin), time.Duration(16+3*times)*time.Second)
					within(t, 5, time.Second, starts)
					gone(t, nodes[0].Store, nodes[1].Store)
				})
			})
		}
	}
}

// TestP10_LineOfManyNodes: sixty nodes have two thousand waiters of all priorities and of
// different costs, some of whom leave, here and there. The budget is one small key, which
// expires when the line is over.
func TestP10_LineOfManyNodes(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	for i, limit := range []store.Limit{store.PerSecond(500), store.SlidingWindow(1_000_000, time.Hour), store.TokenBucket(20, time.Second, 100)} {
		runBubble(t, limit.String(), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
			var nodes []*redisstore.Store
			for range 60 {
				nodes = append(nodes, atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock)))
			}
			dice := rand.New(rand.NewPCG(10, uint64(i)))
			c := charge("budget", limit)
			for range 300 { // a row that is full
				c.Cost = max(1, limit.N()/310)
				book(t, nodes[dice.IntN(60)], c)
				time.Sleep(min(limit.Per(), time.Minute) / 500)
			}
			var all []*walker
			for k := range soak.Most(2000, 200) {
				c.Cost = 1 + dice.IntN(max(1, limit.N()/20))
				all = append(all, walks(t, nodes[k%60], store.Priority(dice.IntN(3)-1), c))
				if k%50 == 0 {
					requireSmall(t, client)
					time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
				}
			}
			for k, w := range all {
				if dice.IntN(4) == 0 || k > 1800 {
					w.leaves()
				}
				if k%50 == 0 {
					requireSmall(t, client)
				}
			}
			requireSmall(t, client)
			left := lifetime(t, nodes[0].Client(), nodes[0].Key(c.Budget))
			require.Less(t, left, longer+limit.Per()+9*time.Minute)
			for _, w := range all {
				w.leaves()
			}
			gone(t, nodes...)
		})
	}
}

// TestP10_AllHaveLeftTheLine: waiters of different costs leave in any order while the line
// moves. When all have left, Redis thinks of nobody that it waits: the next caller would
// have to wait until what is offered to nobody lapses.
func TestP10_AllHaveLeftTheLine(t *testing.T) {
	inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
		dice := rand.New(rand.NewPCG(10, 11))
		limits := []store.Limit{store.PerSecond(50), store.LeakyBucket(50, time.Second), store.TokenBucket(50, time.Second, 60)}
		for i := range soak.Seeds(27, 9) {
			c := charge(fmt.Sprint("left ", i), limits[i%len(limits)])
			var all []*walker
			for k := range soak.Most(200, 100) {
				c.Cost = 1 + dice.IntN(1+i/3%3)
				all = append(all, walks(t, nodes[k%2], store.Priority(dice.IntN(3)-1), c))
			}
			time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
			for k, leaver := range dice.Perm(len(all)) {
				all[leaver].leaves()
				if k%10 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
			time.Sleep(time.Millisecond) // Cancel does not await that Redis is told: time goes on when it is
			raw, err := nodes[0].Client().Get(t.Context(), nodes[0].Key(c.Budget)).Bytes()
			require.NoError(t, err)
			require.Zero(t, sizeOfLine(raw), "%v, number %d", limits[i%len(limits)], i)
			gone(t, nodes[0].Store, nodes[1].Store)
		}
	})
}

// TestP12_LineThatIsGarbage: the line of a budget is something else. Then nobody waits
// there, as far as Redis knows: all come back, and start.
func TestP12_LineThatIsGarbage(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	dice := rand.New(rand.NewPCG(12, 1))
	for i := range soak.Most(60, 15) {
		synctest.Test(t, func(t *testing.T) {
			client := server.Client(t)
			forgets(t, client)
			var nodes []*cuttable
			for range 2 {
				nodes = append(nodes, &cuttable{Store: atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock).Listen())})
			}
			c := charge(fmt.Sprint("garbage ", i), store.PerSecond(5))
			all := crowdOf(t, nodes, 30, time.Millisecond, c)
			time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
			spoilLine(t, client, nodes[0].Key(c.Budget), dice)
			starts := allStart(t, 5*time.Minute, all...)
			require.Less(t, starts[29].Sub(all[0].came), 30*time.Second)
			within(t, 5, time.Second, starts)
			gone(t, nodes[0].Store, nodes[1].Store)
		})
	}
}

// sizeOfLine returns how many bytes of a row are its line, 0 if nobody waits.
func sizeOfLine(row []byte) int { return numberOf(row, redisstore.HeadLined) }

// numberOf returns one of the numbers that a row begins with.
func numberOf(row []byte, which int) int {
	return int(math.Float64frombits(binary.LittleEndian.Uint64(row[8*which:])))
}

// spoilLine changes only the line in a row: some bytes, some numbers, or all of them.
func spoilLine(t *testing.T, c *redis.Client, key string, dice *rand.Rand) {
	t.Helper()
	raw, err := c.Get(t.Context(), key).Bytes()
	require.NoError(t, err)
	size, head := sizeOfLine(raw), 8*redisstore.HeadNumbers+numberOf(raw, redisstore.HeadNamed)
	require.Positive(t, size)
	line := raw[head : head+size]
	switch dice.IntN(4) {
	case 0:
		for range 1 + dice.IntN(4) {
			line[dice.IntN(size)] = byte(dice.IntN(256))
		}
	case 1:
		for i := range line {
			line[i] = byte(dice.IntN(256))
		}
	case 2:
		at := dice.IntN(size)
		n := min(9, size-at)
		odd := binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(forgedNumbers[dice.IntN(len(forgedNumbers))]))
		copy(line[at:at+n], odd[:n])
	case 3:
		raw = slices.Delete(raw, head, head+dice.IntN(size)) // what follows stands in its place
	}
	require.NoError(t, c.Set(t.Context(), key, raw, redis.KeepTTL).Err())
}

// maxAwait is how long a test awaits what takes a message, on a machine that is busy.
const maxAwait = 5 * time.Second

// hourlyInLine returns two stores, a start of the first one that took all of an hour, and
// a waiter in line at the second one, which hears.
func hourlyInLine(t *testing.T, client func() redis.UniversalClient) (a, b *redisstore.Store, all *held, w *walker) {
	a, b = redisstore.New(client(), redisstore.Options{}), redisstore.New(client(), redisstore.Options{})
	all, w = hourlyAt(t, a, b)
	hears(b)
	return a, b, all, w
}

// hourlyAt returns a start of a store that took all of an hour, and a waiter in line at another one.
func hourlyAt(t *testing.T, a, b *redisstore.Store) (all *held, w *walker) {
	c := charge("hour", store.TokenBucket(1, time.Hour, 5))
	k := booking(c)
	k.Charges[0].Cost = 5
	g := ask(t, a, k)
	require.True(t, g.OK)
	w = walks(t, b, store.PriorityNormal, c)
	require.NotNil(t, w.grant.Ready)
	require.Equal(t, 1, b.Standing())
	return &held{booking: k, grant: g}, w
}

// ownLook is when a waiter whose start is an hour away looks by itself. Until then only a message, or a new connection, brings it.
const ownLook = time.Minute

// starts awaits that the walker does.
func (w *walker) starts(t *testing.T) {
	t.Helper()
	select {
	case <-w.over:
		require.NoError(t, w.err)
		require.False(t, w.start.IsZero())
	case <-time.After(ownLook * 3 / 4):
		require.FailNow(t, "it does not start", "%+v", w.grant)
	}
}

// called requires that a store has called its waiters when it has received all that is published until now: not later than that,
// however long that takes on a busy machine. If the connection on which it hears was lost meanwhile, a waiter looks by itself.
func called(t *testing.T, from, to *redisstore.Store) {
	t.Helper()
	hearing := time.Now()

	// What one store gives back may be on its way still.
	for from.Running() > 0 {
		time.Sleep(time.Millisecond)
	}

	// Messages come in the order in which they were published, so a later one says that all before it have come.
	heard := make(chan struct{}, 1)
	to.OnPause(func() {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	defer to.OnPause(nil)
	for length := time.Hour; ; length += time.Minute {
		require.NoError(t, from.Pause(t.Context(), charge("another", store.PerHour(1)), length))
		select {
		case <-heard:
			if to.Complete(hearing) {
				require.Zero(t, to.Standing(), "a message says whose turn it is, and it is nobody's")
			}
			return
		case <-time.After(time.Second): // the message may be lost with a connection
		}
	}
}

// TestP3_LineAfterARefund: a start turns out to have cost less. Who waits in another node
// is told, and starts at once.
func TestP3_LineAfterARefund(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b, all, w := hourlyInLine(t, func() redis.UniversalClient { return server.Client(t) })
	require.NoError(t, a.Settle(t.Context(), all.booking, all.grant, []int{1}))
	called(t, a, b)
	w.starts(t)
	gone(t, a, b)
}

// TestP3_LineAfterACancel is the same for a start that is given back.
func TestP3_LineAfterACancel(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b, all, w := hourlyInLine(t, func() redis.UniversalClient { return server.Client(t) })
	a.Cancel(all.booking, all.grant)
	called(t, a, b)
	w.starts(t)
	gone(t, a, b)
}

// TestP5_LineAfterALostMessage: while the connection on which a node hears is cut, a start is given back, or its cost, or a
// penalty is lifted. The node looks by itself when it hears again, and does not wait for its usual look, which is a minute
// later. Whether others wait there, too, does not matter.
func TestP5_LineAfterALostMessage(t *testing.T) {
	gives := map[string]func(t *testing.T, a *redisstore.Store, all *held){
		"cancel": func(t *testing.T, a *redisstore.Store, all *held) { a.Cancel(all.booking, all.grant) },
		"refund": func(t *testing.T, a *redisstore.Store, all *held) {
			require.NoError(t, a.Settle(t.Context(), all.booking, all.grant, []int{1}))
		},
		"pause and resume": func(t *testing.T, a *redisstore.Store, all *held) {
			require.NoError(t, a.Pause(t.Context(), all.booking.Charges[0], 2*time.Hour))
			a.Cancel(all.booking, all.grant)
			time.Sleep(time.Second)
			require.NoError(t, a.Resume(t.Context(), all.booking.Charges[0]))
		},
	}
	for name, give := range gives {
		for _, others := range []int{0, 20} {
			runBubble(t, fmt.Sprint(name, " ", others), func(t *testing.T, server *redistest.Server) {
				nodes := nodesOf(t, server, 3)
				a, b, third := nodes[0].Store, nodes[1].Listen(), nodes[2]
				cut, mend := b.Cuttable()
				third.Disconnect()
				all, w := hourlyAt(t, a, b)
				var crowd []*walker
				for range others {
					crowd = append(crowd, walks(t, third, store.PriorityNormal, w.booking.Charges...))
				}

				time.Sleep(10 * time.Second) // the looks of a newcomer are over
				cut()
				time.Sleep(time.Second)
				give(t, a, all)
				time.Sleep(time.Second)
				require.Equal(t, 1, b.Standing(), "it does not hear")

				mend()
				mended := time.Now()
				<-w.over
				require.NoError(t, w.err)
				require.Less(t, w.start.Sub(mended), time.Second)
				for _, o := range crowd {
					o.leaves()
				}
				time.Sleep(2 * time.Second)
			})
		}
	}
}

// TestP11_LineAfterAResume: a penalty of an hour is lifted. Who waits in line in two nodes
// starts.
func TestP11_LineAfterAResume(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b := redisstore.New(server.Client(t), redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
	c := charge("free", store.PerSecond(50))
	require.NoError(t, a.Pause(t.Context(), c, time.Hour))
	var all []*walker
	for i := range 6 {
		all = append(all, walks(t, []*redisstore.Store{a, b}[i%2], store.PriorityNormal, c))
	}
	require.Equal(t, 3, a.Standing())
	require.Equal(t, 3, b.Standing())
	hears(a)
	hears(b)
	require.NoError(t, b.Resume(t.Context(), c))
	for _, w := range all {
		w.starts(t)
	}
	gone(t, a, b)
}

// TestP5_LineOnACluster: with hash tags all of it is in one slot.
func TestP5_LineOnACluster(t *testing.T) {
	t.Parallel() // its servers are its own
	cluster := redistest.Cluster(t)
	client := func() redis.UniversalClient { return cluster.Client(t) }
	a, b, all, w := hourlyInLine(t, client)
	a.Cancel(all.booking, all.grant)
	called(t, a, b)
	w.starts(t)
	gone(t, a, b)

	nodes := []*redisstore.Store{a, b}
	for group := range 3 {
		c := inGroup(fmt.Sprint("api ", group), charge(fmt.Sprint("ten ", group), store.LeakyBucket(10, time.Second)))
		var crowd []*walker
		for i := range 20 {
			crowd = append(crowd, walks(t, nodes[i%2], store.PriorityNormal, c))
		}
		starts := allStart(t, 30*time.Second, crowd...)
		ordered(t, time.Second, starts)
		require.Less(t, starts[19].Sub(crowd[0].came), 1900*time.Millisecond+maxAwait)
	}
	gone(t, a, b)
}

// stands books for a caller that has to stand in line.
func (w *wire) stands(s store.Store) *held {
	w.Helper()
	k := booking(w.five)
	k.Horizon = near
	g := ask(w.T, s, k)
	require.False(w, g.OK)
	require.NotNil(w, g.Ready)
	require.NotNil(w, g.Turn)
	return &held{booking: k, grant: g}
}

// TestP8_LeavesBeforeThePlaceIsKnown: a caller leaves while the call that joins the line
// is on its way, and lost. Nobody stands there for it.
func TestP8_LeavesBeforeThePlaceIsKnown(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		ctx, cancel := context.WithCancelCause(w.Context())
		lose()
		got := make(chan store.Grant)
		k := booking(w.five)
		k.Horizon = near
		go func() {
			g, err := w.store.Book(ctx, k)
			if err != nil {
				g = store.Grant{}
			}
			got <- g
		}()
		cancel(errLeft)
		if g := <-got; g.Ready != nil {
			w.store.Cancel(k, g)
		}
		h := w.stands(w.store) // tells what is left to tell
		late()
		w.charged(6)
		w.store.Cancel(h.booking, h.grant)
		w.charged(5)
		require.Eventually(w, func() bool { return w.store.Lines() == 0 }, 10*time.Second, time.Millisecond)
	})
}
