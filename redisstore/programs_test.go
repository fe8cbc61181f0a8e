package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// own makes a charge one of the node alone.
func own(c store.Charge) store.Charge {
	c.Node = true
	return c
}

// TestP1_TwoStoredForms: programs of a version whose rows have another form share nothing with those of this version. Each half starts as many as the limit
// allows, and a penalty closes only the half that was told.
func TestP1_TwoStoredForms(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		now, _ := loaded(t, server.Client(t), nil)

		// The other version differs by its number in the names of its keys.
		client := server.Client(t)
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			for i, arg := range cmd.Args() {
				if text, ok := arg.(string); ok {
					cmd.Args()[i] = strings.Replace(text, "throttle:7:", "throttle:6:", 1)
				}
			}
			return next()
		}))
		before := atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))

		c := charge("hourly", store.PerHour(5))
		for _, half := range []*redisstore.Store{now, before} {
			startNow(t, half, 5, c)
			require.Positive(t, book(t, half, c))
		}

		banned := charge("banned", store.PerHour(5))
		require.NoError(t, before.Pause(t.Context(), banned, time.Hour))
		require.Positive(t, book(t, before, banned))
		startNow(t, now, 1, banned)
	})
}

// TestP1_NodeAndFleetTogether lets many callers of two nodes book both, and
// counts the starts of each budget.
func TestP1_NodeAndFleetTogether(t *testing.T) {
	eachBubble(t, seeds(4), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		a, _ := loaded(t, client, nil)
		nodes := []*redisstore.Store{a, redisstore.NewAt(client, redisstore.Options{}, bubbleClock)}
		rng := rand.New(rand.NewPCG(seed, 6))
		mine, all := store.PerSecond(3), store.SlidingWindow(7, 2*time.Second)
		var logs [3]log // of each node, and of the fleet
		var callers sync.WaitGroup
		for range 120 {
			which, gone := rng.IntN(2), rng.IntN(4) == 0
			callers.Go(func() {
				k := booking(own(charge("mine", mine)), charge("all", all))
				g, err := nodes[which].Book(t.Context(), k)
				if err != nil || !g.OK {
					t.Errorf("refused: %v", err)
					return
				}
				if gone {
					nodes[which].Cancel(k, g)
					return
				}
				time.Sleep(g.Wait)
				logs[which].add(1)
				logs[2].add(1)
			})
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		callers.Wait()
		require.Greater(t, len(logs[2].all), 60)
		logs[0].requireWithin(t, mine)
		logs[1].requireWithin(t, mine)
		logs[2].requireWithin(t, all)
	})
}

// An answering base notes when each request starts, and how many of a node, or
// of all, are in flight.
type answering struct {
	mu       sync.Mutex
	took     time.Duration
	begun    time.Time
	starts   []time.Duration
	inFlight map[int]int
	most     int
}

// of is the base of one node; where nodes are counted together it is 0 for all.
func (a *answering) of(node int) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.starts = append(a.starts, time.Since(a.begun))
		a.inFlight[node]++
		a.most = max(a.most, a.inFlight[node])
		a.mu.Unlock()
		time.Sleep(a.took)
		a.mu.Lock()
		a.inFlight[node]--
		a.mu.Unlock()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x")), Request: r}, nil
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestP6_WindowOfTheFleetAndConcurrency sends from two nodes what needs a window
// of the fleet and a place in flight: of the fleet, or of the node alone. Both
// limits are kept, and nothing stays held.
func TestP6_WindowOfTheFleetAndConcurrency(t *testing.T) {
	t.Parallel()
	for _, scope := range []throttle.Scope{throttle.ScopeFleet, throttle.ScopeNode} {
		for _, took := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprint(scope, took), func(t *testing.T) {
				inFlight(t, 2, func(t *testing.T, a, b *cuttable, _ store.Charge) {
					up := &answering{took: took, begun: time.Now(), inFlight: map[int]int{}}
					var nodes []*throttle.Transport
					for i, s := range []store.Store{a, b} {
						tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: up.of(i * int(scope)), Policies: []throttle.Policy{
							{Name: "window", Match: "/", Limit: store.PerSecond(5), Jitter: -1},
							{Name: "in flight", Match: "/", Limit: store.Concurrency(2), Scope: scope},
						}})
						require.NoError(t, err)
						nodes = append(nodes, tr)
					}
					var all sync.WaitGroup
					for i := range 24 {
						all.Go(func() {
							r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
							if err != nil {
								t.Error(err)
								return
							}
							resp, err := nodes[i%2].RoundTrip(r)
							if err != nil {
								t.Error(err)
								return
							}
							if err := resp.Body.Close(); err != nil {
								t.Error(err)
							}
						})
						time.Sleep(time.Millisecond)
					}
					all.Wait()
					require.Len(t, up.starts, 24)
					require.Equal(t, 2, up.most)
					slices.Sort(up.starts)
					for i, start := range up.starts[5:] {
						require.Greater(t, start-up.starts[i], time.Second)
					}
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
					require.NoError(t, err)
					for i, s := range []store.Store{a, b} {
						st, err := s.Status(t.Context(), nodes[i].Explain(r)[1])
						require.NoError(t, err)
						require.Zero(t, st.Used+st.Waiting)
					}
				})
			})
		}
	}
}

// free is a charge of an unlimited budget.
func free(name string) store.Charge { return charge(name, store.Unlimited()) }

// commands says how often a server has run some commands.
func commands(t *testing.T, c *redis.Client, names ...string) (counts []int) {
	info, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, name := range names {
		n := 0
		if m := regexp.MustCompile(`cmdstat_` + name + `:calls=(\d+)`).FindStringSubmatch(info); m != nil {
			n, err = strconv.Atoi(m[1])
			require.NoError(t, err)
		}
		counts = append(counts, n)
	}
	return counts
}

// TestP4_UnlimitedIsReadOnce books unlimited budgets alone, and beside one that has a
// number, and counts what Redis does for that: one look at each, and nothing is written
// but the record of the call and the row of the one.
func TestP4_UnlimitedIsReadOnce(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		forgets(t, client)
		all := []store.Charge{free("a"), free("b"), free("c"), free("d"), free("e")}
		one := charge("one", store.PerSecond(1000))
		does := func(want []int, do func()) {
			t.Helper()
			names := []string{"getrange", "get", "set", "setrange", "append", "del", "pexpire"}
			before := commands(t, client, names...)
			do()
			for i, n := range commands(t, client, names...) {
				require.Equal(t, want[i], n-before[i], names[i])
			}
		}
		for range 3 {
			does([]int{5, 1, 1, 0, 0, 0, 0}, func() { require.Zero(t, book(t, s, all...)) })
		}
		require.Len(t, keys(t, client), 1, "the record")

		does([]int{1, 1, 2, 0, 0, 0, 0}, func() { book(t, s, one) })
		time.Sleep(2 * time.Second)
		does([]int{6, 1, 2, 0, 0, 0, 0}, func() { book(t, s, append(all, one)...) })
		require.NoError(t, s.Resume(t.Context(), all[0]))
		require.NoError(t, s.Reconcile(t.Context(), all[0], store.Quota{Reset: time.Hour}))
		require.Len(t, keys(t, client), 2, "and the one")
	})
}

// stumbles makes a client lose its next script call before it is done, or its answer if
// after is true, and does something then.
func stumbles(c *redis.Client, after bool, then func()) {
	lost := false
	c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
		if lost {
			return next()
		}
		lost = true
		if after {
			if err := next(); err != nil {
				return err
			}
		}
		then()
		return failing(cmd, io.EOF)
	}))
}

// TestP8_LostWhileAGateIsShut loses a call, or its answer, and closes the budget before it
// is made again: by another program, or so that this one knows. One start is charged. It
// counts as booked before the penalty if it was.
func TestP8_LostWhileAGateIsShut(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, knows := range []bool{false, true} {
			runBubble(t, fmt.Sprintf("answer %t, known %t", after, knows), func(t *testing.T, server *redistest.Server) {
				client := server.Client(t)
				s, _ := loaded(t, client, nil)
				who := s
				if !knows {
					who = atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock))
				}
				row, one, dark := free("row"), charge("one", store.PerHour(2)), free("dark")
				dark.Shadow = true
				stumbles(client, after, func() { require.NoError(t, who.Pause(t.Context(), row, time.Minute)) })
				k := booking(dark, row, one)
				g := ask(t, s, k)
				require.True(t, g.OK)
				if after {
					require.Equal(t, -1, g.HeldBy)
					require.Zero(t, g.Wait)
				} else {
					require.Equal(t, 1, g.HeldBy)
					require.True(t, g.Paused)
					require.Greater(t, g.Wait, 59*time.Second)
				}
				require.Equal(t, 1, booked(t, s, one))
				w := s.Watch(k, g, nil)
				good, err := w.Confirm(t.Context(), -1)
				require.NoError(t, err)
				require.Equal(t, !after, good, "a start of before the penalty is of no use")
				w.Stop()
			})
		}
	}
}

// TestP12_LostWithWhatItKnew loses a call. Then its program closes an unlimited budget that
// the call names as a gate, and the server forgets that. The program remembers.
func TestP12_LostWithWhatItKnew(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		row := free("row")
		stumbles(client, false, func() {
			require.NoError(t, s.Pause(t.Context(), row, time.Minute))
			forgets(t, client)
		})
		require.Greater(t, book(t, s, row), 59*time.Second)
		require.Greater(t, book(t, atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)), row), 59*time.Second)
	})
}

// TestP12_UnlimitedIsToldWithOthers empties a server while somebody waits for the end of a
// penalty. A program that knows nothing of that finds that another budget was lost: then
// the one that waits tells of the penalty, before anybody starts.
func TestP12_UnlimitedIsToldWithOthers(t *testing.T) {
	t.Parallel()
	tryAgain(t, unlimitedIsTold)
}

// unlimitedIsTold returns false if nobody told of the penalty and the machine stood still meanwhile: others have only a
// second to tell what was lost.
func unlimitedIsTold(t *testing.T) bool {
	server := redistest.Shared(t)
	client := server.Client(t)
	forgets(t, client)
	options := redisstore.Options{Namespace: server.Namespace}
	waits, finds := redisstore.New(client, options), redisstore.New(server.Client(t), options)
	row, one := free("row"), charge("one", store.PerMinute(1000))
	tap := newTap(client, nil)
	require.NoError(t, waits.Pause(t.Context(), row, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	k := booking(row)
	k.Horizon = near
	g := ask(t, waits, k)
	require.NotNil(t, g.Ready)
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				waits.Cancel(k, g)
				return
			case <-g.Ready:
			}
			k.Turn, k.Returns = g.Turn, true
			next, err := waits.Book(ctx, k)
			if err != nil || next.Ready == nil {
				return
			}
			g = next
		}
	})
	book(t, finds, one)
	// The program asks half a second later, once, how its line stands. Two beats without a question mean that it has asked.
	beats := 0
	require.Eventually(t, func() bool {
		for _, name := range tap.names() {
			switch {
			case strings.HasPrefix(name, "eval"):
				beats = 0
			case name == "publish":
				beats++
			}
		}
		return beats >= 2
	}, inTheEnd, 10*time.Millisecond)
	require.Eventually(t, func() bool { // until it listens
		channels, err := client.PubSubChannels(t.Context(), waits.PauseChannel()).Result()
		return err == nil && len(channels) > 0
	}, inTheEnd, 10*time.Millisecond)

	still := watchStalls()
	forgets(t, client)
	late := bookingFor(time.Minute, row, one)
	got := ask(t, finds, late)
	if stood := still(); got.OK && stood > telling/10 {
		return false
	}
	require.False(t, got.OK, "%+v", got)
	require.Greater(t, got.Wait, 50*time.Minute)
	return true
}

// A crowdScene is the budgets that crowds ask for, and what a caller asks for.
type crowdScene struct {
	name       string
	policies   []throttle.Policy
	keys       int  // how many budgets a policy has. Zero means one.
	costs      int  // a caller costs up to so much
	shares     int  // how many shares the callers have. Zero means none.
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
		for seed := range uint64(soak.Seeds(1, 1)) {
			runBubble(t, fmt.Sprint(scene.name, " ", seed), func(t *testing.T, server *redistest.Server) {
				dice := rand.New(rand.NewPCG(seed, 1))
				c := crowds{T: t, crowdScene: scene, dice: dice, size: 10 + dice.IntN(soak.Most(40, 20)), started: make(chan struct{}, 1), used: make(map[throttle.Demand]*crowdUse)}
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
				c.play(soak.Most(3*time.Second, 2*time.Second))
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
