package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP7_LineOfADeadNode: a node dies, and all who stand in line there never come. The
// others lose little, whatever the limit is like.
func TestP7_LineOfADeadNode(t *testing.T) {
	t.Parallel()
	for _, limit := range []throttle.Limit{throttle.LeakyBucket(20, time.Second), throttle.PerSecond(20), throttle.PerSecond(4), throttle.TokenBucket(20, time.Second, 20)} {
		for _, nodes := range []int{2, 4} {
			t.Run(fmt.Sprint(limit, " ", nodes), func(t *testing.T) {
				inLines(t, nodes, func(t *testing.T, nodes []*cuttable) {
					all := crowdOf(t, nodes, 160, time.Millisecond, charge("twenty", limit))
					begin := all[0].came
					time.Sleep(time.Second)
					dead := nodes[len(nodes)-1]
					dead.cut()
					var others []*walker
					used := 0
					for _, w := range all {
						if w.store != throttle.Store(dead) {
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

// TestP7_LineThatLeaves: a thousand wait in one node and leave. Who comes to another
// node then starts at once.
func TestP7_LineThatLeaves(t *testing.T) {
	t.Parallel()
	for _, limit := range []throttle.Limit{throttle.LeakyBucket(5, time.Second), throttle.PerSecond(5), throttle.TokenBucket(5, time.Second, 5)} {
		t.Run(limit.String(), func(t *testing.T) {
			inLines(t, 2, func(t *testing.T, nodes []*cuttable) {
				c := charge("five", limit)
				all := crowdOf(t, nodes[:1], 1000, 0, c)
				behind := walks(t, nodes[1], throttle.Normal, c)
				time.Sleep(3 * time.Second)
				left := time.Now()
				for _, w := range all {
					w.leaves()
				}
				st, err := nodes[1].Status(t.Context(), c)
				require.NoError(t, err)
				require.LessOrEqual(t, st.Waiting, 5, "who left does not wait")
				most := time.Second // a whole window may have started just now
				if limit.Kind() != throttle.KindSlidingWindow {
					most = 200 * time.Millisecond
				}
				starts := allStart(t, time.Minute, behind, walks(t, nodes[1], throttle.Normal, c))
				require.LessOrEqual(t, starts[0].Sub(left), most+100*time.Millisecond)
				require.LessOrEqual(t, starts[1].Sub(left), most+300*time.Millisecond)
				gone(t, nodes[0].Store, nodes[1].Store)
			})
		})
	}
}

// TestP12_ForgottenLine: the server forgets everything, or one key, or its scripts, while
// fifty wait in two nodes. All of them start, and the limit holds.
func TestP12_ForgottenLine(t *testing.T) {
	t.Parallel()
	c := charge("five", throttle.PerSecond(5))
	for name, forget := range map[string]func(t *testing.T, n *cuttable){
		"all":     func(t *testing.T, n *cuttable) { require.NoError(t, n.Empty(t.Context())) },
		"the key": func(t *testing.T, n *cuttable) { require.NoError(t, n.Forget(t.Context(), n.Key(c.Budget))) },
		"scripts": func(t *testing.T, n *cuttable) { require.NoError(t, n.ForgetScripts(t.Context())) },
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

// TestP9_LineWhileTheClockSteps: the server's clock is set by a minute while fifty wait
// in two nodes. Nobody hangs, and the limit holds.
func TestP9_LineWhileTheClockSteps(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, steps := range [][]time.Duration{
		{time.Minute}, {-time.Minute}, {time.Minute, -time.Minute}, {-time.Minute, time.Minute}, {-time.Second}, {time.Hour}, {-time.Hour},
	} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
				var set atomic.Int64
				clock := func() int64 { return bubbleClock() + set.Load() }
				var nodes []*cuttable
				for range 2 {
					nodes = append(nodes, &cuttable{Store: atRest(t, redisstore.NewAt(server.Client(t), nil, clock).Listen())})
				}
				all := crowdOf(t, nodes, 50, time.Millisecond, charge("five", throttle.PerSecond(5)))
				begin := all[0].came
				for _, step := range steps {
					time.Sleep(1800 * time.Millisecond)
					set.Add(step.Microseconds())
				}
				starts := allStart(t, 5*time.Minute, all...)
				require.Less(t, starts[49].Sub(begin), 15*time.Second)
				within(t, 5, time.Second, starts)
				gone(t, nodes[0].Store, nodes[1].Store)
			})
		})
	}
}
