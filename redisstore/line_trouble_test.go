package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

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
		for i := range soak.Most(60, 9) {
			c := charge(fmt.Sprint("left ", i), limits[i%len(limits)])
			var all []*walker
			for k := range soak.Most(300, 100) {
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
