package waits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// bans closes the budget while a thousand wait.
func bans(t *testing.T) (rows []row) {
	for _, d := range []time.Duration{200 * ms, 500 * ms, time.Second, 2 * time.Second} {
		late, atEnd := time.Duration(0), time.Duration(0)
		for _, at := range []time.Duration{5 * time.Second, 5300 * ms, 5800 * ms} {
			s, l := newStage(t), newLimiter(memstore.New(), store.PerSecond(20))
			visits := crowd(1000)
			best := lineOf(20).perfect(visits)
			s.at(at, func() { must(0, l.Pause(t.Context(), "", d)) })
			s.play(visits, time.Hour, s.limiter(l))
			s.kept(visits, 20, time.Second)
			late, atEnd = max(late, latest(visits, best)), max(atEnd, last(visits)-last(best))
		}
		rows = append(rows, atMost(fmt.Sprintf("a ban of %v, 1,000 wait: later than without it", d), late, lateDisturbed).
			also("the last one %v", short(atEnd)))
	}
	return rows
}

// slowDials makes one connection in twenty take longer.
func slowDials(t *testing.T) (rows []row) {
	for _, slow := range []time.Duration{50 * ms, 150 * ms} {
		s, dice := newStage(t), dice(1)
		visits := crowd(1000)
		best := lineOf(20).perfect(visits)
		turn := make(chan struct{}, 1)
		tr := newTransport(upstream{stage: s, dial: func() time.Duration {
			turn <- struct{}{}
			defer func() { <-turn }()
			if dice.IntN(20) == 0 {
				return slow
			}
			return 0
		}}, memstore.New(), perSecond(20))
		s.play(visits, time.Hour, s.transport(tr))
		s.kept(visits, 20, time.Second)
		rows = append(rows, atMost(fmt.Sprintf("one dial in twenty takes %v, 1,000 wait: later than perfect", slow), latest(visits, best), lateDisturbed).
			also("the last one %v", short(last(visits)-last(best))))
	}
	return rows
}

// endsOfBans measures how soon the waiters start after a ban.
func endsOfBans(t *testing.T) (rows []row) {
	first := time.Duration(0)
	for at := 50 * ms; at < time.Second; at += 100 * ms {
		after := afterBan(t, store.PerSecond(20), 65, at, 1200*ms)
		first = max(first, after[0])
	}
	rows = append(rows, atMost("the first start after a ban of 1.2 s, 45 wait at 20/s", first, firstAfter))
	for _, d := range []int{61, 75, 90, 119} {
		after := afterBan(t, store.PerMinute(60), 300, time.Second, time.Duration(d)*time.Second)
		rows = append(rows, atMost(fmt.Sprintf("the second start after a ban of %d s, 240 wait at 60 a minute", d), after[1], nextAfterLong).
			also("the first %v, the tenth %v", short(after[0]), short(after[9])))
	}
	return rows
}

// afterBan returns the starts after a ban, counted from its end.
func afterBan(t *testing.T, limit store.Limit, callers int, at, d time.Duration) (starts []time.Duration) {
	s, l := newStage(t), newLimiter(memstore.New(), limit)
	visits := crowd(callers)
	s.at(at, func() { must(0, l.Pause(t.Context(), "", d)) })
	s.play(visits, time.Hour, s.limiter(l))
	s.kept(visits, limit.N(), limit.Per())
	for _, v := range only(visits, func(v *visit) bool { return v.start >= at+d }) {
		starts = append(starts, v.start-at-d)
	}
	slices.Sort(starts)
	return starts
}
