package waits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
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
	mine := dice.IntN(2) == 0 // each crowd at one node
	for i := range visits {
		if visits[i].api = dice.IntN(nodes); mine && i > 0 && visits[i].came-visits[i-1].came < 3*ms {
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
			if worst = append(worst, by); by >= passedFleets {
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
	const seed = 28 // room is offered during a pause, and would lapse at its end
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
