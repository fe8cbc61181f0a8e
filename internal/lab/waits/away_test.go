package waits

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// storeAway is so far away that each start may be used some milliseconds later than booked.
const storeAway = 12 * ms

// awayStore has a store whose answers are all late. Starts that come closer together than
// they may be used apart use the whole limit all the same.
func awayStore(t *testing.T) []row {
	away := lateStore{memstore.New(), func() time.Duration { return storeAway }}
	s, n, end := newStage(t), 1000, 10*time.Second
	visits := poisson(0.9*lineOf(n).rate(), 0, end, dice(1))
	s.play(visits, time.Hour, s.limiter(newLimiter(away, store.PerSecond(n))))
	s.kept(visits, n, time.Second)

	away.Store = memstore.New()
	closed, few := newStage(t), 20
	all := join(closed.loop(2*few, 30*time.Second, closed.limiter(newLimiter(away, store.PerSecond(few))))...)
	late := between(all, 10*time.Second, 30*time.Second)
	return []row{
		atMost("a store 12 ms away, 1,000/s, 90 % load: mean wait", mean(visits), waitAway),
		above("a store 12 ms away, 20/s, closed loop: starts from 10 s to 30 s", float64(len(late)), startsAway),
	}
}
