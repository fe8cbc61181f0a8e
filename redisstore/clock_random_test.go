package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_RandomStepsBack lets callers come, wait, start, and give up before
// their start or a while after, while the server's clock steps back again and
// again. Their starts are judged by the bubble's time, which never does.
func TestP9_RandomStepsBack(t *testing.T) {
	t.Parallel()
	limits := []throttle.Limit{
		throttle.PerSecond(1), throttle.PerSecond(5), throttle.PerSecond(60), throttle.SlidingWindow(300, time.Second),
		throttle.LeakyBucket(7, time.Second),
	}
	for seed := range uint64(soak.Most(15, 4)) {
		limit := limits[seed%uint64(len(limits))]
		t.Run(fmt.Sprint(seed, " ", limit), func(t *testing.T) {
			onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
				steppingBack(t, s, c, limit, rand.New(rand.NewPCG(seed, 9)))
			})
		})
	}
}

func steppingBack(t *testing.T, s *redisstore.Store, c *skewed, limit throttle.Limit, rng *rand.Rand) {
	const patience = 3 * time.Second
	var starts log
	look := func() {
		synctest.Wait()
		require.NoError(t, s.Pause(t.Context(), charge("limited", limit), 0))
	}
	for range 600 {
		switch r := rng.IntN(100); {
		case r < 60:
			k := bookingFor(patience, charge("limited", limit))
			k.Charges[0].Cost = 1 + rng.IntN(min(limit.N(), 3))
			g := ask(t, s, k)
			if !g.OK {
				break
			}
			// Most use their start, some give up before it or a little after.
			giveUp, at := rng.IntN(4) == 0, g.Wait
			if giveUp {
				at = time.Duration(rng.Int64N(int64(g.Wait + 300*time.Millisecond)))
			}
			go func() {
				if time.Sleep(at); giveUp {
					s.Cancel(k, g)
				} else {
					starts.add(k.Charges[0].Cost)
				}
			}()
		case r < 63:
			back := []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second, time.Hour}[rng.IntN(4)]
			look() // a step that ends before anybody asks again is not seen
			c.step(-time.Duration(rng.Int64N(int64(back))).Truncate(time.Microsecond) - time.Microsecond)
			look()
		default:
			synctest.Wait()
			time.Sleep(time.Duration(rng.IntN(200_000)) * time.Microsecond)
		}
	}
	rest(2 * patience)
	require.Greater(t, len(starts.all), 10)
	starts.requireWithin(t, limit)

	require.Zero(t, ask(t, s, booking(charge("limited", limit))).Wait, "everything is over")
}

// A log is what really started, in order.
type log struct {
	mu  sync.Mutex
	all []started
}

type started struct {
	at   time.Time
	cost int
}

func (l *log) add(cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, started{time.Now(), cost})
}

// requireWithin counts each closed interval that begins with a start; a pace is
// checked between neighbours.
func (l *log) requireWithin(t *testing.T, limit throttle.Limit) {
	t.Helper()
	slices.SortFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum, unit := 0, limit.Per()/time.Duration(limit.N())
		for _, next := range l.all[i+1:] {
			gap := next.at.Sub(first.at)
			if limit.Kind() == throttle.KindLeakyBucket {
				require.GreaterOrEqual(t, gap, time.Duration(first.cost)*unit, "start %d at %v", i, first.at)
				break
			}
			if gap <= limit.Per() {
				sum += next.cost
			}
		}
		if limit.Kind() != throttle.KindLeakyBucket {
			require.LessOrEqual(t, first.cost+sum, limit.N(), "from start %d at %v", i, first.at)
		}
	}
}

// judge holds true starts against the definition of the limit, by brute force. An
// interval of a window's length can touch two windows with fixed edges, and one more
// whenever the clock was set, because that has its edges elsewhere.
func (l *log) judge(t *testing.T, limit throttle.Limit, length time.Duration, sets []time.Time) {
	t.Helper()
	switch limit.Kind() {
	case throttle.KindTokenBucket:
		l.judgeBucket(t, limit)
	case throttle.KindFixedWindow:
		l.judgeWindows(t, length-time.Microsecond, func(from time.Time) int {
			windows := 2
			for _, set := range sets {
				if !set.Before(from) && set.Before(from.Add(length)) {
					windows++
				}
			}
			return windows * limit.N()
		})
	case throttle.KindLeakyBucket:
		l.requireWithin(t, limit)
	default:
		l.judgeWindows(t, limit.Per(), func(time.Time) int { return limit.N() })
	}
}

// judgeWindows counts each closed interval that begins with a start.
func (l *log) judgeWindows(t *testing.T, per time.Duration, most func(from time.Time) int) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			if next.at.Sub(first.at) > per {
				break
			}
			sum += next.cost
		}
		require.LessOrEqual(t, sum, most(first.at), "from start %d at %v", i, first.at)
	}
}

// judgeBucket sums up each run of starts.
func (l *log) judgeBucket(t *testing.T, limit throttle.Limit) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			sum += next.cost
			flown := int64(next.at.Sub(first.at)) * int64(limit.N()) / int64(limit.Per())
			require.LessOrEqual(t, int64(sum-limit.Capacity()), flown, "from start %d at %v to %v", i, first.at, next.at)
		}
	}
}
