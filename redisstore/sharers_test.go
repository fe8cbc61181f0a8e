package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// Sharers are some nodes that start as much as they may, all under one limit, each
// with a way of its own to the server.
type sharers struct {
	t      *testing.T
	policy throttle.Policy
	ctx    context.Context
	nodes  []*sharer
	arrivals
}

// Arrivals are when something came since they began.
type arrivals struct {
	began  time.Time
	mu     sync.Mutex
	starts []time.Time
}

func (a *arrivals) add() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starts = append(a.starts, time.Now())
}

// A sharer is one of them.
type sharer struct {
	store *redisstore.Store
	way   *way
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// A way is a node's connection. It can be gone, or say nothing: then what was sent
// arrives when it is back, however late.
type way struct {
	tap
	err   error
	stuck chan struct{}
	slow  time.Duration // how long calls and answers take at most
}

// maxLate is how long a client waits for an answer.
const maxLate = 3 * time.Second

func (w *way) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.mu.Lock()
		w.cmds = append(w.cmds, cmd)
		err, stuck, slow := w.err, w.stuck, w.slow
		w.mu.Unlock()
		if stuck != nil && !isScript(cmd) {
			err = os.ErrDeadlineExceeded // whoever asks is not kept waiting
		} else if stuck != nil {
			select {
			case <-stuck:
				return next(ctx, late(cmd))
			case <-time.After(maxLate):
			}
			again := redis.NewCmd(ctx, cmd.Args()...)
			go func() {
				<-stuck
				_ = next(ctx, late(again))
			}()
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return failing(cmd, err)
		}
		if slow > 0 {
			time.Sleep(rand.N(slow))
			defer func() { time.Sleep(rand.N(slow)) }()
		}
		return next(ctx, late(cmd))
	}
}

// late gives a call the time at which it arrives.
func late(cmd redis.Cmder) redis.Cmder {
	if isScript(cmd) {
		keys := cmd.Args()[2].(int)
		cmd.Args()[3+keys] = strconv.FormatInt(bubbleClock(), 10)
	}
	return cmd
}

// set makes the way fail with err, or with no answer at all if silent is true, or
// makes it slow.
func (w *way) set(err error, silent bool, slow time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck != nil {
		close(w.stuck)
	}
	w.err, w.stuck, w.slow = err, nil, slow
	if silent {
		w.stuck = make(chan struct{})
	}
}

// newSharers returns so many nodes that have not begun.
func newSharers(t *testing.T, server *redistest.Server, size int, o redisstore.Options, p throttle.Policy) *sharers {
	c := &sharers{t: t, policy: p, ctx: t.Context(), arrivals: arrivals{began: time.Now()}}
	forgets(t, server.Client(t))
	for range size {
		client := roomy(t, server)
		m := &sharer{way: &way{}, store: redisstore.NewAt(client, o, bubbleClock)}
		client.AddHook(m.way)
		c.nodes = append(c.nodes, m)
	}
	return c
}

// roomy returns a client that never has to wait for a connection: it would with
// timers that it shares with other bubbles.
func roomy(t *testing.T, server *redistest.Server) *redis.Client {
	o := server.Options()
	o.PoolSize = 1000
	client := clientOf(t, o)
	return client
}

// pull lets the nodes pull with so many callers each.
func (c *sharers) pull(callers int, nodes ...*sharer) {
	for _, m := range nodes {
		ctx, stop := context.WithCancel(c.ctx)
		m.stop = stop
		l, err := throttle.NewLimiter(m.store, c.policy)
		require.NoError(c.t, err)
		for range callers {
			m.done.Go(func() {
				for {
					if _, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err != nil {
						return
					}
					c.add()
				}
			})
		}
	}
}

// until lets time pass, to so long after the beginning.
func (c *sharers) until(d time.Duration) { time.Sleep(time.Until(c.began.Add(d))) }

// away takes the server from some nodes: they are refused, or hear nothing.
func away(silent bool, nodes ...*sharer) {
	for _, m := range nodes {
		if silent {
			m.way.set(nil, true, 0)
		} else {
			m.way.set(errAway, false, 0)
		}
	}
}

// slowly lets calls take up to twice d.
func slowly(d time.Duration, nodes ...*sharer) {
	for _, m := range nodes {
		m.way.set(nil, false, d)
	}
}

// back gives it back.
func back(nodes ...*sharer) {
	for _, m := range nodes {
		m.way.set(nil, false, 0)
	}
}

// end ends the nodes and waits until they make no call any more.
func (c *sharers) end() {
	for _, m := range c.nodes {
		if m.stop != nil {
			m.stop()
		}
		m.done.Wait()
		atRest(c.t, m.store)
	}
	time.Sleep(time.Minute)
}

// between counts the starts from one time up to another.
func (a *arrivals) between(from, to time.Duration) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.starts {
		if d := s.Sub(a.began); d >= from && d < to {
			n++
		}
	}
	return n
}

// worst returns the most starts in a closed window.
func (a *arrivals) worst(per time.Duration) (most int, at time.Duration) {
	slices.SortFunc(a.starts, time.Time.Compare)
	first := 0
	for i, s := range a.starts {
		for s.Sub(a.starts[first]) > per {
			first++
		}
		if n := i - first + 1; n > most {
			most, at = n, s.Sub(a.began)
		}
	}
	return most, at
}

// everySecond requires so many starts in each second from one up to another.
func (c *sharers) everySecond(from, to time.Duration, least, most int) {
	c.t.Helper()
	for s := from; s < to; s += time.Second {
		n := c.between(s, s+time.Second)
		require.GreaterOrEqual(c.t, n, least, "at %v", s)
		require.LessOrEqual(c.t, n, most, "at %v", s)
	}
}

// never requires that no window ever held more than the limit.
func (c *sharers) never() {
	c.t.Helper()
	most, at := c.worst(c.policy.Limit.Per())
	require.LessOrEqual(c.t, most, c.policy.Limit.N(), "at %v", at)
}

// A spread is some nodes to which callers come by turns.
type spread struct {
	*redisstore.Store // the first
	nodes             []*redisstore.Store
	came              atomic.Int64
}

// A spreadTurn is the turn of a caller that came to a node.
type spreadTurn struct {
	store.Turn
	node *redisstore.Store
}

// Book implements [store.Store].
func (s *spread) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	node, own := s.nodes[s.came.Add(1)%int64(len(s.nodes))], *b
	if t, ok := b.Turn.(spreadTurn); ok {
		node, own.Turn = t.node, t.Turn
	}
	g, err := node.Book(ctx, &own)
	if g.Turn != nil {
		g.Turn = spreadTurn{g.Turn, node}
	}
	return g, err
}

// Cancel implements [store.Store].
func (s *spread) Cancel(b *store.Booking, g store.Grant) {
	node, own := s.Store, *b
	if t, ok := b.Turn.(spreadTurn); ok {
		node, own.Turn = t.node, t.Turn
	}
	if t, ok := g.Turn.(spreadTurn); ok {
		node, g.Turn = t.node, t.Turn
	}
	node.Cancel(&own, g)
}

// spreadStores returns stores whose callers are spread over so many nodes, which hear no messages.
func spreadStores(server *redistest.Server, nodes int) func(*testing.T) store.Store {
	return func(t *testing.T) store.Store { return newSpread(t, server, nodes, false) }
}

// newSpread returns a store whose callers are spread over so many nodes.
func newSpread(t *testing.T, server *redistest.Server, nodes int, listens bool) *spread {
	t.Helper()
	client := server.Client(t)
	forgets(t, client)
	s := &spread{}
	for range nodes {
		node := atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock))
		if listens {
			node.Listen()
		}
		s.nodes = append(s.nodes, node)
	}
	s.Store = s.nodes[0]
	return s
}

// TestP5_Shares: the shares of callers get their parts, whether the callers come to one program or to several.
func TestP5_Shares(t *testing.T) {
	soak.WithoutRace(t) // TestVectors has lines with shares
	server := redistest.Shared(t)
	play := func(name string) bool {
		return soak.Most(true, name == "Weights" || name == "Costs" || name == "LightBesideCallersWithoutShare" || name == "HalfLeave")
	}
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { storetest.Shares(t, lineSlack, spreadStores(server, nodes), play) })
	}
}

// TestP5_RandomShares is TestP5_Shares for random scenes. The quick run plays the scenes in which callers of a light share once waited for
// a second beside shares whose costs differ.
func TestP5_RandomShares(t *testing.T) {
	soak.WithoutRace(t) // TestVectors has lines with shares
	server := redistest.Shared(t)
	for _, seed := range soak.Most(seeds(soak.Seeds(12, 0)), []uint64{0, 5}) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomShares(t, lineSlack, spreadStores(server, 1+int(seed%3)), seed)
		})
	}
}

// TestP5_ManyShares: no number of shares makes one of them starve. In one program each share has its part; where each share has its callers in
// one of two programs, programs that come at different times make parts differ.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	const seconds = 40
	sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 300, 10, 300, false, seconds)
	if soak.Most(true, false) {
		sharetest.ManyShares(t, spreadStores(server, 2), 0.35, 300, 10, 300, false, seconds)
		sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 300, 10, 300, true, seconds)
		sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 1000, 3, 1000, false, seconds)
	}
}

// TestP5_LapsedOffers: the shares of a program whose callers come late, so that what they are offered lapses, have no more than those of others.
func TestP5_LapsedOffers(t *testing.T) {
	soak.WithoutRace(t)
	sharetest.ManyShares(t, spreadStores(redistest.Shared(t), 3), 0.1, 101, 10, 300, false, 40)
}

// TestP5_OneByOne: a share with one caller at a time waits for what is booked, a horizon, and for its turn, behind one start of the heap. Its call
// comes with those of others, up to 100 ms later.
func TestP5_OneByOne(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	const seconds = 40
	for _, rate := range soak.Most([]int{20, 40, 100, 1000}, []int{20, 40}) {
		single, _ := sharetest.OneByOne(t, spreadStores(server, 1), rate, 1, 100, seconds)
		t.Logf("%d/s: %.1f starts a second", rate, float64(single)/seconds)
		require.GreaterOrEqual(t, float64(single), seconds/(0.35+3*1.035/float64(rate)))
	}
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each and, in one program, two
// windows' worth, because the room of a horizon is dealt at once and callers come when they are called. In several programs it differs by more in few
// random fleets, by chance: by more than two windows' worth in one of 160, and by more than twelve in one of forty whose programs hear no messages (in one of thirteen with 420 callers).
// So at most a tenth of the fleets that are played may.
func TestP5_FairBound(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	for _, p := range []struct {
		maxCost, quick int
	}{{3, 4}, {20, 10}} {
		t.Run(fmt.Sprintf("one program, costs to %d", p.maxCost), func(t *testing.T) {
			newStore := func(t *testing.T) store.Store { return newSpread(t, server, 1, false) }
			for seed := range uint64(soak.Seeds(40, p.quick)) {
				sharetest.FairBound(t, newStore, seed, p.maxCost, 2)
			}
		})
	}

	for _, p := range []struct {
		listens bool
		callers int
		windows float64
		quick   int
	}{{true, sharetest.ManyCallers, 2, 10}, {false, 120, 12, 4}} {
		t.Run(fmt.Sprintf("3 programs, listens %v", p.listens), func(t *testing.T) {
			newStore := func(t *testing.T) store.Store { return newSpread(t, server, 3, p.listens) }
			fleets, beyond := soak.Seeds(40, p.quick), 0
			for seed := range uint64(fleets) {
				if sharetest.Unfairness(t, newStore, seed, 20, p.callers) > p.windows {
					beyond++
				}
			}
			require.LessOrEqual(t, beyond, max(1, fleets/10))
		})
	}
}

// toldFleet returns programs that share a Redis, and a charge whose limit the upstream tells.
func toldFleet(c *redis.Client, programs int) (all []*redisstore.Store, api store.Charge) {
	for range programs {
		all = append(all, redisstore.NewAt(c, redisstore.Options{}, bubbleClock).Frugal())
	}
	return all, charge("api", store.Told())
}

// tells has a store hear what an answer says.
func tells(t *testing.T, s store.Store, c store.Charge, q store.Quota) {
	t.Helper()
	require.NoError(t, s.Reconcile(t.Context(), c, q))
}

// TestP1_ToldByOneKeptByAll: the answer to one program tells the limit, and from then on all programs together keep it: a
// program that was there before, and one that came later.
func TestP1_ToldByOneKeptByAll(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		forgets(t, c)
		all, api := toldFleet(c, 3)
		for _, s := range all {
			startNow(t, s, 20, api)
		}

		tells(t, all[0], api, store.Quota{Told: store.PerMinute(6)})
		newcomer := redisstore.NewAt(c, redisstore.Options{}, bubbleClock).Frugal()
		for range 2 {
			startNow(t, all[1], 1, api)
			startNow(t, newcomer, 1, api)
			startNow(t, all[0], 1, api)
		}
		for _, s := range append(all, newcomer) {
			require.Equal(t, time.Minute+time.Microsecond, refused(t, s, api).Wait)
			require.Equal(t, store.PerMinute(6), status(t, s, api).Told)
		}
	})
}

// TestP1_ToldCallsFew: a limit that is told with every answer costs a call to Redis now and then, and a limit that changes with
// every answer ten a second at the most.
func TestP1_ToldCallsFew(t *testing.T) {
	for name, tell := range map[string]func(i int) store.Limit{
		"the same": func(int) store.Limit { return store.PerMinute(6000) },
		"another":  func(i int) store.Limit { return store.PerMinute(6000 + i%7) },
	} {
		t.Run(name, func(t *testing.T) {
			onTap(t, nil, func(t *testing.T, c *redis.Client, s *redisstore.Store, tap *tap) {
				s.Frugal()
				forgets(t, c)
				api := charge("api", store.Told())
				tells(t, s, api, store.Quota{Told: tell(0)})
				startNow(t, s, 1, api)

				calls := func() (n int) {
					tap.mu.Lock()
					defer tap.mu.Unlock()
					for _, cmd := range tap.cmds {
						if isReconcile(cmd) {
							n++
						}
					}
					return n
				}
				before := calls()
				for i := range 2000 { // in a minute
					startNow(t, s, 1, api)
					tells(t, s, api, store.Quota{Told: tell(i)})
					time.Sleep(30 * time.Millisecond)
				}
				t.Logf("%d calls for 2000 answers", calls()-before)
				most := map[string]int{"the same": 3, "another": 601}[name]
				require.LessOrEqual(t, calls()-before, most)
			})
		})
	}
}

// TestP12_ToldAndLost: a Redis that lost its data has forgotten what was told, so nothing is held. The next answer that tells
// the limit closes nothing for longer than the limit: the starts that programs remember count in its window.
func TestP12_ToldAndLost(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		forgets(t, c)
		all, api := toldFleet(c, 2)
		limit := store.SlidingWindow(4, 10*time.Second)
		tells(t, all[0], api, store.Quota{Told: limit})
		for _, s := range all {
			startNow(t, s, 2, api)
		}

		time.Sleep(time.Second)
		forgets(t, c)
		for _, s := range all {
			startNow(t, s, 3, api)
			require.Zero(t, status(t, s, api).Told)
		}

		time.Sleep(40 * time.Second)
		tells(t, all[1], api, store.Quota{Told: limit})
		longest := time.Duration(0)
		for i := range 8 {
			longest = max(longest, book(t, all[i%2], api))
		}
		require.LessOrEqual(t, longest, 22*time.Second, fmt.Sprint(longest))
	})
}

// TestP3_EstimatesThatAreTooHigh books ten times what each start costs, which is known 20 ms later. While its cost is
// unknown a start counts with its estimate: so of 2,000 a second λ = 2000/(100·0.02 + 10·1.015) starts a second are
// possible, 82 % of the limit. Starts are booked so near that nine tenths of that, 74 %, are reached.
func TestP3_EstimatesThatAreTooHigh(t *testing.T) {
	soak.WithoutRace(t)
	for _, l := range []store.Limit{store.PerSecond(2000), store.TokenBucket(2000, time.Second, 2000)} {
		for _, workers := range []int{64, 500} {
			synctest.Test(t, func(t *testing.T) {
				requireUsed(t, memstore.New(), l, workers)
			})
			if soak.Most(true, workers == 500 && l.Kind() == store.KindSlidingWindow) { // how near starts are booked is not the store's affair
				runBubble(t, "redis", func(t *testing.T, server *redistest.Server) {
					requireUsed(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock), l, workers)
				})
			}
		}
	}
}

// requireUsed has workers that book 100 for work that costs 10 use a limit of 2,000 a second, without passing it.
func requireUsed(t *testing.T, s store.Store, l store.Limit, workers int) {
	limiter, err := throttle.NewLimiter(s, throttle.Policy{Name: "tokens", Limit: l})
	require.NoError(t, err)

	var mu sync.Mutex
	var starts []time.Time
	end := time.Now().Add(16 * time.Second) // the first callers book far ahead: nothing is known of their costs
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for time.Now().Before(end) {
				p, err := limiter.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 100)
				require.NoError(t, err)
				mu.Lock()
				starts = append(starts, time.Now())
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, p.Tell(t.Context(), throttle.Answer{}.WithCost(10)))
				p.Release()
			}
		})
	}
	all.Wait()

	used, burst := 0, 0
	if l.Kind() == store.KindTokenBucket {
		burst = 2000
	}
	first := 0
	for i, at := range starts {
		for at.Sub(starts[first]) > time.Second {
			first++
		}
		require.LessOrEqual(t, 10*(i-first+1), 2000+burst, "within a second")
		if d := end.Sub(at); 0 < d && d <= 5*time.Second {
			used += 10
		}
	}
	t.Logf("%v, %d workers: %.1f %%", l, workers, float64(used)/100)
	require.GreaterOrEqual(t, used, 5*2000*74/100, "%v, %d workers", l, workers)
}
