package waits

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

var (
	long  = flag.Bool("long", false, "measure everything, for as long as it takes")
	judge = flag.Bool("judge", true, "fail if a target is missed")
	out   = flag.String("out", "", "write the table to this file")
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	crew.Main("waits", work)
	os.Exit(redistest.Main(m))
}

// quiet logs nothing: nodes die.
type quiet struct{}

// Printf implements redis' interface of loggers.
func (quiet) Printf(context.Context, string, ...any) {}

// A scenario measures some rows.
type scenario struct {
	name string
	rows func(*testing.T) []row
}

// inMemory run on memstore, in virtual time.
var inMemory = []scenario{
	{"priority", behindLow},
	{"beside", besideHot},
	{"skewed", skewed},
	{"shares", shares},
	{"leave", leaving},
	{"left", allLeft},
	{"raise", raised},
	{"order", keptOrder},
	{"tokens", tokens},
	{"recovery", recovery},
	{"bans", bans},
	{"dials", slowDials},
	{"ends", endsOfBans},
	{"hiccup", hiccup},
	{"away", awayStore},
	{"open", openLoop},
	{"costs", openCosts},
	{"connections", connections},
	{"flight", inFlight},
	{"closed", closedLoop},
}

// A simulation measures some rows with a server in virtual time.
type simulation struct {
	name string
	rows func(*testing.T, virtual) []row
}

// simulated run on Redis in virtual time.
var simulated = []simulation{
	{"fleets", orderOfFleets},
	{"slow starts", slowStarts},
	{"resumed", resumedBurst},
	{"crashes", crashes},
	{"costs on Redis", openCostsRedis},
	{"flight on Redis", flightRedis},
	{"banning", banningUpstream},
	{"tokens on Redis", tokensRedis},
	{"distant", farAway},
}

// onRedis run on real servers, in real time.
var onRedis = []scenario{
	{"Redis priority", redisBehindLow},
	{"Redis left", redisAllLeft},
	{"Redis hiccup", redisHiccup},
	{"Redis order", redisOrder},
	{"Redis flight", redisFlight},
	{"Redis closed", redisClosed},
	{"far", farRedis},
	{"rush", rush},
	{"crash loop", crashLoop},
	{"fleet", fleet},
	{"many", many},
}

// TestWaits measures the scenarios in virtual time. With -long it measures more of each, and the scenarios in real time, too:
// make soak runs that once. A short measurement in real time would say little about the engine.
func TestWaits(t *testing.T) {
	soak.WithoutRace(t)
	var all []row
	run := func(s scenario, rows func(*testing.T) []row) {
		t.Run(s.name, func(t *testing.T) {
			measured := rows(t)
			t.Log("\n" + table(measured))
			all = append(all, measured...)
			for _, r := range measured {
				if *judge && !r.ok && r.known == "" {
					t.Errorf("%s: %s, but %s is asked for", r.what, r.value, r.target)
				}
			}
		})
	}
	for _, s := range inMemory {
		run(s, func(t *testing.T) (rows []row) {
			synctest.Test(t, func(t *testing.T) { rows = s.rows(t) })
			return rows
		})
	}
	backend := must(redissim.Connect(redistest.Single(t).Addr))
	defer backend.Close()
	for _, s := range simulated {
		run(scenario{name: s.name}, func(t *testing.T) []row { return s.rows(t, virtual{backend}) })
	}
	for _, s := range inFull(onRedis, nil) {
		run(s, s.rows)
	}
	t.Log("\n" + table(all))
	if *out != "" {
		require.NoError(t, os.WriteFile(*out, []byte(table(all)), 0o644))
	}
}

// inFull returns the first of two if everything is measured, and otherwise the
// second.
func inFull[T any](full, small T) T {
	if *long {
		return full
	}
	return small
}

// openLoop lets visits come at random, at loads below and above the limit.
func openLoop(t *testing.T) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range inFull([]float64{0.5, 0.8, 0.95, 1, 1.2, 1.5}, []float64{0.8, 1.5}) {
			rows = append(rows, open(t, n, load)...)
		}
	}
	return rows
}

// openCosts is openLoop for visits that cost 1 to 10.
func openCosts(t *testing.T) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range inFull([]float64{0.5, 0.65, 0.8, 0.9, 0.95, 1, 1.2, 1.5}, []float64{0.8, 1.5}) {
			rows = append(rows, openOf(t, n, load, 10, memory(n))[0])
		}
	}
	return rows
}

// openCostsRedis is openCosts on Redis.
func openCostsRedis(t *testing.T, v virtual) (rows []row) {
	for _, n := range []int{20, 100} {
		for _, load := range []float64{0.8} { // the others are as in memory
			rows = append(rows, openOf(t, n, load, 10, func(t *testing.T, visits []visit) {
				v.stage(t, near, 1, func(s stage, net *redissim.Network) {
					l := s.newNode(net).limiter(store.PerSecond(n))
					s.begin = time.Now()
					s.play(visits, time.Hour, s.limiter(l))
				})
			})[0])
			rows[len(rows)-1].what += ", Redis"
		}
	}
	return rows
}

// memory lets visits come to a store in memory.
func memory(n int) func(*testing.T, []visit) {
	return func(t *testing.T, visits []visit) {
		s := newStage(t)
		s.play(visits, time.Hour, s.limiter(newLimiter(memstore.New(), store.PerSecond(n))))
	}
}

func open(t *testing.T, n int, load float64) []row { return openOf(t, n, load, 1, memory(n)) }

// openOf plays visits that cost 1 to dearest and come at random, at a load of a limit of n a second. Of some seeds it
// returns the worst mean wait beside a perfect queue's, and the longest time by which a visit was passed.
func openOf(t *testing.T, n int, load float64, dearest int, play func(*testing.T, []visit)) []row {
	line, end := lineOf(n), inFull[time.Duration](300, 60)*time.Second
	var got, most, best, order time.Duration
	over := time.Duration(-1 << 62)
	for seed := range inFull(4, 1) {
		random := dice(seed)
		visits := poisson(load*line.rate()*2/float64(1+dearest), 0, end, random)
		for i := range visits {
			visits[i].more = random.IntN(dearest)
		}
		perfect := mean(line.perfect(visits))
		play(t, visits)
		stage{t: t}.kept(visits, n, time.Second)
		order = max(order, passed(visits))
		bound := time.Duration(timesOpen*float64(perfect)) + moreOpen
		if m := mean(visits); m-bound > over {
			over, got, most, best = m-bound, m, bound, perfect
		}
	}
	name := fmt.Sprintf("open loop, %d/s, %.0f %% load", n, 100*load)
	if dearest > 1 {
		name += fmt.Sprintf(", costs 1 to %d", dearest)
	}
	return []row{
		atMost(name+": mean wait", got, most).also("perfect %v, %.2f times", short(best), float64(got)/float64(max(best, 1))),
		atMost(name+": passed by", order, passedOpen),
	}
}

// The apis of a scenario with priorities.
const (
	low = iota
	high
)

// byPriority asks a limiter with the priority of each visit. High requests have a
// MaxWait, if it is not 0.
func (s stage) byPriority(l *throttle.Limiter, maxWait time.Duration) ask {
	asked := s.limiter(l)
	return func(ctx context.Context, v *visit) error {
		if v.api == low {
			return asked(throttle.WithPriority(ctx, store.PriorityLow), v)
		}
		return asked(throttle.WithMaxWait(throttle.WithPriority(ctx, store.PriorityHigh), maxWait), v)
	}
}

// batch returns a limiter on which Low requests leave a quarter free.
func batch(s store.Store, l store.Limit) *throttle.Limiter {
	return must(throttle.NewLimiter(s, throttle.Policy{Name: "api", Limit: l,
		Headroom: map[store.Priority]float64{store.PriorityLow: 0.25}}))
}

// thenHigh lets High requests come after a crowd of Low ones, one after the other.
func thenHigh(all []visit, highs int, from, every time.Duration) ([]visit, time.Duration) {
	for i := range highs {
		all = append(all, visit{came: from + time.Duration(i)*every, start: never, api: high})
	}
	return all, from + time.Duration(highs)*every
}

func isLow(v *visit) bool  { return v.api == low }
func isHigh(v *visit) bool { return v.api == high }

// behindLow measures how long High requests wait behind many Low ones.
func behindLow(t *testing.T) (rows []row) {
	for _, l := range []store.Limit{store.PerSecond(20), store.TokenBucket(20, time.Second, 20)} {
		for _, lows := range []int{300, 1000, 3000} {
			s := newStage(t)
			visits, end := thenHigh(crowd(lows), 20, time.Second, 730*ms)
			s.play(visits, time.Hour, s.byPriority(batch(memstore.New(), l), 0))
			if l.Kind() == store.KindSlidingWindow {
				s.kept(visits, 20, time.Second)
			}
			lowsPerSecond := float64(len(between(only(visits, isLow), time.Second, end))) / (end - time.Second).Seconds()
			rows = append(rows, atMost(fmt.Sprintf("High behind %d Low, %v", lows, l), longest(only(visits, isHigh)), waitHigh).
				also("Low %.1f/s meanwhile", lowsPerSecond))
		}
	}
	return rows
}

// rush lets a crowd come at once that the limit needs seconds for.
func rush(t *testing.T) []row {
	const callers = 10_000
	l := newLimiter(newStore(t), store.PerSecond(1000))
	must(l.Status(t.Context(), "")) // it is connected
	visits := rushed(callers)
	before := heap()
	s := newStage(t)
	each := make(chan uint64, 1)
	s.at(800*ms, func() { each <- (heap() - before) / callers })
	s.play(visits, time.Minute, s.limiter(l))
	waited := only(visits, anyVisit)
	what := fmt.Sprintf("%d callers at once, 1000/s, Redis", callers)
	return []row{
		atMost(what+": the last one", last(waited), lastOfCrowd).also("%d started", len(waited)).
			knownIn("docs/internals/line.md", last(waited) <= lastOfCrowd+300*ms),
		below(what+": heap for each while they wait, bytes", float64(<-each), bytesOfCrowd),
	}
}

// heap returns what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const (
	tokensPerMinute = 60_000
	tokenSpan       = time.Minute + acquire.DefaultJitter
)

// A guess is what callers think that an answer costs, and what it does cost.
type guess struct{ estimate, real int }

// guesses are ten times too high and too low.
var guesses = []guess{{4000, 400}, {500, 700}}

// possible is the largest share of the limit that can be spent if each start counts as its estimate until the answer has
// come. A full window has the estimates of the starts whose answers are to come, and the real costs of all others.
func (g guess) possible(answer time.Duration) float64 {
	window := tokenSpan.Seconds()
	unanswered := answer.Seconds()
	perSecond := tokensPerMinute / (float64(g.estimate)*unanswered + float64(g.real)*(window-unanswered))
	return perSecond * float64(g.real) * window / tokensPerMinute
}

// tokens lets workers ask in a closed loop for answers that cost other than they
// were guessed to.
func tokens(t *testing.T) (rows []row) {
	for _, g := range guesses {
		for _, answer := range []time.Duration{time.Second, 10 * time.Second} {
			for _, workers := range []int{20, 100, 300} {
				if answer > time.Second && workers == 20 {
					continue // they cannot use it up
				}
				name := fmt.Sprintf("estimate %d, real %d, %d workers, answers in %v: spent", g.estimate, g.real, workers, answer)
				spent := spentTokens(t, g, workers, answer)
				switch {
				case g.estimate < g.real && answer <= time.Second:
					rows = append(rows, within(name, spent, tokensLowLeast, tokensLowMost))
				case g.estimate > g.real && answer <= time.Second:
					rows = append(rows, within(name, spent, tokensHighLeast, tokensHighMost))
				default:
					rows = append(rows, told(name, "%s", percent(spent)))
				}
			}
		}
	}
	return rows
}

// spentTokens returns the share of the limit that is truly spent after the first
// two windows.
func spentTokens(t *testing.T, g guess, workers int, answer time.Duration) float64 {
	return spentBy(newStage(t), []*throttle.Limiter{newLimiter(memstore.New(), store.PerMinute(tokensPerMinute))}, g, workers, answer)
}

// spentBy is spentTokens where the workers use some limiters by turns.
func spentBy(s stage, limiters []*throttle.Limiter, g guess, workers int, answer time.Duration) float64 {
	end := inFull[time.Duration](12, 6) * tokenSpan
	ctx, over := context.WithCancel(s.t.Context())
	defer time.AfterFunc(end, over).Stop()
	var mu sync.Mutex
	var list []spend
	var all sync.WaitGroup
	for i := range workers {
		l := limiters[i%len(limiters)]
		all.Go(func() {
			for {
				at, err := g.spend(ctx, s, l, answer)
				if err != nil {
					require.ErrorIs(s.t, err, context.Canceled)
					return
				}
				mu.Lock()
				list = append(list, at)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return used(list, 2*tokenSpan, end-answer, tokensPerMinute, tokenSpan)
}

// spend lets one caller wait, get its answer and say what it cost.
func (g guess) spend(ctx context.Context, s stage, l *throttle.Limiter, answer time.Duration) (spend, error) {
	p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", g.estimate)
	if err != nil {
		return spend{}, err
	}
	at := s.now()
	if err := pass(ctx, answer); err != nil {
		return spend{}, errors.Join(err, p.Tell(context.Background(), throttle.Answer{}.WithCost(g.real)))
	}
	return spend{at, g.real}, p.Tell(ctx, throttle.Answer{}.WithCost(g.real))
}

// recovery guesses four times too much at half of the load. A pause of a minute
// leaves a queue, which must be gone some time later.
func recovery(t *testing.T) []row {
	const pause, later = 3 * time.Minute, 17 * time.Minute
	g := guess{2000, 500}
	s, l := newStage(t), newLimiter(memstore.New(), store.PerMinute(tokensPerMinute))
	end := pause + time.Minute + later
	visits := poisson(1, 0, end+time.Minute, dice(1))
	s.at(pause, func() { must(0, l.Pause(t.Context(), "", time.Minute)) })
	s.play(visits, end+20*time.Minute, func(ctx context.Context, v *visit) error {
		at, err := g.spend(ctx, s, l, time.Second)
		if err == nil {
			v.start = at.at
		}
		return err
	})
	worst := func(from, to time.Duration) (wait time.Duration) {
		for i := range visits {
			v := &visits[i]
			switch {
			case v.came < from || v.came >= to:
			case v.started():
				wait = max(wait, v.waited())
			default:
				wait = max(wait, s.now()-v.came)
			}
		}
		return wait
	}
	return []row{
		atMost("estimate 4 × too high, half of the load, a pause of a minute: waits 17 min later", worst(end, end+time.Minute), waitRecovered).
			also("before it %v, 5 min later %v", short(worst(2*time.Minute, pause-time.Second)), short(worst(pause+6*time.Minute, pause+7*time.Minute))),
	}
}

// Pipes are a real HTTP server whose connections lie in memory, so that virtual
// time passes while both sides wait.
type pipes struct {
	stage
	answer time.Duration
	server *http.Server
	conns  chan net.Conn
	over   chan struct{}
	once   sync.Once

	mu       sync.Mutex
	arrivals []spend
}

func newPipes(s stage, answer time.Duration) *pipes {
	p := &pipes{stage: s, answer: answer, conns: make(chan net.Conn), over: make(chan struct{})}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(p) }()
	return p
}

// dial connects a client with the server. It returns an error if ctx ends or the server closes before.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Accept, Close and Addr make it a listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.over) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// ServeHTTP takes its time.
func (p *pipes) ServeHTTP(http.ResponseWriter, *http.Request) {
	p.mu.Lock()
	p.arrivals = append(p.arrivals, spend{p.now(), 1})
	p.mu.Unlock()
	time.Sleep(p.answer)
}

func (p *pipes) seen() []spend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals
}

// close ends the server. The answers to requests that were given up are on their way.
func (p *pipes) close() {
	_ = p.server.Close()
	time.Sleep(2 * p.answer)
}

// near is how far away a server on the same network is.
const near = ms

// A virtual server runs the scripts of scenarios in virtual time.
type virtual struct{ *redissim.Backend }

// stage lets a scenario happen in virtual time, with an empty server to which and back it takes trip.
func (v virtual) stage(t *testing.T, trip time.Duration, seed uint64, f func(stage, *redissim.Network)) {
	t.Helper()
	require.NoError(t, v.Reset())
	synctest.Test(t, func(t *testing.T) {
		n := redissim.New(v.Backend, 0, 0, trip, seed)
		f(newStage(t), n)
		require.NoError(t, n.Err())
	})
}

// A node is a program with a store of its own.
type node struct {
	client redis.UniversalClient
	store  *redisstore.Store
	life   context.Context
	die    func()
}

// newNode returns a node that is connected. At the end of the scenario it closes the client, a minute after the node's
// callers have left: the store has calls to make then.
func (s stage) newNode(n *redissim.Network) *node {
	client, cut := n.Mortal()
	life, end := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() {
		end()
		time.Sleep(time.Minute)
		require.NoError(s.t, client.Close())
		time.Sleep(time.Minute)
	})
	require.NoError(s.t, client.Publish(s.t.Context(), "hello", "").Err())
	return &node{client, redisstore.New(client, redisstore.Options{}), life, func() { cut(); end() }}
}

// nodes returns that many nodes.
func (s stage) nodes(n *redissim.Network, many int) (all []*node) {
	for range many {
		all = append(all, s.newNode(n))
	}
	return all
}

// limiter returns the node's limiter of the policy that all share.
func (n *node) limiter(l store.Limit) *throttle.Limiter { return newLimiter(n.store, l) }

// acquire waits for a start of a cost, as long as the node lives.
func (n *node) acquire(ctx context.Context, l *throttle.Limiter, cost int) (*throttle.Permit, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(n.life, leave)()
	return l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", cost)
}
