package waits

import (
	"context"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// newStore returns a store on a server of its own.
func newStore(t *testing.T) *redisstore.Store {
	return redisstore.New(redistest.Single(t).Client(t), redisstore.Options{})
}

// redisBehindLow lets High requests come that wait two seconds at most.
func redisBehindLow(t *testing.T) []row {
	l := batch(newStore(t), perSecond(20).Limit)
	s := newStage(t)
	visits, end := thenHigh(arriving(2000, 250*time.Microsecond), 10, inFull(1500*ms, 700*ms), inFull(200*ms, 100*ms))
	s.play(visits, end+inFull(2*time.Second, time.Second), s.byPriority(l, 2*time.Second))
	highs := only(visits, isHigh)
	r := atMost("High behind 2,000 Low, 20/s, Redis, MaxWait 2 s", longest(highs), waitHigh).
		also("%d of 10 refused", refused(visits))
	r.target += ", none refused"
	r.ok = r.ok && len(highs) == 10
	return []row{r}
}

// redisAllLeft is allLeft on Redis.
func redisAllLeft(t *testing.T) (rows []row) {
	for _, l := range fiveASecond {
		var late time.Duration
		for _, at := range inFull([]time.Duration{2200 * ms, 2600 * ms, 2900 * ms}, []time.Duration{1300 * ms}) {
			late = max(late, nextAfterLeaving(t, rushed(1000), newLimiter(newStore(t), l), at))
		}
		rows = append(rows, atMost("1,000 leave, "+l.String()+", Redis: the next one, later than possible", late, lateNext))
	}
	return rows
}

// redisHiccup has the server's answers 12 ms late for 50 ms.
func redisHiccup(t *testing.T) (rows []row) {
	if !*long {
		return nil // it takes 5 seconds
	}
	for _, l := range trembled {
		for _, h := range trembles {
			w := redistest.NewWire(t, redistest.Single(t).Addr)
			limiter := newLimiter(redisstore.New(newClient(t, w.Addr, 64), redisstore.Options{}), l)
			must(limiter.Status(t.Context(), "")) // it is connected
			s := newStage(t)
			s.at(h.from, func() { w.Delay(0, trembleBy) })
			s.at(h.to, func() { w.Delay(0, 0) })
			rows = append(rows, hiccupRow(s, limiter, l, h, "Redis"))
		}
	}
	return rows
}

// redisOrder lets visits come at two stores, more than there is room for.
func redisOrder(t *testing.T) []row {
	server := redistest.Single(t)
	var limiters []*throttle.Limiter
	for range 2 {
		l := newLimiter(redisstore.New(server.Client(t), redisstore.Options{}), perSecond(40).Limit)
		must(l.Status(t.Context(), "")) // it is connected
		limiters = append(limiters, l)
	}
	s := newStage(t)
	end, dice := inFull[time.Duration](10, 2)*time.Second, dice(1)
	visits := poisson(1.5*lineOf(40).rate(), 0, end, dice)
	for i := range visits {
		visits[i].api = dice.IntN(len(limiters))
	}
	s.play(visits, 2*end, func(ctx context.Context, v *visit) error { return s.limiter(limiters[v.api])(ctx, v) })
	return []row{
		atMost("open loop, 40/s, 150 % load, two stores on Redis: passed by", passed(visits), passedNodes),
	}
}

// redisFlight is inFlight on Redis.
func redisFlight(t *testing.T) []row {
	store := newStore(t)
	return flight(newStage(t), store, inFull[time.Duration](20, 3)*time.Second, "Redis")
}

// redisClosed is closedLoop on Redis.
func redisClosed(t *testing.T) []row {
	store := newStore(t)
	return closed(newStage(t), store, inFull[time.Duration](12, 3)*time.Second, "Redis", waitClosedRedis, usedClosedRedis)
}
