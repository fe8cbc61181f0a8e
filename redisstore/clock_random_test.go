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
			k := booking(charge("limited", limit))
			k.MaxWait = patience
			k.Charges[0].Cost = 1 + rng.IntN(min(limit.N(), 3))
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
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
	time.Sleep(2 * patience)
	synctest.Wait()
	require.Greater(t, len(starts.all), 10)
	starts.requireWithin(t, limit)

	g, err := s.Book(t.Context(), booking(charge("limited", limit)))
	require.NoError(t, err)
	require.Zero(t, g.Wait, "everything is over")
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
