package redisstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// crewOnSkewed runs f in a bubble with some nodes of one server, which has a clock of
// its own.
func crewOnSkewed(t *testing.T, count int, f func(t *testing.T, nodes []*cuttable, c *skewed)) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
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
	t.Parallel()
	for _, step := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 21 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
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
}

// TestInFlight_SilenceEndsLeases lets a node die that holds all, and nobody else call
// for a while. Half a minute after its death at the latest its room is free for who
// asks, and for who waits.
func TestInFlight_SilenceEndsLeases(t *testing.T) {
	t.Parallel()
	for silent := range 30 {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			inFlight(t, func(t *testing.T, a, b *cuttable) {
				one := charge("one", throttle.Concurrency(1))
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
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
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
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		nodes := nodesOf(t, server, 2)
		two := charge("two", throttle.Concurrency(2))
		board(t, nodes[0], two)
		k, g := board(t, nodes[1], two)
		nodes[1].Release(k, g)
		time.Sleep(time.Second)
		require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
		lost := time.Now()
		_, place := lineUp(t, nodes[1], two)
		require.True(t, woken(place, time.Minute))
		require.Equal(t, quiet, time.Since(lost))
	})
}

// TestInFlight_LeaseEndsForThoseWhoWait serves who waits when the lease of a dead node
// ends, not with the next renewal.
func TestInFlight_LeaseEndsForThoseWhoWait(t *testing.T) {
	t.Parallel()
	inFlight(t, func(t *testing.T, a, b *cuttable) {
		one := charge("one", throttle.Concurrency(1))
		board(t, b, one)
		b.cut()
		died := time.Now()
		time.Sleep(3500 * time.Millisecond)
		_, place := lineUp(t, a, one)
		require.True(t, woken(place, time.Minute))
		require.Equal(t, 22*time.Second, time.Since(died))
	})
}
