package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// crewOnSkewed runs f in a bubble with some nodes of one server, which has a clock of
// its own.
func crewOnSkewed(t *testing.T, count int, f func(t *testing.T, nodes []*cuttable, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c, nodes := &skewed{}, make([]*cuttable, count)
		for i := range nodes {
			client := server.Client(t)
			nodes[i] = &cuttable{Store: redisstore.NewAt(client, nil, c.now)}
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
	server := redistest.Shared(t)
	each(t, seeds(soak.Most(4, 2)), func(t *testing.T, seed uint64) {
		crewOnSkewed(t, 3, func(t *testing.T, nodes []*cuttable, clock *skewed) {
			c := &crew{
				T: t, rng: rand.New(rand.NewPCG(seed, 11)), nodes: nodes,
				client: server.Client(t), runs: make(map[string]int),
			}
			for i := range 2 {
				c.budgets = append(c.budgets, charge(fmt.Sprint("budget ", i), throttle.Concurrency(2+c.rng.IntN(4))))
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
		k := &throttle.Booking{Charges: c.budgets}
		if g := ask(c.T, n, k); g.OK {
			n.Cancel(k, g)
		}
	}
}
