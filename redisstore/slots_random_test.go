package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
)

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
	eachBubble(t, seeds(soak.Most(6, 1)), func(t *testing.T, server *redistest.Server, seed uint64) {
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

// comeBack lets those book again who were called.
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
