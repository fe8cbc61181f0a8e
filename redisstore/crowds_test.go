package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
)

// A crowdScene is the budgets that crowds ask for, and what a caller asks for.
type crowdScene struct {
	name       string
	policies   []throttle.Policy
	keys       int  // how many budgets a policy has; 0: one
	costs      int  // a caller costs up to so much
	shares     int  // how many shares the callers have; 0: none
	priorities bool // callers have any priority
	deaths     bool // a node stops without a word
}

var (
	fortyASecond  = throttle.Policy{Name: "rate", Limit: store.PerSecond(40)}
	hundredIn3    = throttle.Policy{Name: "longer", Limit: store.SlidingWindow(100, 3*time.Second)}
	eightyASecond = throttle.Policy{Name: "rate", Limit: store.PerSecond(80)}
	fourSlots     = throttle.Policy{Name: "slots", Limit: store.Concurrency(4)}
	eightSlots    = throttle.Policy{Name: "slots", Limit: store.Concurrency(8)}
	crowdScenes   = []crowdScene{
		{name: "slots", policies: []throttle.Policy{fortyASecond, eightSlots}},
		{name: "costs", policies: []throttle.Policy{fortyASecond, eightSlots}, costs: 5},
		{name: "keys", policies: []throttle.Policy{fortyASecond, eightSlots}, keys: 3},
		{name: "deaths", policies: []throttle.Policy{eightyASecond, fourSlots}, deaths: true},
		{name: "slots first", policies: []throttle.Policy{eightSlots, fortyASecond}},
		{name: "narrow", policies: []throttle.Policy{fortyASecond, {Name: "slots", Limit: store.Concurrency(2)}}},
		{name: "two rates", policies: []throttle.Policy{fortyASecond, hundredIn3}},
		{name: "two rates and slots", policies: []throttle.Policy{fortyASecond, hundredIn3, eightSlots}},
		{name: "priorities", policies: []throttle.Policy{fortyASecond, eightSlots}, priorities: true},
		{name: "headroom", policies: []throttle.Policy{fortyASecond, {Name: "slots", Limit: store.Concurrency(8), Headroom: map[store.Priority]float64{store.PriorityLow: 0.25}}}, priorities: true},
		{name: "leaky", policies: []throttle.Policy{{Name: "rate", Limit: store.LeakyBucket(40, time.Second)}, eightSlots}},
		{name: "tokens", policies: []throttle.Policy{{Name: "rate", Limit: store.TokenBucket(40, time.Second, 20)}, eightSlots}},
		{name: "many", policies: []throttle.Policy{{Name: "rate", Limit: store.PerSecond(400)}, {Name: "slots", Limit: store.Concurrency(60)}}},
		{name: "shares", policies: []throttle.Policy{fortyASecond, eightSlots}, shares: 4},
		{name: "keys and deaths", policies: []throttle.Policy{eightyASecond, fourSlots}, keys: 3, costs: 2, deaths: true},
	}
)

// What callers do, and for how long at most what a dead node holds, and who waits there, is in the way of others.
const (
	crowdStays = 8                      // callers of each node ask again and again
	crowdLives = 400 * time.Millisecond // after that at the latest a crowd leaves
	crowdHolds = 150 * time.Millisecond // that long at most a slot is held
	crowdLast  = 60                     // come at last, and all start
	deadHolds  = 24500 * time.Millisecond
	deadWaits  = 5 * time.Second
)

// TestP7_CrowdsThatLeave: crowds of callers of several nodes come and leave, at once or one by one, and some that have a start give it back. Those
// that stay start all the time, within all limits, and no place of a caller that has left holds them up. In the end nothing is taken, and
// whoever comes then is served as fast as the limits allow.
func TestP7_CrowdsThatLeave(t *testing.T) {
	beside(t)
	for _, scene := range soak.Most(crowdScenes, crowdScenes[:3]) {
		for seed := range uint64(soak.Most(10, 1)) {
			runBubble(t, fmt.Sprint(scene.name, " ", seed), func(t *testing.T, server *redistest.Server) {
				dice := rand.New(rand.NewPCG(seed, 1))
				c := crowds{T: t, crowdScene: scene, dice: dice, size: 10 + dice.IntN(soak.Most(70, 20)), started: make(chan struct{}, 1), used: make(map[throttle.Demand]*crowdUse)}
				stores := nodesOf(t, server, 2+int(seed%3))
				forgets(t, stores[0].Client())
				for _, s := range stores {
					atRest(t, s.Listen())
					policies := slices.Clone(scene.policies)
					for i := range policies {
						policies[i].Keyed = scene.keys > 0
					}
					l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: policies})
					require.NoError(t, err)
					n := &crowdNode{cuttable: s, Limiters: l}
					n.lives, n.dies = context.WithCancel(t.Context())
					c.nodes = append(c.nodes, n)
				}
				c.play(soak.Most(5*time.Second, 2*time.Second))
			})
		}
	}
}

// crowds are the callers of a scene.
type crowds struct {
	*testing.T
	crowdScene
	nodes   []*crowdNode
	size    int           // of a crowd
	started chan struct{} // somebody has

	mu   sync.Mutex
	dice *rand.Rand
	used map[throttle.Demand]*crowdUse // by policy and key
}

// A crowdNode is a program, and its callers.
type crowdNode struct {
	*cuttable
	*throttle.Limiters
	lives context.Context
	dies  context.CancelFunc
	held  atomic.Int64 // of all slots

	mu   sync.Mutex
	kept []*throttle.Permit // of callers when the node died
}

// keep keeps a permit that a node cannot release when it dies. Without keep the garbage collector would release the permit, which no
// goroutine outside the bubble may do.
func (n *crowdNode) keep(p *throttle.Permit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, p)
}

// A crowdUse is what is true of a budget.
type crowdUse struct {
	starts []time.Time // each as often as it costs
	held   int
}

func (c *crowds) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dice.IntN(n)
}

// stay lets less than d pass, as long as a node lives.
func (c *crowds) stay(n *crowdNode, d time.Duration) {
	over, stop := bubble.After(time.Duration(c.draw(int(d))))
	defer stop()
	select {
	case <-over:
	case <-n.lives.Done():
	}
}

// patience is how long the last of so many callers waits, in each line, behind a crowd and a window that is full.
func (c *crowds) patience(callers, cost int) time.Duration {
	most := crowdLives + time.Second
	if c.deaths {
		most += deadWaits
	}
	for _, p := range c.policies {
		per := p.Limit.Per() + defaultJitter // for which a start counts
		if p.Limit.Kind() == store.KindConcurrency {
			per = crowdHolds / 2
		}
		most += per + time.Duration(callers*cost)*per/time.Duration(p.Limit.N())
	}
	return most
}

func (c *crowds) play(length time.Duration) {
	ctx, leave := context.WithCancel(c.Context())
	var all sync.WaitGroup
	var over atomic.Bool
	patience := c.patience(crowdStays*len(c.nodes), max(1, c.costs*2/3))
	for _, n := range c.nodes {
		repeats := func(do func()) {
			all.Go(func() {
				for !over.Load() && n.lives.Err() == nil {
					do()
				}
			})
		}
		for range crowdStays {
			repeats(func() {
				came := time.Now()
				if c.start(ctx, n, c.demands()) && time.Since(came) > patience && c.inOrder() {
					c.Errorf("a caller that stays waited for %v, of %v", time.Since(came), patience)
				}
			})
		}
		repeats(func() { c.crowd(ctx, n) })
	}
	longest := 1500 * time.Millisecond
	if c.deaths {
		longest, length = longest+deadWaits, length+deadHolds
		time.AfterFunc(time.Second, func() { c.death(c.nodes[len(c.nodes)-1]) })
	}
	c.awaitStarts(longest, length)
	over.Store(true)
	leave()
	all.Wait()

	ctx, leave = context.WithCancel(c.Context())
	most := c.patience(crowdLast, max(1, c.costs*2/3))
	ends := time.AfterFunc(most, leave)
	for i := range crowdLast {
		all.Go(func() { c.start(ctx, c.nodes[i%len(c.nodes)], c.demands()) })
	}
	all.Wait()
	require.True(c, ends.Stop(), "not all of the last have started within %v", most)
	leave()
	c.atLast()
}

// inOrder reports whether those that come first are served first.
func (c *crowds) inOrder() bool { return !c.priorities && c.shares == 0 }

// death stops a node, when it holds so little that the others can go on: what it holds nobody has before its lease ends.
func (c *crowds) death(n *crowdNode) {
	for n.held.Load() > int64(fourSlots.Limit.N()/2) {
		time.Sleep(time.Millisecond)
	}
	n.cut()
	n.dies()
}

// awaitStarts requires that somebody starts in each of many spans of time.
func (c *crowds) awaitStarts(longest, length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		over, stop := bubble.After(longest)
		select {
		case <-c.started:
			stop()
		case <-over:
			c.Error("nothing starts any more")
			return
		}
	}
}

// atLast requires that nothing is left of all who came, and that no window held more than its limit.
func (c *crowds) atLast() {
	time.Sleep(10 * time.Second) // more than any window
	for _, n := range c.nodes {
		if n.lives.Err() != nil {
			n.mend()
			for _, p := range n.kept {
				p.Release()
			}
			continue
		}
		gone(c.T, n.Store)
		all, err := n.Statuses(c.Context())
		require.NoError(c, err)
		for _, s := range all {
			require.Zero(c, s.Used+s.Booked+s.Waiting, "%+v", s)
		}
	}
	for d, use := range c.used {
		i := slices.IndexFunc(c.policies, func(p throttle.Policy) bool { return p.Name == d.Policy })
		switch l := c.policies[i].Limit; l.Kind() {
		case store.KindSlidingWindow, store.KindLeakyBucket:
			within(c.T, l.N(), l.Per(), use.starts)
		case store.KindTokenBucket:
			within(c.T, l.N()+l.Capacity(), l.Per(), use.starts)
		}
	}
}

// demands returns what a caller asks for.
func (c *crowds) demands() (all []throttle.Demand) {
	cost := 1 + c.draw(max(1, c.costs))
	for _, p := range c.policies {
		d := throttle.Demand{Policy: p.Name, Cost: cost}
		if c.keys > 0 {
			d.Key = fmt.Sprint(c.draw(c.keys))
		}
		if c.shares > 0 && p.Limit.Kind() != store.KindConcurrency {
			d.Share = fmt.Sprint(c.draw(c.shares))
		}
		all = append(all, d)
	}
	return all
}

// start waits for a start, and reports whether it came. Then it holds its slots for some time, or gives all back at once.
func (c *crowds) start(ctx context.Context, n *crowdNode, demands []throttle.Demand) bool {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(n.lives, leave)()
	if c.priorities {
		ctx = throttle.WithPriority(ctx, store.Priority(c.draw(3)-1))
	}
	p, err := n.Acquire(throttle.WithWaitOnly(ctx), demands...) // a node that dies releases nothing
	if err != nil {
		if ctx.Err() == nil {
			c.Error(err)
			c.stay(n, crowdHolds) // or the caller would try again without end, at the same moment
		}
		return false
	}

	// Slots that a call gives back later are held until then.
	n.held.Add(int64(demands[0].Cost))
	defer n.held.Add(-int64(demands[0].Cost))

	switch {
	case n.lives.Err() != nil:
		n.keep(p)
		return false
	case c.draw(6) == 0:
		p.Cancel()
		return true
	}

	select {
	case c.started <- struct{}{}:
	default:
	}

	c.count(demands, 1)
	c.stay(n, crowdHolds)
	c.count(demands, -1)

	if n.lives.Err() != nil {
		n.keep(p)
		return true
	}
	p.Release()
	return true
}

// count notes that a caller starts, or that it is done.
func (c *crowds) count(demands []throttle.Demand, sign int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range demands {
		budget := throttle.Demand{Policy: d.Policy, Key: d.Key}
		use := c.used[budget]
		if use == nil {
			use = new(crowdUse)
			c.used[budget] = use
		}
		use.held += sign * d.Cost
		if l := c.policies[i].Limit; l.Kind() == store.KindConcurrency && use.held > l.N() {
			c.Errorf("%d are in flight, of %v", use.held, l)
		}
		if sign > 0 {
			use.starts = append(use.starts, slices.Repeat([]time.Time{time.Now()}, d.Cost)...)
		}
	}
}

// crowd is callers that come together, and leave together or one by one.
func (c *crowds) crowd(ctx context.Context, n *crowdNode) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var all sync.WaitGroup
	together := c.draw(2) == 0
	for range c.size {
		all.Go(func() {
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			if !together {
				defer time.AfterFunc(time.Duration(c.draw(int(crowdLives))), leave).Stop()
			}
			c.start(ctx, n, c.demands())
		})
	}
	c.stay(n, crowdLives)
	leave()
	all.Wait()
	c.stay(n, crowdLives)
}
