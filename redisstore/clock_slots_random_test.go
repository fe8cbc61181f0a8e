package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP9_InFlightRandomSteps lets three nodes book, release and leave, while the
// server's clock steps forward and back. Never do more run than may, and at last
// everybody is served.
func TestP9_InFlightRandomSteps(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
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
