package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A skewed clock is ahead of the bubble's, or behind.
type skewed struct{ by atomic.Int64 }

func (c *skewed) now() int64 { return time.Now().Add(time.Duration(c.by.Load())).UnixMicro() }

func (c *skewed) step(by time.Duration) { c.by.Add(int64(by)) }

// onSkewed runs f in a bubble with a store whose server has a clock of its own.
func onSkewed(t *testing.T, f func(t *testing.T, s *redisstore.Store, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), nil, c.now), c)
	})
}

const span = time.Second + time.Microsecond // of one per second

func TestP9_StepBack(t *testing.T) {
	each(t, []time.Duration{time.Microsecond, time.Second, time.Hour}, func(t *testing.T, step time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			one := charge("one", throttle.PerSecond(1))
			require.Zero(t, book(t, s, one))
			c.step(-step)
			require.Equal(t, span, book(t, s, one), "no time has passed")
			require.Equal(t, 2*span, book(t, s, one))
			c.step(-step)
			require.Equal(t, 3*span, book(t, s, one), "the queue and a window")
			time.Sleep(4 * span)
			require.Zero(t, book(t, s, one), "the queue is over")
			c.step(-step)
			require.Equal(t, span, book(t, s, one), "what was forgotten is as long ago as before")
		})
	})
}

func TestP9_StepForward(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one := charge("one", throttle.PerSecond(1))
		require.Zero(t, book(t, s, one))
		c.step(time.Microsecond)
		require.Equal(t, span-time.Microsecond, book(t, s, one), "as if that time had passed")
		c.step(time.Hour)
		require.Equal(t, 2*span-time.Microsecond, book(t, s, one), "the queue and a window")
		time.Sleep(4 * span)
		require.Zero(t, book(t, s, one), "the queue is over")
	})
}

// TestP9_GapAfterStepBack books a start that is far away, sleeps, and steps back.
// Nobody knows how long the sleep was, so nobody starts before the far one, which
// may be near by now.
func TestP9_GapAfterStepBack(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one, gate := charge("one", throttle.PerSecond(1)), charge("gate", throttle.PerSecond(1))
		require.Zero(t, book(t, s, one))
		time.Sleep(time.Second)
		require.NoError(t, s.Pause(t.Context(), gate, 5*time.Second))
		require.Equal(t, 5*time.Second, book(t, s, one, gate))
		time.Sleep(3 * time.Second)
		c.step(-time.Hour)
		require.Equal(t, 5*time.Second+span, book(t, s, one))
	})
}

// TestP9_PenaltyStepsBack keeps a penalty as long as it was, not an hour longer.
func TestP9_PenaltyStepsBack(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one := charge("one", throttle.PerSecond(1))
		require.NoError(t, s.Pause(t.Context(), one, time.Minute))
		c.step(-time.Hour)
		require.Equal(t, time.Minute, book(t, s, one))
	})
}

// TestP9_OldMarks gives back places whose marks are from before a step. They
// may point at another's start, so they stay taken until all that was booked
// before the step is over.
func TestP9_OldMarks(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		one := charge("one", throttle.PerSecond(1))
		k := booking(one)
		grant := func() throttle.Grant {
			g := ask(t, s, k)
			return g
		}
		first, second := grant(), grant()
		require.Equal(t, span, second.Wait)
		c.step(-span)
		third := grant()
		require.Equal(t, 2*span, third.Wait)
		require.Equal(t, second.Handle.Start, third.Handle.Start, "two starts with one name")

		s.Cancel(k, second)
		s.Cancel(k, first)
		require.Equal(t, 3*span, book(t, s, one))
		time.Sleep(2 * span)
		require.Equal(t, 2*span, book(t, s, one))

		time.Sleep(2 * span)
		g := grant()
		require.Equal(t, span, g.Wait)
		s.Cancel(k, g)
		require.Equal(t, span, book(t, s, one), "marks are good again")
	})
}

// TestP9_OldMarkOfPastStart gives back, after a step, a grant whose start is over
// but was not used. Its mark lies among the starts of others by then.
func TestP9_OldMarkOfPastStart(t *testing.T) {
	onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
		const ms = time.Millisecond
		wide := charge("wide", throttle.PerSecond(200))
		k := booking(wide)
		unused := ask(t, s, k)
		time.Sleep(10 * ms)
		c.step(-100 * ms)
		require.NoError(t, s.Pause(t.Context(), wide, 0))
		time.Sleep(90 * ms)
		startNow(t, s, 199, wide)
		s.Cancel(k, unused)
		require.Equal(t, span-90*ms, book(t, s, wide))
		require.Equal(t, span, book(t, s, wide))
	})
}

// TestP9_WrongLocalClock lets the program believe in another day than the
// server. Calendar windows are the server's, and the program learns its time
// with one call more.
func TestP9_WrongLocalClock(t *testing.T) {
	t.Parallel()
	shanghai := time.FixedZone("UTC+8", 8*60*60)
	for by, calls := range map[time.Duration]int{
		-1000 * time.Hour: 5, -25 * time.Hour: 4, 25 * time.Hour: 4, 1000 * time.Hour: 5,
	} {
		runBubble(t, by.String(), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
			_, tap := loaded(t, client, nil)
			c := &skewed{}
			c.step(by + 30*time.Minute) // not at a full hour
			s := redisstore.NewAt(client, nil, c.now)
			day := charge("day", throttle.CalendarWindow(1, throttle.Day, shanghai))

			require.Zero(t, book(t, s, day))
			_, end := day.Limit.Window(time.UnixMicro(c.now()))
			midnight := end.Sub(time.UnixMicro(c.now()))
			require.Equal(t, midnight, book(t, s, day))
			require.Equal(t, midnight+24*time.Hour, book(t, s, day))
			require.Equal(t, throttle.Status{Limit: day.Limit, Used: 1, Booked: 2, Waiting: 2, Wait: midnight + 48*time.Hour}, status(t, s, day))
			require.Len(t, tap.names(), calls)
		})
	}
}

// TestP4_FarCalendarWindows queues for a hundred days: edges that reach twice as
// far each time keep the calls few.
func TestP4_FarCalendarWindows(t *testing.T) {
	onTap(t, nil, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		day := charge("day", throttle.CalendarWindow(1, throttle.Day, time.UTC))
		for i := range 100 {
			require.Equal(t, time.Duration(i)*24*time.Hour, book(t, s, day))
			require.LessOrEqual(t, len(tap.names()), 7)
		}
	})
}
