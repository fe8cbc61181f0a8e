package rowstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// waitingNodes are nodes whose callers wait for one limit, in a database whose transactions take some time.
type waitingNodes struct {
	*testing.T
	nodes, callers int
	n              int           // starts per second
	open           bool          // callers come at random, 1.2 times as many as the limit allows. Otherwise each comes again when it has started.
	takes          time.Duration // how long a transaction takes. Zero: a random time, as in a database on a server.
	polls          bool          // the database cannot wake nodes

	mu     sync.Mutex
	random *rand.Rand
	starts []nodeStart
}

// A nodeStart is a start of a caller of a node.
type nodeStart struct {
	node        int
	came, start time.Time
}

// String says what a fleet is.
func (f *waitingNodes) String() string {
	text := fmt.Sprintf("%d × %d, %d per s", f.nodes, f.callers, f.n)
	if f.takes > 0 {
		text += fmt.Sprintf(", a transaction takes %v", f.takes)
	}
	if f.open {
		text += ", open load"
	}
	if f.polls {
		text += ", not woken"
	}
	return text
}

// orderPassed is by how much a caller of another node that comes later may start earlier. Where answers take up to 20 ms a caller may have its answer too late: then
// it has the next start, behind all that is booked, which is within the horizon.
const orderPassed, answerPassed = 300 * time.Millisecond, store.MinHorizon + 20*time.Millisecond

// orderSettles is how long the nodes have to get into step, and orderLasts for how long they are judged then.
const orderSettles, orderLasts = 5 * time.Second, 20 * time.Second

// play has the fleet start, and returns the database.
func (f *waitingNodes) play() (transactions int64) {
	db, count := f.database()

	end := time.Now().Add(orderSettles + orderLasts)
	var all sync.WaitGroup
	for node := range f.nodes {
		one, err := throttle.NewLimiter(must(rowstore.New(db, rowstore.Options{})), throttle.Policy{Name: "all", Limit: store.PerSecond(f.n)})
		require.NoError(f, err)
		if f.open {
			all.Go(func() { f.come(one, node, end) })
			continue
		}
		for range f.callers {
			all.Go(func() {
				time.Sleep(f.rush())
				for time.Now().Before(end) {
					f.start(one, node)
				}
			})
		}
	}

	time.Sleep(orderSettles)
	before := count.Load()
	time.Sleep(orderLasts)
	transactions = count.Load() - before
	all.Wait()
	return transactions
}

// rush returns when a caller comes first, of a crowd that comes at once.
func (f *waitingNodes) rush() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.random.Int64N(int64(25 * time.Millisecond)))
}

// database returns the database of the fleet, and the count of its transactions and reads.
func (f *waitingNodes) database() (db rowstore.Database, count *atomic.Int64) {
	if f.takes == 0 {
		d := newServed(45)
		if f.polls {
			return onServer{d, d, d}, &d.n
		}
		return struct {
			onServer
			told
		}{onServer{d, d, d}, told{d.memory}}, &d.n
	}

	d := &counted{memory: newMemory(), takes: f.takes}
	if f.polls {
		return struct{ rowstore.Database }{d}, &d.n
	}
	return struct {
		rowstore.Database
		told
	}{d, told{d.memory}}, &d.n
}

// come has callers of a node come at random, until the end.
func (f *waitingNodes) come(one *throttle.Limiter, node int, end time.Time) {
	var all sync.WaitGroup
	defer all.Wait()
	random := rand.New(rand.NewPCG(uint64(node), 45))
	for time.Now().Before(end) {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) * float64(f.nodes) / 1.2 / float64(f.n)))
		all.Go(func() { f.start(one, node) })
	}
}

// start takes a start.
func (f *waitingNodes) start(one *throttle.Limiter, node int) {
	came := time.Now()
	if _, err := one.Acquire(throttle.WithMaxWait(f.Context(), throttle.Forever), "", 1); err != nil {
		f.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, nodeStart{node, came, time.Now()})
}

// order returns which part of the pairs of callers of different nodes that came since a time, and started within a second, started in the wrong order, and by how
// much one was passed at the most.
func (f *waitingNodes) order(since time.Time) (wrong float64, passed time.Duration) {
	judged := slices.DeleteFunc(slices.Clone(f.starts), func(s nodeStart) bool { return s.came.Before(since) })
	slices.SortFunc(judged, func(a, b nodeStart) int { return a.start.Compare(b.start) })

	pairs, bad := 0, 0
	for i, a := range judged {
		for _, b := range judged[i+1:] {
			if b.start.Sub(a.start) > time.Second {
				break
			}
			if a.node == b.node {
				continue
			}

			pairs++
			if by := a.came.Sub(b.came); by > time.Millisecond {
				bad++
				passed = max(passed, by)
			}
		}
	}
	return float64(bad) / float64(max(1, pairs)), passed
}

// TestP5_OrderBetweenNodes: callers of several nodes start in the order in which they came, use the limit, and cost few transactions and reads, though no node
// knows what the callers of the others want, and callers share steps.
func TestP5_OrderBetweenNodes(t *testing.T) {
	for _, c := range []struct {
		*waitingNodes
		most   float64       // transactions and reads a start
		passed time.Duration // by how much a caller may be passed
	}{
		{&waitingNodes{nodes: 4, callers: 16, n: 40, takes: time.Millisecond}, 1.5, orderPassed},
		{&waitingNodes{nodes: 4, callers: 16, n: 40, takes: time.Millisecond, polls: true}, 1.6, orderPassed},
		{&waitingNodes{nodes: 4, n: 40, takes: time.Millisecond, open: true}, 1.5, orderPassed},
		{&waitingNodes{nodes: 16, callers: 16, n: 40, takes: time.Millisecond}, 2.1, orderPassed},
		{&waitingNodes{nodes: 60, callers: 4, n: 40, takes: time.Millisecond}, 4.5, 700 * time.Millisecond},
		{&waitingNodes{nodes: 4, callers: 16, n: 40}, 1.5, answerPassed},
		{&waitingNodes{nodes: 4, callers: 16, n: 40, polls: true}, 1.7, answerPassed},
		{&waitingNodes{nodes: 4, n: 40, open: true}, 1.5, answerPassed},
		{&waitingNodes{nodes: 60, callers: 4, n: 40}, 5.5, answerPassed},
		{&waitingNodes{nodes: 60, callers: 4, n: 40, polls: true}, 13, answerPassed},
	} {
		f := c.waitingNodes
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f.T, f.random = t, rand.New(rand.NewPCG(45, 45))
				began := time.Now()
				transactions := f.play()

				since := began.Add(orderSettles)
				wrong, passed := f.order(since)
				in := slices.DeleteFunc(f.starts, func(s nodeStart) bool { return s.start.Before(since) || s.start.After(since.Add(orderLasts)) })
				used := float64(len(in)) * 1.035 / (float64(f.n) * orderLasts.Seconds())
				cost := float64(transactions) / float64(len(in))
				rushWrong, rushPassed := f.order(began)
				t.Logf("with the rush: %.1f %% of pairs in the wrong order, passed by %v", 100*rushWrong, rushPassed)
				t.Logf("%.1f %% used, %.2f transactions a start, %.1f %% of pairs in the wrong order, passed by %v", 100*used, cost, 100*wrong, passed)
				require.GreaterOrEqual(t, used, 0.97)
				require.LessOrEqual(t, cost, c.most)
				require.LessOrEqual(t, wrong, 0.03)
				require.LessOrEqual(t, passed, c.passed)
				if f.takes == 0 { // the nodes know when their transactions had the lock, and so when callers came
					require.LessOrEqual(t, rushWrong, 0.03)
					require.LessOrEqual(t, rushPassed, c.passed)
				}
			})
		})
	}
}

// TestP5_TheRankOfACallerWhoseStepWaits: a caller keeps the rank that it had when it came, however long its first step waits for the lock of the rows: it
// starts before one of another node that came later and got in line first.
func TestP5_TheRankOfACallerWhoseStepWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newServed(45)
		held := &heldUp{served: d}
		f := &waitingNodes{T: t}
		join := func(db rowstore.Database) *throttle.Limiter {
			l, err := throttle.NewLimiter(must(rowstore.New(db, rowstore.Options{})), throttle.Policy{Name: "all", Limit: store.PerSecond(1)})
			require.NoError(t, err)
			return l
		}

		var all sync.WaitGroup
		come := func(l *throttle.Limiter, node int) {
			all.Go(func() { f.start(l, node) })
			time.Sleep(100 * time.Millisecond)
		}
		one, other := join(onServer{d, d, d}), join(onServer{held, d, d})
		come(one, 1) // starts
		come(one, 1) // is first in line
		held.by.Store(int64(300 * time.Millisecond))
		come(other, 2)
		come(one, 3)
		all.Wait()

		var order []int
		for _, s := range f.starts {
			order = append(order, s.node)
		}
		require.Equal(t, []int{1, 1, 2, 3}, order)
	})
}

// A heldUp is a served whose next transaction waits for the lock of the group.
type heldUp struct {
	*served
	by atomic.Int64 // for so many nanoseconds
}

func (h *heldUp) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	time.Sleep(time.Duration(h.by.Swap(0)))
	return h.served.Transact(ctx, group, keys, do)
}
