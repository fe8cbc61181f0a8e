package waits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A plan is what happens to a random fleet.
type plan struct {
	limit  store.Limit
	nodes  int
	visits []visit
	events []event
}

// An event is a pause, its end, or the death of a node.
type event struct {
	at    time.Duration
	pause time.Duration // 0: none
	dies  int           // the node, -1: none
}

// fleetLength is for how long callers come.
const fleetLength = 10 * time.Second

// randomPlan returns the plan of a seed. Without trouble nobody leaves, nothing is paused, and
// no node dies.
func randomPlan(seed uint64, trouble bool) plan {
	dice := rand.New(rand.NewPCG(seed, 25))
	n := []int{5, 10, 20, 40, 70, 100}[dice.IntN(6)]
	p := plan{nodes: 2 + dice.IntN(5)}
	switch dice.IntN(6) {
	case 0:
		p.limit = store.LeakyBucket(n, time.Second)
	case 1:
		p.limit = store.TokenBucket(n, time.Second, 1+dice.IntN(n))
	default:
		p.limit = store.PerSecond(n)
	}
	p.visits = randomVisits(dice, float64(n), p.nodes)
	if !trouble {
		return p
	}
	leavers := []int{0, 30, 60}[dice.IntN(3)]
	for i := range p.visits {
		if dice.IntN(100) < leavers {
			p.visits[i].maxWait = 100*ms + time.Duration(dice.Int64N(int64(4*time.Second)))
		}
	}
	for range dice.IntN(3) {
		e := event{at: time.Duration(dice.Int64N(int64(fleetLength))), pause: 100*ms + time.Duration(dice.Int64N(int64(2*time.Second))), dies: -1}
		p.events = append(p.events, e)
		if dice.IntN(2) == 0 {
			p.events = append(p.events, event{at: e.at + time.Duration(dice.Int64N(int64(e.pause))), dies: -1})
		}
	}
	if dice.IntN(3) == 0 {
		p.events = append(p.events, event{at: time.Duration(dice.Int64N(int64(fleetLength))), dies: dice.IntN(p.nodes)})
	}
	return p
}

// randomVisits come at random, or in crowds, or both; more than there is room for.
func randomVisits(dice *rand.Rand, n float64, nodes int) (visits []visit) {
	load := []float64{0.9, 1.2, 1.5, 2}[dice.IntN(4)]
	crowds := dice.Float64() * 0.7 // the part that comes in crowds
	visits = poisson(load*n*(1-crowds), 0, fleetLength, dice)
	for left := int(load * n * crowds * fleetLength.Seconds()); left > 0; {
		at, many, every := time.Duration(dice.Int64N(int64(fleetLength))), min(left, 1+dice.IntN(int(2*n))), time.Duration(dice.Int64N(int64(3*ms)))
		for i := range many {
			visits = append(visits, visit{came: at + time.Duration(i)*every, start: never})
		}
		left -= many
	}
	visits = join(visits)
	together := dice.IntN(2) == 0 // each crowd is at one node
	for i := range visits {
		visits[i].api = dice.IntN(nodes)
		if together && i > 0 && visits[i].came-visits[i-1].came < 3*ms {
			visits[i].api = visits[i-1].api
		}
	}
	return visits
}

// play lets a plan happen, and returns its visits.
func (p plan) play(t *testing.T, v virtual, seed uint64) (visits []visit) {
	v.stage(t, near, seed, func(s stage, net *redissim.Network) {
		nodes := s.nodes(net, p.nodes)
		var limiters []*throttle.Limiter
		for _, n := range nodes {
			limiters = append(limiters, n.limiter(p.limit))
		}
		alive := func() *throttle.Limiter {
			return limiters[slices.IndexFunc(nodes, func(n *node) bool { return n.life.Err() == nil })]
		}
		s.begin = time.Now()
		for _, e := range p.events {
			s.at(e.at, func() {
				switch {
				case e.dies >= 0:
					nodes[e.dies].die()
				case e.pause > 0:
					must(0, alive().Pause(s.t.Context(), "", e.pause))
				default:
					must(0, alive().Resume(s.t.Context(), ""))
				}
			})
		}
		visits = slices.Clone(p.visits)
		s.play(visits, 5*time.Minute, func(ctx context.Context, v *visit) error {
			if nodes[v.api].life.Err() != nil { // they come to the next one
				v.api = (v.api + 1) % len(nodes)
			}
			_, err := nodes[v.api].acquire(ctx, limiters[v.api], 1)
			if err == nil {
				v.start = s.now()
			}
			return err
		})
		if p.limit.Kind() == store.KindSlidingWindow {
			s.kept(visits, p.limit.N(), p.limit.Per())
		}
	})
	return visits
}

// orderOfFleets plays random fleets on Redis, with trouble and without.
func orderOfFleets(t *testing.T, v virtual) []row {
	many, calm := inFull(60, 6), inFull(60, 6)
	measure := func(many int, trouble bool) (worst []time.Duration, text string) {
		for seed := range uint64(many) {
			p := randomPlan(seed, trouble)
			visits := p.play(t, v, seed)
			by := passed(visits)
			worst = append(worst, by)
			if by >= passedFleets {
				t.Logf("seed %d, trouble %v, %v, %d nodes, %d visits, %d events: passed by %v", seed, trouble, p.limit, p.nodes, len(p.visits), len(p.events), by)
			}
		}
		slices.Sort(worst)
		return worst, fmt.Sprintf("p50 %v, p90 %v, worst %v", short(worst[many/2]), short(worst[many*9/10]), short(worst[many-1]))
	}
	worst, text := measure(many, true)
	over := 0
	for _, by := range worst {
		if by >= passedFleets {
			over++
		}
	}
	none, calmText := measure(calm, false)
	what := fmt.Sprintf("%d random fleets with leavers, pauses and deaths, Redis: ", many)
	return []row{
		below(what+fmt.Sprintf("part with a caller passed by %v", passedFleets), float64(over)/float64(many), inFull(partPassed, 0.2)).also("%s", text), // one of 6 says nothing
		atMost(what+"passed by", worst[many-1], passedTrouble).
			knownIn("docs/internals/line.md", worst[many-1] <= passedTrouble+60*ms),
		atMost(fmt.Sprintf("%d random fleets without trouble, Redis: passed by", calm), none[calm-1], passedFleets).also("%s", calmText),
	}
}

// slowStarts plays two random fleets of which only the pauses happen: after each of them the row
// has room that nobody can take yet, and what was offered must not lapse.
func slowStarts(t *testing.T, v virtual) (rows []row) {
	for _, seed := range []uint64{41, 58} {
		p := randomPlan(seed, true)
		p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.dies >= 0 })
		for i := range p.visits {
			p.visits[i].maxWait = 0
		}
		rows = append(rows, atMost(fmt.Sprintf("a random fleet with pauses (seed %d, %v, %d nodes), Redis: passed by", seed, p.limit, p.nodes),
			passed(p.play(t, v, seed)), passedTrouble))
	}
	const seed = 115 // room is offered during a pause, and would lapse at its end
	p := randomPlan(seed, true)
	return append(rows, atMost(fmt.Sprintf("a random fleet with pauses and leavers (seed %d, %v, %d nodes), Redis: passed by", seed, p.limit, p.nodes),
		passed(p.play(t, v, seed)), passedPauses))
}

// resumedBurst lets a burst come, and a trickle behind it; the budget is closed meanwhile, and
// opened again.
func resumedBurst(t *testing.T, v virtual) []row {
	var worst time.Duration
	var how string
	for _, n := range []int{5, 10, 20, 40} {
		for _, many := range []int{2, 4} {
			for _, at := range inFull([]time.Duration{520 * ms, 700 * ms, time.Second, 1300 * ms}, []time.Duration{700 * ms}) {
				for _, length := range inFull([]time.Duration{200 * ms, 500 * ms, 900 * ms}, []time.Duration{500 * ms}) {
					p := plan{limit: store.PerSecond(n), nodes: many, events: []event{{at, 5 * time.Second, -1}, {at + length, 0, -1}}}
					for i := range 14 {
						p.visits = append(p.visits, visit{came: 510*ms + time.Duration(i)*100*time.Microsecond, start: never, api: i % many})
					}
					for i, came := 0, 540*ms; came <= 1800*ms; i, came = i+1, came+60*ms {
						p.visits = append(p.visits, visit{came: came, start: never, api: i % many})
					}
					if by := passed(p.play(t, v, 1)); by >= worst {
						worst, how = by, fmt.Sprintf("%d/s, %d nodes, closed from %v for %v", n, many, at, length)
					}
				}
			}
		}
	}
	return []row{atMost("14 callers at 0.51 s, a trickle from 0.54 to 1.8 s, Pause and Resume within, Redis: passed by", worst, passedFleets).also("%s", how).
		knownIn("docs/internals/line.md", worst <= passedFleets+50*ms)}
}

// apisOf returns a table where each path has 20 a second, and all together 100,
// and the paths.
func apisOf(n int) (policies []throttle.Policy, paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("api/%d", i))
	}
	return []throttle.Policy{
		{Name: "all", Match: "api.example.com/", Limit: store.PerSecond(100)},
		{Name: "each", Match: "api.example.com/", Key: throttle.RawPath, Limit: store.PerSecond(20)},
	}, paths
}

// besideHot lets thousands wait for one API while others use half of the limit
// that they share with it.
func besideHot(t *testing.T) (rows []row) {
	policies, paths := apisOf(11)
	for _, deep := range inFull([]int{3000, 10_000}, []int{3000}) {
		s := newStage(t)
		end := inFull[time.Duration](120, 30) * time.Second
		dice := dice(deep)
		others := poisson(50, 0, end, dice)
		for i := range others {
			others[i].api = 1 + dice.IntN(10)
		}
		visits := join(crowd(deep), others)
		s.play(visits, end+2*time.Second, s.transport(newTransport(upstream{stage: s}, memstore.New(), policies...), paths...))
		s.kept(visits, 100, time.Second)
		beside := only(visits, func(v *visit) bool { return v.api > 0 })
		// A visit that never started waits at least until the end.
		for i := range visits {
			if v := &visits[i]; v.api > 0 && !v.started() {
				beside = append(beside, visit{came: v.came, start: s.now()})
			}
		}
		rows = append(rows, atMost(fmt.Sprintf("beside an API %d deep: p99", deep), quantile(beside, 0.99), waitBeside).
			also("mean %v, the deep one has %.1f/s", short(mean(beside)), float64(len(only(visits, func(v *visit) bool { return v.api == 0 })))/s.now().Seconds()))
	}
	return rows
}

// skewed gives ten APIs 120 % of the limit that they share. The k-th has a share
// of 1/k: the first two have more than their own limits allow.
func skewed(t *testing.T) (rows []row) {
	const apis = 10
	policies, paths := apisOf(apis)
	wide, each := lineOf(100), lineOf(20)
	sum := 0.0
	for k := 1; k <= apis; k++ {
		sum += 1 / float64(k)
	}
	for seed := range inFull(4, 1) {
		s := newStage(t)
		end := inFull[time.Duration](120, 20) * time.Second
		dice := dice(seed)
		visits := poisson(1.2*wide.rate(), 0, end, dice)
		for i := range visits {
			x, k := dice.Float64()*sum, 1
			for x > 1/float64(k) && k < apis {
				x -= 1 / float64(k)
				k++
			}
			visits[i].api = k - 1
		}
		best := shared(wide, each, apis, visits)
		s.play(visits, end, s.transport(newTransport(upstream{stage: s}, memstore.New(), policies...), paths...))
		s.kept(visits, 100, time.Second)
		from := 5 * time.Second
		got, possible := used(spends(visits), from, end, 100, wide.span), used(spends(best), from, end, 100, wide.span)
		small := func(v *visit) bool { return v.api >= 2 && v.start < end }
		rows = append(rows,
			atLeast(fmt.Sprintf("ten skewed APIs (seed %d): used of what is possible", seed), got/possible, usedSkewed).
				also("%s of %s", percent(got), percent(possible)),
			atMost("the APIs below their limits: mean wait", mean(only(visits, small)), waitSmall).
				also("p99 %v; perfect %v, p99 %v", short(quantile(only(visits, small), 0.99)),
					short(mean(only(best, small))), short(quantile(only(best, small), 0.99))))
	}
	return rows
}

// sharesLimit is so large that the smallest of a hundred shares starts often enough to be measured.
const sharesLimit = 1000

// shares lets a heap of one share, a light share and others, of weights 1 to 8, use one budget.
func shares(t *testing.T) (rows []row) {
	for _, n := range inFull([]int{2, 10, 100}, []int{10}) {
		rows = append(rows, sharesOf(t, n)...)
	}
	return rows
}

// sharesOf plays n shares: the first asks for a tenth of its part, the second has the heap, and all but the
// first always have callers that wait.
func sharesOf(t *testing.T, n int) []row {
	s, line := newStage(t), lineOf(sharesLimit)
	heap := inFull(10_000, 1000)
	windows := inFull(10, 3)
	from := 3 * line.span
	end := from + time.Duration(windows)*line.span
	weights, sum := make([]int, n), 0
	for i := range weights {
		weights[i] = []int{1, 2, 4, 8}[i%4]
		sum += weights[i]
	}
	part := func(i int) float64 { return line.rate() * float64(weights[i]) / float64(sum) }
	var visits []visit
	comes := func(i int, at time.Duration) { visits = append(visits, visit{came: at, start: never, api: i}) }
	for i := 1; i < n; i++ {
		// What the first leaves goes to the others; an idle budget serves a window at once.
		for range int(1.3 * part(i) * float64(sum) / float64(sum-1) * end.Seconds()) {
			comes(i, time.Duration(len(visits))*time.Microsecond)
		}
	}
	for range heap {
		comes(1, time.Duration(len(visits))*time.Microsecond)
	}
	dice(n).Shuffle(len(visits), func(i, j int) { visits[i].api, visits[j].api = visits[j].api, visits[i].api })
	every := time.Duration(float64(10*time.Second) / part(0))
	for at := time.Second; at < end; at += every {
		comes(0, at)
	}
	slices.SortFunc(visits, func(a, b visit) int { return int(a.came - b.came) })
	l := must(throttle.NewLimiters(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Policies: []throttle.Policy{{Name: "api", Limit: store.PerSecond(sharesLimit)}},
	}))
	s.play(visits, end, func(ctx context.Context, v *visit) error {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), throttle.Demand{Policy: "api", Share: fmt.Sprint(v.api), Weight: weights[v.api]})
		if err == nil {
			v.start = s.now()
		}
		return err
	})
	s.kept(visits, sharesLimit, time.Second)
	started := between(visits, from, end)
	light := only(started, func(v *visit) bool { return v.api == 0 })
	off := 0.0
	for i := 1; i < n; i++ {
		got := float64(len(only(started, func(v *visit) bool { return v.api == i })))
		want := float64(weights[i]) / float64(sum-weights[0]) * float64(len(started)-len(light))
		off = max(off, (max(got, want)-min(got, want)-1)/want) // starts are whole
	}
	what := fmt.Sprintf("%d shares, %d/s, one has a heap of %d", n, sharesLimit, heap)
	return []row{
		below(what+": a share's part is off by, %", 100*off, 100*offShares),
		atMost(what+": the longest wait of a light share", longest(light), waitShare+time.Duration(float64(time.Second)/part(0))),
		atLeast(what+": used", used(spends(visits), from, end, sharesLimit, line.span), usedShares),
	}
}

// leaving lets a share of all visits leave at 150 % load.
func leaving(t *testing.T) (rows []row) {
	for _, n := range inFull([]int{20, 64, 128}, []int{64}) {
		for _, share := range []float64{0.3, 0.6} {
			rows = append(rows, leavers(t, n, share, time.Second, 4*time.Second, false)...)
			rows = append(rows, leavers(t, n, share, 5*time.Second, 20*time.Second, false)...)
		}
	}
	return append(rows, leavers(t, 64, 0.6, time.Second, 4*time.Second, true)...)
}

// leavers lets a share of all visits leave after a wait between least and most, at 150 % of a limit of n a second. says
// gives them deadlines.
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
		below(name+": longest wait, times perfect", longest(only(visits, anyVisit)).Seconds()/longest(only(best, anyVisit)).Seconds(), timesLeaving).
			also("%v for %v", short(longest(only(visits, anyVisit))), short(longest(only(best, anyVisit)))),
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
	for _, v := range only(visits, anyVisit) {
		starts = append(starts, v.start)
	}
	return next.start - line.next(starts, next.came, 1)
}

// A row is one measured figure.
type row struct {
	what   string
	value  string
	target string // "" if nothing is asked of it
	ok     bool
	known  string // the page that says why it is missed by so much
}

// String returns the row in Markdown, with a verdict if anything is asked of its figure.
func (r row) String() string {
	verdict := "ok"
	switch {
	case r.target == "":
		verdict = ""
	case !r.ok:
		verdict = "**missed**"
		if r.known != "" {
			verdict += ", see " + r.known
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", r.what, r.value, r.target, verdict)
}

// table returns the rows as Markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| what | measured | must reach | |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

// told returns a row whose figure has no target.
func told(what, format string, args ...any) row {
	return row{what: what, value: fmt.Sprintf(format, args...), ok: true}
}

// asked returns a row whose figure has a target. ok says that the target is reached.
func asked(what, value, target string, ok bool) row {
	return row{what: what, value: value, target: target, ok: ok}
}

// also adds to the row's figure what helps to read it.
func (r row) also(format string, args ...any) row {
	r.value += "; " + fmt.Sprintf(format, args...)
	return r
}

// knownIn names the page that explains why the target is missed. noMore says that it is missed by no more than the page
// explains; otherwise the row stays as it is.
func (r row) knownIn(page string, noMore bool) row {
	if noMore {
		r.known = page
	}
	return r
}

// atMost asks for a time that is not longer.
func atMost(what string, got, most time.Duration) row {
	return asked(what, short(got), "≤ "+short(most), got <= most)
}

// atLeast asks for a share of at least so much.
func atLeast(what string, got, least float64) row {
	return asked(what, percent(got), "≥ "+percent(least), got >= least)
}

// within asks for a share between two.
func within(what string, got, least, most float64) row {
	return asked(what, percent(got), percent(least)+" to "+percent(most), got >= least && got <= most)
}

// below asks for a number that is not larger.
func below(what string, got, most float64) row {
	return asked(what, fmt.Sprintf("%.2f", got), fmt.Sprintf("≤ %.2f", most), got <= most)
}

// above asks for a number that is not smaller.
func above(what string, got, least float64) row {
	return asked(what, fmt.Sprintf("%.3g", got), fmt.Sprintf("≥ %.3g", least), got >= least)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// short rounds a time to what matters.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// newStore returns a store on a server of its own.
func newStore(t *testing.T) *redisstore.Store {
	return redisstore.New(redistest.Single(t).Client(t), redisstore.Options{})
}

// redisBehindLow lets High requests come. They wait two seconds at most.
func redisBehindLow(t *testing.T) []row {
	l := batch(newStore(t), perSecond(20).Limit)
	s := newStage(t)
	visits, end := thenHigh(arriving(2000, 250*time.Microsecond), 10, 1500*ms, 200*ms)
	s.play(visits, end+2*time.Second, s.byPriority(l, 2*time.Second))
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
		for _, at := range []time.Duration{2200 * ms, 2600 * ms, 2900 * ms} {
			late = max(late, nextAfterLeaving(t, rushed(1000), newLimiter(newStore(t), l), at))
		}
		rows = append(rows, atMost("1,000 leave, "+l.String()+", Redis: the next one, later than possible", late, lateNext))
	}
	return rows
}

// redisHiccup has the server's answers 12 ms late for 50 ms.
func redisHiccup(t *testing.T) (rows []row) {
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
	end, dice := 10*time.Second, dice(1)
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
	return flight(newStage(t), store, 20*time.Second, "Redis")
}

// redisClosed is closedLoop on Redis.
func redisClosed(t *testing.T) []row {
	store := newStore(t)
	return closed(newStage(t), store, 12*time.Second, "Redis", waitClosedRedis, usedClosedRedis)
}

// farRedis has a server that is far away. All trips take equally long here, so a program never knows when in a trip Redis decided: a start counts for the window, its jitter,
// and the trip less the time for which a start may be late. At 150 ms that leaves 85.1 % of the quota.
func farRedis(t *testing.T) (rows []row) {
	for _, c := range []struct {
		away  time.Duration
		least float64
	}{{40 * ms, usedNear40}, {150 * ms, usedFar}} {
		w := redistest.NewWire(t, redistest.Single(t).Addr)
		w.Delay(c.away/2, c.away/2)
		l := newLimiter(redisstore.New(newClient(t, w.Addr, 64), redisstore.Options{}), perSecond(40).Limit)
		must(l.Status(t.Context(), "")) // it is connected

		s, end := newStage(t), 20*time.Second
		starts := spends(join(s.loop(32, end, s.limiter(l))...))
		line := lineOf(40)
		possible := float64(time.Second) / float64(line.span+c.away-10*ms)
		got := used(starts, 5*time.Second, end, line.n, time.Second)
		rows = append(rows, ofQuota(fmt.Sprintf("Redis %v away, 40/s, 32 callers", c.away), starts, end, line, c.least).
			knownIn("docs/internals/line.md", got >= 0.97*possible))
	}
	return rows
}
