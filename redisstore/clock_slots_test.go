package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// TestP9_SeatsOutliveAStepForward sets the server's clock forward while all seats
// are held. Nobody is given one, whoever asks first; but a stranger who is the first
// to ask when the key is gone cannot know.
func TestP9_SeatsOutliveAStepForward(t *testing.T) {
	t.Parallel()
	const holder, knows, stranger = 0, 1, 2
	steps := []time.Duration{time.Second, 10 * time.Second, 17 * time.Second, 22*time.Second + time.Millisecond, time.Minute, time.Hour}
	for _, step := range steps {
		for first, name := range []string{"the holder", "one who asked before", "a stranger"} {
			for _, after := range []time.Duration{0, 5 * time.Second} {
				if first == stranger && step+after > 23*time.Second {
					continue
				}
				t.Run(fmt.Sprint(step, " ", name, " after ", after), func(t *testing.T) {
					crewOnSkewed(t, 3, func(t *testing.T, nodes []*cuttable, c *skewed) {
						two := charge("two", throttle.Concurrency(2))
						k, g := board(t, nodes[holder], two)
						board(t, nodes[holder], two)
						refused(t, nodes[knows], two)
						time.Sleep(after)
						c.step(step)
						refused(t, nodes[first], two)
						for range 60 {
							time.Sleep(time.Second)
							refused(t, nodes[(first+1)%3], two)
							refused(t, nodes[first], two)
						}
						nodes[holder].Release(k, g)
						board(t, nodes[stranger], two)
					})
				})
			}
		}
	}
}

// TestP9_SeatsOutliveSteps has the clock go to and fro all the time.
func TestP9_SeatsOutliveSteps(t *testing.T) {
	each(t, []time.Duration{100 * time.Millisecond, 3 * time.Second, 21 * time.Second}, func(t *testing.T, step time.Duration) {
		crewOnSkewed(t, 3, func(t *testing.T, nodes []*cuttable, c *skewed) {
			one := charge("one", throttle.Concurrency(1))
			k, g := board(t, nodes[0], one)
			for i := range 600 {
				c.step(step)
				step = -step
				time.Sleep(100 * time.Millisecond)
				refused(t, nodes[1+i%2], one)
			}
			nodes[0].Release(k, g)
			board(t, nodes[1], one)
		})
	})
}

// TestInFlight_SilenceEndsLeases lets a node die that holds all, and nobody else call
// for a while. Half a minute after its death at the latest its room is free for who
// asks, and for who waits.
func TestInFlight_SilenceEndsLeases(t *testing.T) {
	t.Parallel()
	for silent := range 30 {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
				board(t, b, one)
				b.cut()
				died := time.Now()
				time.Sleep(time.Duration(silent)*time.Second + 900*time.Millisecond)
				k := booking(one)
				g := ask(t, a, k)
				if !g.OK {
					require.True(t, woken(g, time.Until(died.Add(aged))))
					again(t, a, k, g)
				}
			})
		})
	}
}

// TestInFlight_RespiteIsGivenOnce asks again and again, with long pauses: that does
// not keep a dead node's lease alive.
func TestInFlight_RespiteIsGivenOnce(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		board(t, b, one)
		b.cut()
		time.Sleep(21 * time.Second)
		refused(t, a, one)
		time.Sleep(quiet + time.Millisecond)
		board(t, a, one)
	})
}

// TestInFlight_WaitsNoLongerThanQuiet loses the budget. Who waits is served as soon as
// all that live have stated themselves, not with the renewal after that.
func TestInFlight_WaitsNoLongerThanQuiet(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		nodes := nodesOf(t, server, 2)
		two := charge("two", throttle.Concurrency(2))
		board(t, nodes[0], two)
		k, g := board(t, nodes[1], two)
		nodes[1].Release(k, g)
		time.Sleep(time.Second)
		forgets(t, server.Client(t))
		lost := time.Now()
		_, place := lineUp(t, nodes[1], two)
		require.True(t, woken(place, time.Minute))
		require.Equal(t, quiet, time.Since(lost))
	})
}

// TestInFlight_LeaseEndsForThoseWhoWait serves who waits when the lease of a dead node
// ends, not with the next renewal.
func TestInFlight_LeaseEndsForThoseWhoWait(t *testing.T) {
	inFlight(t, 1, func(t *testing.T, a, b *cuttable, one throttle.Charge) {
		board(t, b, one)
		b.cut()
		died := time.Now()
		time.Sleep(3500 * time.Millisecond)
		_, place := lineUp(t, a, one)
		require.True(t, woken(place, time.Minute))
		require.Equal(t, 22*time.Second, time.Since(died))
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
