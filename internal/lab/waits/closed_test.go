package waits

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
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

// flown lets 64 callers ask, as many by each ask as by the others.
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

// closed plays closedLoop on a store until end. wait is the longest p99 that is allowed, and least the least use.
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

// storeAway is so far away that each start may be used some milliseconds later than booked.
const storeAway = 12 * ms

// awayStore has a store whose answers are all late. The whole limit is used nevertheless: also where starts come at a
// smaller distance than the answers are late.
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

// A lateStore gives its answers late, and says so.
type lateStore struct {
	store.Store
	late func() time.Duration
}

// Book implements [store.Store].
func (s lateStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if d := s.late(); d > 0 && err == nil {
		time.Sleep(d)
		g.Age += d
	}
	return g, err
}

// A tremble is when answers are late.
type tremble struct {
	name     string
	from, to time.Duration
}

var trembles = []tremble{{"as they come", 0, 50 * ms}, {"a second later", time.Second, 1050 * ms}}

const trembleBy = 12 * ms

// trembled are the limits that a hiccup is tried with.
var trembled = []store.Limit{store.PerSecond(20), store.LeakyBucket(20, time.Second)}

// hiccup has answers of the store 12 ms late for 50 ms.
func hiccup(t *testing.T) (rows []row) {
	for _, l := range trembled {
		for _, h := range trembles {
			s := newStage(t)
			store := lateStore{memstore.New(), func() time.Duration {
				if now := s.now(); now >= h.from && now < h.to {
					return trembleBy
				}
				return 0
			}}
			rows = append(rows, hiccupRow(s, newLimiter(store, l), l, h, "memstore"))
		}
	}
	return rows
}

// hiccupRow lets 100 callers come and counts the starts in 5 seconds.
func hiccupRow(s stage, l *throttle.Limiter, limit store.Limit, h tremble, where string) row {
	visits := crowd(100)
	s.play(visits, 7*time.Second, s.limiter(l))
	var seconds [5]int
	n := 0
	for _, v := range between(visits, 0, 5*time.Second) {
		seconds[v.start/time.Second]++
		n++
	}
	return above(fmt.Sprintf("answers 12 ms late for 50 ms %s, %v, %s: starts in 5 s", h.name, limit, where), float64(n), startsHiccup).
		also("%v", seconds)
}

// crashEvery is how long each process lives.
const crashEvery = 2 * time.Second

// crashes kills a process with 200 waiters at 40/s every 2 s. The first one lives for longer or
// shorter, so that the deaths come at every phase of the windows.
func crashes(t *testing.T, v virtual) []row {
	const lives = 5
	phases := inFull(20, 4)
	least, which := math.MaxInt, ""
	var all []int
	for i := range phases {
		phase := time.Duration(i+1) * lineOf(40).span / time.Duration(phases)
		counts := crashing(t, v, phase, lives)
		all = append(all, slices.Min(counts))
		if n := slices.Min(counts); n < least {
			least, which = n, fmt.Sprintf("%v after a first life of %v", counts, short(phase))
		}
	}
	return []row{
		above(fmt.Sprintf("a process with 200 waiters at 40/s is killed every %v, %d phases: the least starts of one", crashEvery, phases),
			float64(least), startsCrash).also("%s; the least of each phase: %v", which, all),
	}
}

// crashing lets processes live one after the other, the first for some time and lives more for crashEvery each. It returns
// how many starts each had, without the first.
func crashing(t *testing.T, v virtual, first time.Duration, lives int) (counts []int) {
	v.stage(t, near, 1, func(s stage, net *redissim.Network) {
		nodes := s.nodes(net, lives+1)
		s.begin = time.Now()
		starts := make([]int, len(nodes))
		var waiting sync.WaitGroup
		var mu sync.Mutex
		for i, n := range nodes {
			begin := time.Duration(0)
			if i > 0 {
				begin = first + time.Duration(i-1)*crashEvery
			}
			end := first + time.Duration(i)*crashEvery
			l := n.limiter(store.PerSecond(40))
			s.at(begin, func() {
				for range 200 {
					waiting.Go(func() {
						if _, err := n.acquire(context.Background(), l, 1); err == nil {
							mu.Lock()
							defer mu.Unlock()
							starts[i]++
						}
					})
				}
			})
			s.at(end, n.die)
		}
		time.Sleep(first + time.Duration(lives)*crashEvery + time.Second)
		waiting.Wait()
		counts = starts[1:]
	})
	return counts
}

func perSecond(n int) throttle.Policy {
	return throttle.Policy{Name: "api", Match: "/", Limit: store.PerSecond(n)}
}

// raised doubles the limit while a thousand wait.
func raised(t *testing.T) []row {
	const at = 2 * time.Second
	s := newStage(t)
	visits := crowd(1000)
	tr := newTransport(upstream{stage: s}, memstore.New(), perSecond(20))
	s.at(at, func() { must(0, tr.SetPolicies([]throttle.Policy{perSecond(40)})) })
	s.play(visits, time.Hour, s.transport(tr))
	best := lineOf(20, change{at, 40}).perfect(visits)
	return []row{
		below("20/s raised to 40/s, 1,000 wait: the last one, times perfect", last(visits).Seconds()/last(best).Seconds(), timesRaised).
			also("%v for %v", short(last(visits)), short(last(best))),
	}
}

// keptOrder changes something while a queue of 20 seconds waits and more come.
func keptOrder(t *testing.T) (rows []row) {
	const at = 30 * time.Second
	set := func(n int) func(stage, *throttle.Transport) {
		return func(_ stage, tr *throttle.Transport) { must(0, tr.SetPolicies([]throttle.Policy{perSecond(n)})) }
	}
	for _, c := range []struct {
		name   string
		change func(stage, *throttle.Transport)
	}{
		{"raised to 40/s", set(40)},
		{"raised to 21/s", set(21)},
		{"lowered to 19/s", set(19)},
		{"Pause and Resume after 1 s", func(s stage, tr *throttle.Transport) {
			l := must(tr.Limiter("api"))
			must(0, l.Pause(s.t.Context(), "", 10*time.Second))
			s.at(at+time.Second, func() { must(0, l.Resume(s.t.Context(), "")) })
		}},
	} {
		s := newStage(t)
		visits := join(crowd(100), poisson(30, 0, at+15*time.Second, dice(1)))
		tr := newTransport(upstream{stage: s}, memstore.New(), perSecond(20))
		s.at(at, func() { c.change(s, tr) })
		s.play(visits, time.Hour, s.transport(tr))
		rows = append(rows, atMost(fmt.Sprintf("20/s %s: passed by", c.name), passed(visits), passedChange).
			also("by one that came %v later", short(passedByLater(visits))))
	}
	return rows
}
