package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A cuttable is a node whose way to Redis can be cut.
type cuttable struct {
	*redisstore.Store
	says
	trace *lineTrace // nil: its calls are not checked
}

func (n *cuttable) cut() { n.set(errAway) }

func (n *cuttable) mend() { n.err.Store(nil) }

// nodesOf returns some nodes in virtual time.
func nodesOf(t *testing.T, server *redistest.Server, count int) []*cuttable {
	nodes := make([]*cuttable, count)
	for i := range nodes {
		client := server.Client(t)
		nodes[i] = &cuttable{Store: redisstore.NewAt(client, redisstore.Options{}, bubbleClock)}
		client.AddHook(nodes[i])
	}
	return nodes
}

// inFlight runs a test in virtual time with two nodes and a budget of n in flight.
func inFlight(t *testing.T, n int, test func(t *testing.T, a, b *cuttable, c store.Charge)) {
	t.Helper()
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		nodes := nodesOf(t, server, 2)
		test(t, nodes[0], nodes[1], charge("flying", store.Concurrency(n)))
		time.Sleep(2 * time.Second) // calls that are repeated come to their end
	})
}

// board books what must have room at once.
func board(t *testing.T, s store.Store, charges ...store.Charge) (*store.Booking, store.Grant) {
	t.Helper()
	k := booking(charges...)
	g := ask(t, s, k)
	require.True(t, g.OK, "%+v", g)
	require.Zero(t, g.Wait)
	return k, g
}

// lineUp books what must not have room.
func lineUp(t *testing.T, s store.Store, charges ...store.Charge) (*store.Booking, store.Grant) {
	t.Helper()
	k := booking(charges...)
	g := ask(t, s, k)
	require.False(t, g.OK)
	require.NotNil(t, g.Ready)
	require.NotZero(t, g.Handle.Place)
	return k, g
}

// woken reports whether the place's turn comes within d.
func woken(g store.Grant, d time.Duration) bool {
	over, stop := bubble.After(d)
	defer stop()
	select {
	case <-g.Ready:
		return true
	case <-over:
	}
	select {
	case <-g.Ready:
		return true
	default:
		return false
	}
}

// soon is how long a message takes in virtual time, at the most.
const soon = 100 * time.Millisecond

// again books with the place in line, which must have room.
func again(t *testing.T, s store.Store, k *store.Booking, g store.Grant) store.Grant {
	t.Helper()
	k.Instead = g.Handle
	g = ask(t, s, k)
	k.Instead = store.Handle{}
	require.True(t, g.OK)
	require.Zero(t, g.Wait)
	return g
}

// deafen makes a client lose the answers of script calls after they were made, as many as
// it is told.
func deafen(c *redis.Client) (lose *atomic.Int64) {
	lose = new(atomic.Int64)
	c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
		if err := next(); lose.Add(-1) < 0 {
			return err
		}
		return failing(cmd, errAway)
	}))
	return lose
}

// TestP8_InFlightLateCall repeats a call long after the next ones, when Redis has
// forgotten which calls there were. It changes nothing.
func TestP8_InFlightLateCall(t *testing.T) {
	onTap(t, nil, func(t *testing.T, client *redis.Client, s *redisstore.Store, tap *tap) {
		two := charge("two", store.Concurrency(2))
		board(t, s, two)
		k, g := board(t, s, two)
		late := tap.cmds[len(tap.cmds)-1]
		s.Release(k, g)
		require.NoError(t, client.Del(t.Context(), late.Args()[3].(string)).Err())
		require.NoError(t, client.Do(t.Context(), late.Args()...).Err())
		require.Equal(t, 1, status(t, s, two).Used)
	})
}

// TestP1_InFlightInTwoLanes uses one budget in two groups, as two tables of
// policies do. A call that does not know yet what the other queue's was granted is
// not made.
func TestP1_InFlightInTwoLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		two := charge("two", store.Concurrency(2))
		first := bookAside(t.Context(), s, booking(inGroup("x", two)))
		synctest.Wait()
		second := bookAside(t.Context(), s, booking(inGroup("y", two)))
		synctest.Wait()
		tap.open()
		require.True(t, (*first).grant.OK)
		require.True(t, (*second).grant.OK)
		refused(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock), two)
	})
}

// TestP7_InFlightWaiterLeavesWhileAway ends the context of one in line who books
// again, while Redis is away. The place is gone with it.
func TestP7_InFlightWaiterLeavesWhileAway(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one store.Charge) {
		held, g := board(t, b, one)
		k, place := lineUp(t, a, one)
		_, next := lineUp(t, a, one)
		b.Release(held, g)
		require.True(t, woken(place, soon))
		a.cut()
		ctx := forAtMost(t, time.Second)
		k.Instead = place.Handle
		_, err := a.Book(ctx, k)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a.mend()
		require.True(t, woken(next, 10*time.Second))
	})
}

// TestP7_InFlightCallerLeaves ends the context of a caller whose call is on its way.
// What it was given is given back.
func TestP7_InFlightCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		other := redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)
		one := charge("one", store.Concurrency(1))
		for _, full := range []bool{false, true} {
			if full {
				board(t, other, one)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Book(ctx, booking(one))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			refused(t, other, one)
			tap.pass <- struct{}{}
			tap.pass <- struct{}{} // of the call that gives back
			synctest.Wait()
			st := status(t, other, one)
			require.Zero(t, st.Waiting)
			if !full {
				require.Zero(t, st.Used)
			}
		}
		close(tap.pass)
	})
}

// TestP5_InFlightLongLines has many more waiters than a node states. All are
// served in the order in which they came, some at a time, across the fleet.
func TestP5_InFlightLongLines(t *testing.T) {
	inFlight(t, 5, func(t *testing.T, a, b *cuttable, five store.Charge) {
		var running []seat
		for range 5 {
			k, g := board(t, a, five)
			running = append(running, seat{a, k, g})
		}
		var line []seat
		for i := range 90 { // thirty of one node, thirty of the other, thirty mixed
			s := seat{node: b}
			if i < 30 || i >= 60 && i%2 == 0 {
				s.node = a
			}
			s.k, s.g = lineUp(t, s.node, five)
			line = append(line, s)
			time.Sleep(time.Millisecond)
		}
		for len(line) > 0 {
			for _, s := range running[:3] {
				s.node.Release(s.k, s.g)
			}
			running = running[3:]
			time.Sleep(soon)
			for i, s := range line {
				require.Equal(t, i < 3, woken(s.g, 0), "%d of %d", i, len(line))
			}
			for _, s := range line[:3] {
				s.g = again(t, s.node, s.k, s.g)
				running = append(running, s)
			}
			line = line[3:]
		}
	})
}

// TestP10_InFlightMemory has large fleets that hold and wait. The key stays small
// and expires.
func TestP10_InFlightMemory(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	fleets := map[int]int{1: 300, 40: 30, 100: 5, 120: 0}
	for nodes, waiters := range soak.Most(fleets, map[int]int{1: 300, 100: 5}) {
		runBubble(t, fmt.Sprint(nodes), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
			big := charge("big", store.Concurrency(nodes))
			var fleet []*redisstore.Store
			for range nodes {
				s := redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
				s.Disconnect()
				board(t, s, big)
				fleet = append(fleet, s)
			}
			key := fleet[0].LeasesKey(big.Budget)
			for range 2 {
				for _, s := range fleet {
					for range waiters {
						go s.Book(t.Context(), booking(big)) // a crowd that shares calls
					}
					synctest.Wait()
				}
				size, err := client.MemoryUsage(t.Context(), key).Result()
				require.NoError(t, err)
				require.LessOrEqual(t, size, int64(4096))
				time.Sleep(10 * time.Second) // all have stated themselves again
			}
			left := lifetime(t, client, key)
			require.Positive(t, left)

			// The client repeats calls on a busy machine, and no call may be left when the bubble ends.
			for slices.ContainsFunc(fleet, func(s *redisstore.Store) bool { return s.Running() > 0 }) {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// TestInFlight_MayNotPublish has a user without permission for channels. All works,
// a little slower.
func TestInFlight_MayNotPublish(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).Do(t.Context(),
		"ACL", "SETUSER", "quiet", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	synctest.Test(t, func(t *testing.T) {
		o := server.Options()
		o.Username, o.Password = "quiet", "secret"
		client := clientOf(t, o)
		a, b := redisstore.NewAt(client, redisstore.Options{}, bubbleClock), redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
		a.Disconnect()
		one := charge("one", store.Concurrency(1))
		k, g := board(t, b, one)
		waiting, place := lineUp(t, a, one)
		b.Release(k, g)
		require.True(t, woken(place, 1500*time.Millisecond+soon))
		again(t, a, waiting, place)
	})
}

// TestInFlight_CutSubscription cuts the connection that messages come on, while
// somebody waits, and lets room become free at once. The waiter is called when the
// connection is there again, though nothing is renewed.
func TestInFlight_CutSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	client := server.Client(t)
	a, b := redisstore.New(client, redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
	a.NeverRenew()
	one := charge("one", store.Concurrency(1))
	k, g := board(t, b, one)
	for range 3 {
		waiting, place := lineUp(t, a, one)
		listeners(t, client, 1)
		require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		b.Release(k, g)
		<-place.Ready
		g = again(t, a, waiting, place)
		a.Release(waiting, g)
		k, g = board(t, b, one)
	}
	b.Release(k, g)
}

// listeners waits until there are so many subscriptions.
func listeners(t *testing.T, client *redis.Client, want int) {
	t.Helper()
	for {
		channels, err := client.PubSubChannels(t.Context(), "*wake:*").Result()
		require.NoError(t, err)
		if len(channels) == want {
			return
		}
	}
}

// TestP15_NobodyListensWithoutNeed ends the subscription after the last waiter has
// left.
func TestP15_NobodyListensWithoutNeed(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	client := server.Client(t)
	s := redisstore.New(client, redisstore.Options{})
	one := charge("one", store.Concurrency(1))
	held, g := board(t, s, one)
	require.Zero(t, s.Subscriptions(), "who holds need not listen")
	k, place := lineUp(t, s, one)
	listeners(t, client, 1)
	s.Cancel(k, place)
	listeners(t, client, 0)
	require.Zero(t, s.Subscriptions())
	s.Release(held, g)
}

// crewOnSkewed runs f in a bubble with some nodes of one server, which has a clock of
// its own.
func crewOnSkewed(t *testing.T, count int, f func(t *testing.T, nodes []*cuttable, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c, nodes := &skewed{}, make([]*cuttable, count)
		for i := range nodes {
			client := server.Client(t)
			nodes[i] = &cuttable{Store: redisstore.NewAt(client, redisstore.Options{}, c.now)}
			client.AddHook(nodes[i])
		}
		f(t, nodes, c)
		time.Sleep(2 * time.Second) // calls that are repeated come to their end
	})
}

// TestP9_InFlightRandomSteps lets three nodes book, release and leave, while the
// server's clock steps forward and back. Never do more run than may, and at last
// everybody is served.
func TestP9_InFlightRandomSteps(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	each(t, seeds(soak.Seeds(4, 2)), func(t *testing.T, seed uint64) {
		crewOnSkewed(t, 3, func(t *testing.T, nodes []*cuttable, clock *skewed) {
			c := &crew{
				T: t, rng: rand.New(rand.NewPCG(seed, 11)), nodes: nodes,
				client: server.Client(t), runs: make(map[string]int),
			}
			for i := range 2 {
				c.budgets = append(c.budgets, charge(fmt.Sprint("budget ", i), store.Concurrency(2+c.rng.IntN(4))))
			}
			for range 350 {
				c.move(clock)
			}
			c.end()
		})
	})
}

// move is a step of a crew that loses nothing and is never cut off, but for the clock.
func (c *crew) move(clock *skewed) {
	switch r := c.rng.IntN(100); {
	case r < 45:
		c.book()
	case r < 80:
		c.release()
	case r < 88:
		c.leave()
	case r < 92:
		c.lookAround() // or the first to ask would be strangers
		far := []time.Duration{100 * time.Millisecond, 5 * time.Second, 23 * time.Second, time.Hour, 24 * time.Hour}[c.rng.IntN(5)]
		by := time.Duration(c.rng.Int64N(int64(far))).Truncate(time.Microsecond)
		if c.rng.IntN(2) == 0 {
			by = -by
		}
		clock.step(by)
	}
	time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(300*time.Millisecond)))
	c.comeBack()
}

// lookAround lets every node hear of every budget.
func (c *crew) lookAround() {
	for _, n := range c.nodes {
		k := &store.Booking{Charges: c.budgets}
		if g := ask(c.T, n, k); g.OK {
			n.Cancel(k, g)
		}
	}
}

// A crew is some nodes that use two budgets at random, and the truth about what
// runs.
type crew struct {
	*testing.T
	rng     *rand.Rand
	nodes   []*cuttable
	client  *redis.Client
	budgets []store.Charge
	running []seat
	waiting []seat
	runs    map[string]int // what runs in each budget
}

// A seat is one booking, in the node that made it.
type seat struct {
	node *cuttable
	k    *store.Booking
	g    store.Grant
}

// TestP1_InFlightWhateverHappens lets three nodes book, release, leave and die
// for a moment, loses messages, and empties Redis now and then. Never do more run
// than may, and at last everybody who waits for one budget is served.
func TestP1_InFlightWhateverHappens(t *testing.T) {
	eachBubble(t, seeds(soak.Seeds(6, 1)), func(t *testing.T, server *redistest.Server, seed uint64) {
		c := &crew{
			T: t, rng: rand.New(rand.NewPCG(seed, 7)), nodes: nodesOf(t, server, 3),
			client: server.Client(t), runs: make(map[string]int),
		}
		require.NoError(t, c.client.FlushDB(t.Context()).Err())
		c.nodes[seed%3].Disconnect()
		for i := range 2 {
			c.budgets = append(c.budgets, charge(fmt.Sprint("budget ", i), store.Concurrency(2+c.rng.IntN(4))))
		}
		for range 400 {
			c.step()
		}
		c.end()
	})
}

// step does one operation and lets some time pass.
func (c *crew) step() {
	switch r := c.rng.IntN(100); {
	case r < 45:
		c.book()
	case r < 80:
		c.release()
	case r < 88:
		c.leave()
	case r < 92:
		c.blackout()
	case r < 94:
		c.forget()
	}
	time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(300*time.Millisecond)))
	c.comeBack()
}

// book asks for one or two budgets.
func (c *crew) book() {
	k := &store.Booking{MaxWait: -1}
	if c.rng.IntN(4) == 0 {
		k.MaxWait = 0
	}
	for _, i := range c.rng.Perm(2)[:1+c.rng.IntN(2)] {
		ch := c.budgets[i]
		ch.Cost = 1 + c.rng.IntN(2)
		ch.KeepFree = c.rng.IntN(ch.Limit.N() - ch.Cost + 1)
		k.Charges = append(k.Charges, ch)
	}
	c.try(seat{node: c.nodes[c.rng.IntN(3)], k: k})
}

// try books and keeps the books.
func (c *crew) try(s seat) {
	s.k.Instead = store.Handle{}
	if s.g.Ready != nil {
		s.k.Instead = s.g.Handle
	}
	s.g = ask(c.T, s.node, s.k)
	switch {
	case s.g.OK:
		c.count(s, 1)
		c.running = append(c.running, s)
	case s.g.Ready != nil:
		c.waiting = append(c.waiting, s)
	}
}

// count adds to what runs, or takes off.
func (c *crew) count(s seat, sign int) {
	for _, ch := range s.k.Charges {
		name := ch.Budget.Policy
		c.runs[name] += sign * ch.Cost
		require.LessOrEqual(c, c.runs[name], ch.Limit.N(), "%s at %v", name, time.Now())
	}
}

// release ends a request.
func (c *crew) release() {
	if len(c.running) > 0 {
		s := c.take(&c.running)
		c.count(s, -1)
		s.node.Release(s.k, s.g)
	}
}

// leave gives up a place in line.
func (c *crew) leave() {
	if len(c.waiting) > 0 {
		s := c.take(&c.waiting)
		s.node.Cancel(s.k, s.g)
	}
}

// take takes one out of a list.
func (c *crew) take(list *[]seat) seat {
	i := c.rng.IntN(len(*list))
	s := (*list)[i]
	*list = append((*list)[:i], (*list)[i+1:]...)
	return s
}

// blackout cuts a node off, for less than its lease.
func (c *crew) blackout() {
	n := c.nodes[c.rng.IntN(3)]
	n.cut()
	time.Sleep(time.Duration(c.rng.IntN(14)) * time.Second)
	n.mend()
	time.Sleep(2 * time.Second)
}

// forget empties Redis. The nodes have all used the budgets lately, as in a
// fleet that works.
func (c *crew) forget() {
	for _, n := range c.nodes {
		refusedOrNot := &store.Booking{Charges: c.budgets}
		if g := ask(c.T, n, refusedOrNot); g.OK {
			n.Cancel(refusedOrNot, g)
		}
	}
	require.NoError(c, c.client.FlushDB(c.Context()).Err())
}

// comeBack lets the called callers book again.
func (c *crew) comeBack() {
	waiting := c.waiting
	c.waiting = nil
	for _, s := range waiting {
		select {
		case <-s.g.Ready:
			c.try(s)
		default:
			c.waiting = append(c.waiting, s)
		}
	}
}

// end lets all requests end, until nobody waits and nothing runs. Who waits for
// two budgets leaves: such requests can be in each other's way for long, because
// none keeps room in one line while it stands in the other.
func (c *crew) end() {
	for _, s := range c.waiting {
		if len(s.k.Charges) > 1 {
			s.node.Cancel(s.k, s.g)
		}
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(s seat) bool { return len(s.k.Charges) > 1 })
	for last := time.Now().Add(time.Hour); len(c.waiting)+len(c.running) > 0; {
		require.True(c, time.Now().Before(last), "%d still wait", len(c.waiting))
		c.comeBack()
		c.release()
		time.Sleep(time.Second)
	}
	for _, ch := range c.budgets {
		require.Zero(c, booked(c.T, c.nodes[0], ch))
	}
}
