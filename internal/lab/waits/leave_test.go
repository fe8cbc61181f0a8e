package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// leaving lets a share of all visits leave at 150 % load.
func leaving(t *testing.T) (rows []row) {
	for _, n := range soak.Most([]int{20, 64, 128}, []int{64}) {
		for _, share := range []float64{0.3, 0.6} {
			rows = append(rows, leavers(t, n, share, time.Second, 4*time.Second, false)...)
			rows = append(rows, leavers(t, n, share, 5*time.Second, 20*time.Second, false)...)
		}
	}
	return append(rows, leavers(t, 64, 0.6, time.Second, 4*time.Second, true)...)
}

func leavers(t *testing.T, n int, share float64, least, most time.Duration, says bool) []row {
	s, line, dice := newStage(t), lineOf(n), dice(n)
	end := inFull[time.Duration](180, 30) * time.Second
	visits := poisson(1.5*line.rate(), 0, end, dice)
	for i := range visits {
		if v := &visits[i]; dice.Float64() < share {
			v.maxWait, v.says = least+time.Duration(dice.Int64N(int64(most-least))), says
		}
	}
	best := line.perfect(visits)
	s.play(visits, end+10*time.Minute, s.limiter(newLimiter(memstore.New(), store.PerSecond(n))))
	s.kept(visits, n, time.Second)
	from := 5 * time.Second
	got, possible := used(spends(visits), from, end, n, line.span), used(spends(best), from, end, n, line.span)
	name := fmt.Sprintf("%.0f %% leave after %v to %v, %d/s", 100*share, least, most, n)
	if says {
		name += ", with deadlines"
	}
	return []row{
		atLeast(name+": used of perfect", got/possible, usedLeaving).also("%s of %s", percent(got), percent(possible)),
		below(name+": longest wait, times perfect", longest(only(visits, all)).Seconds()/longest(only(best, all)).Seconds(), timesLeaving).
			also("%v for %v", short(longest(only(visits, all))), short(longest(only(best, all)))),
	}
}

// fiveASecond are the limits that a thousand leave.
var fiveASecond = []store.Limit{store.PerSecond(5), store.LeakyBucket(5, time.Second)}

// allLeft lets a thousand waiters leave at once, and then one more come.
func allLeft(t *testing.T) (rows []row) {
	for _, l := range fiveASecond {
		late := time.Duration(0)
		for _, at := range []time.Duration{2 * time.Second, 2350 * ms, 2700 * ms, 7900 * ms} {
			late = max(late, nextAfterLeaving(t, crowd(1000), newLimiter(memstore.New(), l), at))
		}
		rows = append(rows, atMost(fmt.Sprintf("1,000 leave, %v: the next one, later than possible", l), late, lateNext))
	}
	return rows
}

// nextAfterLeaving returns how much later than possible the next caller starts
// when all waiters leave.
func nextAfterLeaving(t *testing.T, visits []visit, l *throttle.Limiter, at time.Duration) time.Duration {
	s := newStage(t)
	s.play(visits, at, s.limiter(l))
	next := visit{came: s.now(), start: never}
	require.NoError(t, s.limiter(l)(t.Context(), &next))
	line := line{n: 5, span: time.Second + acquire.DefaultJitter}
	if must(l.Status(t.Context(), "")).Limit.Kind() == store.KindLeakyBucket {
		line.n, line.span = 1, 200*ms
	}
	var starts []time.Duration
	for _, v := range only(visits, all) {
		starts = append(starts, v.start)
	}
	return next.start - line.next(starts, next.came, 1)
}
