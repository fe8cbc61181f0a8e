package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_GapAfterAStepThatEnded books a start that is far away, and sleeps. The clock
// steps back by less than that, so it shows a later time than when the row was seen
// last. But the program knows that more has passed: the far start is near by now, and
// nobody starts before it.
func TestP9_GapAfterAStepThatEnded(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, s, one))
		require.NoError(t, s.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, s, one, gate))
		time.Sleep(4500 * time.Millisecond)
		c.step(-3500 * time.Millisecond)
		next := book(t, s, one)
		require.GreaterOrEqual(t, next, 500*time.Millisecond+span)
		require.LessOrEqual(t, next, 5*time.Second+span)
	})
}

// TestP9_ACallThatWasHeldIsNoStep holds a call up before it is done, and loses its
// answer. When it is answered again, that was just now, though it was first asked long
// ago: as if the clock had been set back since. It was not, by what the program heard
// before, so a place that is cancelled is given back at once.
func TestP9_ACallThatWasHeldIsNoStep(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, way, calls := server.Client(t), &slowWay{}, 0
		s := atRest(t, redisstore.NewAt(client, nil, way.now))
		require.Zero(t, book(t, s, charge("first", throttle.PerSecond(1))), "the server knows the script then")
		client.AddHook(way)
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			switch calls++; calls {
			case 2: // it was slow, so it was asked back
				way.by.Store(int64(500 * time.Millisecond))
			case 3:
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", throttle.PerMinute(1))
		require.Zero(t, book(t, s, one))
		way.by.Store(int64(500 * time.Millisecond))
		k := booking(one)
		g := ask(t, s, k)
		wait := time.Minute + time.Microsecond - 1010*time.Millisecond
		require.Equal(t, wait, g.Wait)
		require.Equal(t, 500*time.Millisecond, g.Age, "it may have been decided as much earlier")
		s.Cancel(k, g)
		require.Equal(t, wait, book(t, s, one))
	})
}

// onTwoNodes runs f in a bubble with two nodes of one server, which has a clock of its
// own. The new node is to make its first call after the clock was set, so it cannot tell
// that it was.
func onTwoNodes(t *testing.T, f func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), nil, c.now), redisstore.NewAt(server.Client(t), nil, c.now), c)
	})
}

// TestP9_ANewNodeAsksFirstAfterAStepBack books a far start, sleeps until half a second before
// it, and sets the clock back. By the new clock the far start is as far away as when it was
// booked. The new node gets no start in the gap before it.
func TestP9_ANewNodeAsksFirstAfterAStepBack(t *testing.T) {
	onTwoNodes(t, func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, oldNode, one))
		require.NoError(t, oldNode.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, oldNode, one, gate))
		time.Sleep(4500 * time.Millisecond)
		c.step(-time.Hour)
		wait := book(t, newNode, one)
		require.GreaterOrEqual(t, wait, 500*time.Millisecond+span)
		require.LessOrEqual(t, wait, 5*time.Second+span)
	})
}

// TestP9_ANewNodeAsksFirstAfterAStepForward has the new node use another budget before the
// old node calls again. The budget of the old node keeps its true window, whichever node asks,
// and callers of the other budget do not wait for the step to be over.
func TestP9_ANewNodeAsksFirstAfterAStepForward(t *testing.T) {
	onTwoNodes(t, func(t *testing.T, oldNode, newNode *redisstore.Store, c *skewed) {
		two, other := charge("two", throttle.PerHour(2)), charge("other", throttle.PerSecond(1))
		require.Zero(t, book(t, oldNode, two))
		time.Sleep(50 * time.Minute)
		require.Zero(t, book(t, oldNode, two))
		time.Sleep(5 * time.Minute)
		c.step(10 * time.Minute)
		require.Zero(t, book(t, newNode, other))
		require.Equal(t, 5*time.Minute+time.Microsecond, book(t, oldNode, two))
		require.Equal(t, span, book(t, newNode, other))
		require.Equal(t, 55*time.Minute+time.Microsecond, book(t, newNode, two))
	})
}

// TestP9_AMarkOfTheOldClock sets the clock back by 3 s. When the first start is over it is
// given back: its mark lies in the middle of the second one, which stays.
func TestP9_AMarkOfTheOldClock(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		two := charge("two", throttle.LeakyBucket(2, 10*time.Second))
		k := booking(two)
		first := ask(t, s, k)
		require.True(t, first.OK)
		refused(t, s, two)
		c.step(-3 * time.Second)
		wait := book(t, s, two)
		require.GreaterOrEqual(t, wait, 5*time.Second)
		time.Sleep(8 * time.Second)
		s.Cancel(k, first)
		require.GreaterOrEqual(t, book(t, s, two), wait+5*time.Second-8*time.Second)
	})
}

// TestP9_WindowsGoOnCounting sets the clock from one fixed window into another. What
// counted goes on counting until that one ends; what did not, does not again.
func TestP9_WindowsGoOnCounting(t *testing.T) {
	each(t, []time.Duration{4 * time.Second, -9 * time.Second, time.Hour + 4*time.Second, -time.Hour - 9*time.Second}, func(t *testing.T, by time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			two := charge("two", throttle.FixedWindow(2, 10*time.Second))
			time.Sleep(4 * time.Second)
			board(t, s, two)
			board(t, s, two)
			time.Sleep(11 * time.Second) // five seconds into the next one
			board(t, s, two)
			time.Sleep(3 * time.Second)
			c.step(by)
			board(t, s, two)
			_, end := two.Limit.Window(time.UnixMicro(c.now()))
			require.Equal(t, end.Sub(time.UnixMicro(c.now())), book(t, s, two))
		})
	})
}

// TestP6_SettleAfterAStepBack: where a start lies cannot be told any more, so it
// stays. Only what it cost more than was booked is added.
func TestP6_SettleAfterAStepBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cost, sum int }{{1, 6}, {5, 6}, {7, 8}} {
		t.Run(fmt.Sprint(test.cost), func(t *testing.T) {
			onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
				five := charge("five", throttle.PerHour(10))
				one := five
				five.Cost = 5
				k := booking(five)
				g := ask(t, s, k)
				c.step(-time.Second)
				book(t, s, one)
				require.NoError(t, s.Settle(t.Context(), k, g, []int{test.cost}))
				require.Equal(t, test.sum, booked(t, s, one))
			})
		})
	}
}
