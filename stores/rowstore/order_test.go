package rowstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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
	takes          time.Duration // how long a transaction takes
	polls          bool          // the database cannot wake nodes

	mu     sync.Mutex
	starts []nodeStart
}

// A nodeStart is a start of a caller of a node.
type nodeStart struct {
	node        int
	came, start time.Time
}

// String says what a fleet is.
func (f *waitingNodes) String() string {
	text := fmt.Sprintf("%d × %d, %d per s, a transaction takes %v", f.nodes, f.callers, f.n, f.takes)
	if f.open {
		text += ", open load"
	}
	if f.polls {
		text += ", not woken"
	}
	return text
}

// orderSettles is how long the nodes have to get into step, and orderLasts for how long they are judged then.
const orderSettles, orderLasts = 5 * time.Second, 20 * time.Second

// play has the fleet start, and returns the database.
func (f *waitingNodes) play() (transactions int64) {
	db := &counted{memory: newMemory(), takes: f.takes}
	var woken rowstore.Database = struct {
		rowstore.Database
		told
	}{db, told{db.memory}}
	if f.polls {
		woken = struct{ rowstore.Database }{db}
	}

	end := time.Now().Add(orderSettles + orderLasts)
	var all sync.WaitGroup
	for node := range f.nodes {
		one, err := throttle.NewLimiter(must(rowstore.New(woken, rowstore.Options{})), throttle.Policy{Name: "all", Limit: store.PerSecond(f.n)})
		require.NoError(f, err)
		if f.open {
			all.Go(func() { f.come(one, node, end) })
			continue
		}
		for range f.callers {
			all.Go(func() {
				for time.Now().Before(end) {
					f.start(one, node)
				}
			})
		}
	}

	time.Sleep(orderSettles)
	before := db.n.Load()
	time.Sleep(orderLasts)
	transactions = db.n.Load() - before
	all.Wait()
	return transactions
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
		{&waitingNodes{nodes: 4, callers: 16, n: 40, takes: time.Millisecond}, 1.9, 300 * time.Millisecond},
		{&waitingNodes{nodes: 4, callers: 16, n: 40, takes: time.Millisecond, polls: true}, 2.6, 300 * time.Millisecond},
		{&waitingNodes{nodes: 4, n: 40, takes: time.Millisecond, open: true}, 1.9, 300 * time.Millisecond},
		{&waitingNodes{nodes: 16, callers: 16, n: 40, takes: time.Millisecond}, 2.1, 300 * time.Millisecond},
		{&waitingNodes{nodes: 60, callers: 4, n: 40, takes: time.Millisecond}, 5, 700 * time.Millisecond},
	} {
		f := c.waitingNodes
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f.T = t
				began := time.Now()
				transactions := f.play()

				since := began.Add(orderSettles)
				wrong, passed := f.order(since)
				in := slices.DeleteFunc(f.starts, func(s nodeStart) bool { return s.start.Before(since) || s.start.After(since.Add(orderLasts)) })
				used := float64(len(in)) * 1.035 / (float64(f.n) * orderLasts.Seconds())
				cost := float64(transactions) / float64(len(in))
				t.Logf("%.1f %% used, %.2f transactions a start, %.1f %% of pairs in the wrong order, passed by %v", 100*used, cost, 100*wrong, passed)
				require.GreaterOrEqual(t, used, 0.97)
				require.LessOrEqual(t, cost, c.most)
				require.LessOrEqual(t, wrong, 0.03)
				require.LessOrEqual(t, passed, c.passed)
			})
		})
	}
}
