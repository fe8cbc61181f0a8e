package waits

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// loop lets callers ask again and again until a time, and returns what each of
// them asked for. Callers that still wait then leave.
func (s stage) loop(callers int, until time.Duration, ask ask) [][]visit {
	ctx, over := context.WithCancel(s.t.Context())
	defer over()
	defer time.AfterFunc(until-s.now(), over).Stop()
	visits := make([][]visit, callers)
	var all sync.WaitGroup
	for i := range visits {
		all.Go(func() {
			for ctx.Err() == nil {
				v := &visit{came: s.now(), start: never}
				v.err = ask(ctx, v)
				require.NoError(s.t, v.unexpected())
				visits[i] = append(visits[i], *v)
			}
		})
	}
	all.Wait()
	return visits
}

// between returns what started between two times.
func between(visits []visit, from, to time.Duration) []visit {
	return only(visits, func(v *visit) bool { return v.start >= from && v.start < to })
}

// fairness is Jain's index over the starts of each caller between two times.
func fairness(callers [][]visit, from, to time.Duration) float64 {
	counts := make([]int, len(callers))
	for i := range callers {
		counts[i] = len(between(callers[i], from, to))
	}
	return stat.Jain(counts)
}

// flightPolicies are 40 a second and 8 at once.
var flightPolicies = []throttle.Policy{
	{Name: "rate", Match: "/", Limit: store.PerSecond(40)},
	{Name: "at once", Match: "/", Limit: store.Concurrency(8)},
}

// inFlight lets 64 callers ask for answers that take 150 ms.
func inFlight(t *testing.T) []row {
	return flight(newStage(t), memstore.New(), 60*time.Second, "memstore")
}

func flight(s stage, store store.Store, end time.Duration, where string) []row {
	tr := newTransport(upstream{stage: s, answer: 150 * ms}, store, flightPolicies...)
	return flown(s, []ask{s.transport(tr)}, end, where)
}

// flown lets 64 callers ask, the same number of them in each of some ways.
func flown(s stage, asks []ask, end time.Duration, where string) []row {
	line := lineOf(40)
	var visits []visit
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, asked := range asks {
		all.Go(func() {
			mine := join(s.loop(64/len(asks), end, asked)...)
			mu.Lock()
			defer mu.Unlock()
			visits = append(visits, mine...)
		})
	}
	all.Wait()
	from, what := min(5*time.Second, end/4), "40/s and 8 in flight, 64 callers, answers in 150 ms, "+where
	return []row{
		atLeast(what+": used", used(spends(visits), from, end, 40, line.span), usedFlight),
		atMost(what+": the longest wait", longest(between(visits, from, end)), waitFlight),
	}
}

// closedLoop lets 64 callers use 1000 a second. An answer takes a millisecond:
// otherwise a caller could use up a window before another gets to run.
func closedLoop(t *testing.T) []row {
	return closed(newStage(t), memstore.New(), inFull[time.Duration](60, 15)*time.Second, "memstore", waitClosed, usedClosed)
}

func closed(s stage, st store.Store, end time.Duration, where string, wait time.Duration, least float64) []row {
	line := lineOf(1000)
	asked := s.limiter(newLimiter(st, store.PerSecond(1000)))
	callers := s.loop(64, end, func(ctx context.Context, v *visit) error {
		if err := asked(ctx, v); err != nil {
			return err
		}
		return pass(ctx, ms)
	})
	visits := join(callers...)
	from, what := min(3*time.Second, end/4), "1000/s, 64 callers in a closed loop, "+where
	return []row{
		atMost(what+": p99", quantile(between(visits, from, end), 0.99), wait),
		above(what+": Jain", fairness(callers, from, end), jainClosed),
		atLeast(what+": used", used(spends(visits), from, end, 1000, line.span), least),
	}
}

// ofQuota is the share of the quota, n a second, that was used. The jitter costs
// 3.4 % of it. The first part, when there is no queue yet, is left out.
func ofQuota(what string, starts []spend, end time.Duration, l line, least float64) row {
	from := min(5*time.Second, end/4)
	return atLeast(what+": used of the quota", used(starts, from, end, l.n, time.Second), least).
		also("%s with jitter", percent(used(starts, from, end, l.n, l.span)))
}

// connections has fewer connections than callers, and a little more than the limit
// keeps busy.
func connections(t *testing.T) (rows []row) {
	for _, c := range []struct {
		conns int
		least float64
	}{{4, usedFour}, {6, usedSix}} {
		s, line, end := newStage(t), lineOf(40), 60*time.Second
		server := newPipes(s, 80*ms)
		base := &http.Transport{MaxConnsPerHost: c.conns, DialContext: server.dial}
		tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: base, Policies: []throttle.Policy{perSecond(40)}}))
		s.loop(64, end, s.transport(tr))
		rows = append(rows, ofQuota(fmt.Sprintf("%d connections, answers in 80 ms, 40/s, 64 callers", c.conns), server.seen(), end, line, c.least))
		base.CloseIdleConnections()
		server.close()
	}
	return rows
}
