package waits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// crashLoop kills a process with 200 waiters six times, and starts its successor at once. It measures how many starts each
// process had, and how soon a caller starts after the last death.
func crashLoop(t *testing.T) []row {
	const every = 2 * time.Second
	server := redistest.Single(t)
	o := orders{Redis: server.Addr, PerSecond: 40, Callers: 200, To: time.Now().Add(time.Hour).UnixNano()}
	var counts []int
	for range 6 {
		m := enlist(t, o)
		time.Sleep(every)
		m.Kill()
		counts = append(counts, len(<-m.starts))
	}
	l := newLimiter(redisstore.New(server.Client(t), redisstore.Options{}), perSecond(40).Limit)
	died := time.Now()
	must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1))
	first := time.Since(died)
	for range 77 { // two windows
		must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1))
	}
	least := counts[0]
	for _, n := range counts {
		least = min(least, n)
	}
	return []row{
		above(fmt.Sprintf("a process with 200 waiters at 40/s is killed every %v: the least starts of one", every), float64(least), startsGeneration).also("%v", counts),
		atMost("the next one after the last death", first, forgotten).also("78 more by %v", short(time.Since(died))),
	}
}

// A census is what Redis has done so far.
type census struct {
	at    time.Duration
	calls int     // of scripts
	busy  float64 // seconds of a processor
}

// census returns what a server has done so far.
func (s stage) census(server *redistest.Server) census {
	text := must(server.Client(s.t).Info(s.t.Context(), "commandstats", "cpu").Result())
	c := census{at: s.now()}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case strings.HasPrefix(name, "cmdstat_eval"), strings.HasPrefix(name, "cmdstat_fcall"):
			n, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			c.calls += must(strconv.Atoi(n))
		case name == "used_cpu_user", name == "used_cpu_sys":
			c.busy += must(strconv.ParseFloat(value, 64))
		}
	}
	return c
}

// fleet lets four processes share a limit.
func fleet(t *testing.T) []row {
	const processes, callers = 4, 16
	server := redistest.Single(t)
	s, length := newStage(t), 20*time.Second
	s.begin = s.begin.Add(500 * ms) // when all are there
	o := orders{Redis: server.Addr, PerSecond: 40, Callers: callers, Loop: true,
		From: s.begin.UnixNano(), To: s.begin.Add(length).UnixNano()}
	var members []*member
	for range processes {
		members = append(members, enlist(t, o))
	}
	from, to := length/5, length-100*ms
	time.Sleep(from - s.now())
	first := s.census(server)
	time.Sleep(to - s.now())
	last := s.census(server)
	all := make([][]visit, 0, processes*callers)
	for _, m := range members {
		mine := make([][]visit, callers)
		for _, one := range <-m.starts {
			mine[one.Caller] = append(mine[one.Caller], visit{
				came: time.Duration(one.Came - s.begin.UnixNano()), start: time.Duration(one.At - s.begin.UnixNano())})
		}
		all = append(all, mine...)
		<-m.Gone
	}
	return inSteadyState("4 processes × 16 callers, 40/s, Redis", all, first, last, true)
}

// many lets 60 stores in one process, each with a client of its own, share a
// limit.
func many(t *testing.T) []row {
	const stores, callers = 60, 4
	server := redistest.Single(t)
	limiters := make([]ask, stores)
	length := 20 * time.Second
	s := newStage(t)
	for i := range limiters {
		limiters[i] = s.limiter(newLimiter(redisstore.New(newClient(t, server.Addr, 4), redisstore.Options{}), perSecond(40).Limit))
	}
	var first, last census
	var taken sync.WaitGroup
	taken.Go(func() {
		time.Sleep(length/5 - s.now())
		first = s.census(server)
		time.Sleep(length - 100*ms - s.now())
		last = s.census(server)
	})
	all := make([][][]visit, stores)
	var ended sync.WaitGroup
	for i, asked := range limiters {
		ended.Go(func() { all[i] = s.loop(callers, length, asked) })
	}
	ended.Wait()
	taken.Wait()
	var visits [][]visit
	for _, v := range all {
		visits = append(visits, v...)
	}
	return inSteadyState("60 stores × 4 callers in one process, 40/s, Redis", visits, first, last, false)
}

// inSteadyState returns the rows of what a fleet did between two censuses. few says that the fleet has few callers: then
// each starts often enough to be compared.
func inSteadyState(what string, callers [][]visit, first, last census, few bool) []row {
	var starts []spend
	grants := 0
	for _, c := range callers {
		starts = append(starts, spends(c)...)
		grants += len(between(c, first.at, last.at))
	}
	line := lineOf(40)
	share := used(starts, first.at, last.at, line.n, line.span)
	trips := float64(last.calls-first.calls) / float64(max(grants, 1))
	busy := (last.busy - first.busy) / (last.at - first.at).Seconds()
	fair := fairness(callers, first.at, last.at)
	if few {
		return []row{
			atLeast(what+": used", share, usedFleet),
			below(what+": trips a grant", trips, tripsFleet),
			above(what+": Jain", fair, jainFleet),
		}
	}
	return []row{
		below(what+": trips a grant", trips, tripsMany),
		below(what+": share of a processor of Redis", busy, busyMany),
		told(what+": used", "%s", percent(share)),
	}
}

// newClient returns a client that is closed when the test ends.
func newClient(t *testing.T, addr string, conns int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const (
	ms   = time.Millisecond
	home = "http://api.example.com/"
)

// must returns v, and panics if there is an error: it is for calls that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A stage is where visits happen.
type stage struct {
	t     *testing.T
	begin time.Time
}

func newStage(t *testing.T) stage { return stage{t, time.Now()} }

func (s stage) now() time.Duration { return time.Since(s.begin) }

// at calls f at a time of the scenario.
func (s stage) at(d time.Duration, f func()) { time.AfterFunc(d-s.now(), f) }

// An ask lets a visit wait for its start, and notes it.
type ask func(context.Context, *visit) error

// play lets each visit come at its time, and returns when all have started or
// left. At the end those that still wait leave.
func (s stage) play(visits []visit, end time.Duration, ask ask) {
	ctx, over := context.WithCancel(s.t.Context())
	defer over()
	defer time.AfterFunc(end-s.now(), over).Stop()
	var waiting sync.WaitGroup
	for i := range visits {
		v := &visits[i]
		if d := v.came - s.now(); d > 0 {
			time.Sleep(d)
		}
		waiting.Go(func() {
			v.came = s.now()
			v.err = s.let(ctx, v, ask)
		})
	}
	waiting.Wait()
	for i := range visits {
		require.NoError(s.t, visits[i].unexpected())
	}
}

// let lets one visit wait, at most for its maxWait. A visit that says its maxWait has a deadline, so that the limiter may
// refuse it at once. Any other visit leaves without a word.
func (s stage) let(ctx context.Context, v *visit, ask ask) error {
	switch {
	case v.maxWait > 0 && v.says:
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, v.maxWait)
		defer leave()
	case v.maxWait > 0:
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer leave()
		defer time.AfterFunc(v.maxWait, leave).Stop()
	}
	return ask(ctx, v)
}

// kept fails if more than n visits started in an interval of a length. Short waits
// are worth nothing if the limit is passed.
func (s stage) kept(visits []visit, n int, per time.Duration) {
	require.LessOrEqual(s.t, worst(visits, per), n)
}

// unexpected returns the visit's error, unless the visit left or was refused.
func (v *visit) unexpected() error {
	for _, own := range []error{context.Canceled, context.DeadlineExceeded, throttle.ErrLimited} {
		if errors.Is(v.err, own) {
			return nil
		}
	}
	return v.err
}

// refused counts the visits that were refused.
func refused(visits []visit) (n int) {
	for i := range visits {
		if errors.Is(visits[i].err, throttle.ErrLimited) {
			n++
		}
	}
	return n
}

// limiter returns an ask that takes starts of a Limiter.
func (s stage) limiter(l *throttle.Limiter) ask {
	return func(ctx context.Context, v *visit) error {
		_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", v.cost())
		if err == nil {
			v.start = s.now()
		}
		return err
	}
}

// newLimiter returns a limiter for one limit.
func newLimiter(store store.Store, l store.Limit) *throttle.Limiter {
	return must(throttle.NewLimiter(store, throttle.Policy{Name: "api", Limit: l}))
}

// visitKey is the context key of a request's visit.
type visitKey struct{}

// transport returns an ask that sends a request for each visit, to the path of the visit's api if there are paths.
func (s stage) transport(t *throttle.Transport, paths ...string) ask {
	return func(ctx context.Context, v *visit) error {
		url := home
		if len(paths) > 0 {
			url += paths[v.api]
		}
		r := must(http.NewRequestWithContext(context.WithValue(ctx, visitKey{}, v), http.MethodGet, url, nil))
		resp, err := t.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
}

// An upstream is a base that answers everything.
type upstream struct {
	stage
	dial   func() time.Duration // how long a connection takes; nil: it does not tell of connections
	answer time.Duration        // how long an answer takes
}

// RoundTrip makes a connection, if the upstream tells of connections, notes that the visit starts, and answers.
func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	trace := httptrace.ContextClientTrace(ctx)
	if u.dial != nil && trace != nil {
		if err := pass(ctx, u.dial()); err != nil {
			return nil, err
		}
		trace.GotConn(httptrace.GotConnInfo{})
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		trace.WroteHeaders()
	}
	ctx.Value(visitKey{}).(*visit).start = u.now()
	if err := pass(ctx, u.answer); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// pass lets d pass, and returns an error if ctx ends before.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newTransport returns a transport whose base is u.
func newTransport(u upstream, store store.Store, policies ...throttle.Policy) *throttle.Transport {
	return throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: policies}))
}

// Orders are what a member does. Times are in nanoseconds since the Unix epoch.
type orders struct {
	Redis     string // host and port
	PerSecond int
	Callers   int
	Loop      bool // each caller asks again and again
	From, To  int64
}

// A start is what a member says of each: whose it was, and when.
type start struct {
	Caller   int
	Came, At int64
}

// work lets all callers ask, and tells of each start at once: the member may be killed.
func work(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	l := newLimiter(redisstore.New(client, redisstore.Options{}), store.PerSecond(o.PerSecond))
	ctx, over := context.WithCancel(context.Background())
	defer over()
	time.AfterFunc(time.Until(time.Unix(0, o.To)), over)
	time.Sleep(time.Until(time.Unix(0, o.From)))
	var all sync.WaitGroup
	for i := range o.Callers {
		all.Go(func() {
			for again := true; again; again = o.Loop {
				came := time.Now().UnixNano()
				if _, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err != nil {
					if ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "waits:", err)
					}
					return
				}
				_ = program.Tell(start{i, came, time.Now().UnixNano()})
			}
		})
	}
	all.Wait()
	return nil
}

// A member is a process that works.
type member struct {
	*crew.Member
	starts chan []start // all, when it has ended
}

// enlist starts a member.
func enlist(t *testing.T, o orders) *member {
	m := &member{must(crew.Start(t.Context(), "waits", o)), make(chan []start, 1)}
	go func() {
		var list []start
		for {
			var s start
			if m.Link.Hear(&s) != nil { // the last of one that was killed may be torn
				break
			}
			list = append(list, s)
		}
		m.starts <- list
	}()
	return m
}

// A banning upstream counts what arrives. One request too many in any second, and it refuses all
// for five seconds.
type banning struct {
	stage
	n     int
	delay time.Duration // the longest time that a request is on its way

	mu     sync.Mutex
	random *rand.Rand
	seen   []time.Duration // since the last ban
	good   []spend
	bans   int
	lifted time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (b *banning) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	d := time.Duration(b.random.Int64N(int64(b.delay) + 1))
	b.mu.Unlock()
	if err := pass(r.Context(), d); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: b.arrive(), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// arrive counts a request that arrives now, and returns the status of its answer.
func (b *banning) arrive() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now < b.lifted {
		return http.StatusTooManyRequests
	}
	if i := len(b.seen) - b.n; i >= 0 && now-b.seen[i] < time.Second {
		b.seen, b.lifted = nil, now+5*time.Second
		b.bans++
		return http.StatusTooManyRequests
	}
	b.seen = append(b.seen, now)
	b.good = append(b.good, spend{now, 1})
	return http.StatusOK
}

// banningUpstream has four nodes on Redis, with all that is a default, call one.
func banningUpstream(t *testing.T, v virtual) []row {
	const nodes, callers = 4, 16
	end := inFull[time.Duration](60, 15) * time.Second
	var useful []float64
	bans := 0
	for seed := range uint64(inFull(5, 1)) {
		v.stage(t, near, seed, func(s stage, net *redissim.Network) {
			all := s.nodes(net, nodes)
			s.begin = time.Now()
			u := &banning{stage: s, n: 40, delay: 30 * ms, random: dice(int(seed))}
			ctx, over := context.WithTimeout(s.t.Context(), end)
			defer over()
			var waiting sync.WaitGroup
			for _, n := range all {
				tr := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: n.store, Base: u, Policies: []throttle.Policy{perSecond(40)}}))
				for range callers {
					waiting.Go(func() {
						for ctx.Err() == nil {
							resp, err := tr.RoundTrip(must(http.NewRequestWithContext(ctx, http.MethodGet, home, nil)))
							if err == nil {
								_ = resp.Body.Close()
							}
						}
					})
				}
			}
			waiting.Wait()
			bans += u.bans
			useful = append(useful, used(u.good, 5*time.Second, end, 40, time.Second))
		})
	}
	r := atLeast("a banning upstream, 0 to 30 ms of jitter, 4 nodes × 16 callers on Redis, all defaults: useful of the quota", slices.Min(useful), usefulBanning).
		also("%d bans, %s at the most", bans, percent(slices.Max(useful)))
	r.target += ", no ban"
	r.ok = r.ok && bans == 0
	return []row{r}
}

// flightRedis is inFlight on Redis in virtual time, by one node and by four. The way to the server takes no time: a request
// holds a lock while it asks for a slot, and virtual time does not pass while a goroutine waits for a lock.
func flightRedis(t *testing.T, v virtual) (rows []row) {
	for _, nodes := range []int{1, 4} {
		v.stage(t, 0, 1, func(s stage, net *redissim.Network) {
			all := s.nodes(net, nodes)
			s.begin = time.Now()
			var asks []ask
			for _, n := range all {
				asks = append(asks, s.transport(newTransport(upstream{stage: s, answer: 150 * ms}, n.store, flightPolicies...)))
			}
			rows = append(rows, flown(s, asks, inFull[time.Duration](60, 15)*time.Second, fmt.Sprintf("Redis, %d nodes", nodes))...)
		})
	}
	return rows
}

// tokensRedis is tokens on Redis, by one node and by four.
func tokensRedis(t *testing.T, v virtual) (rows []row) {
	for _, g := range guesses {
		for _, answer := range []time.Duration{time.Second, 10 * time.Second} {
			for _, workers := range []int{20, 100, 300} {
				if answer > time.Second && (workers == 20 || g.estimate < g.real) {
					continue // they cannot use it up
				}
				for _, nodes := range inFull([]int{1, 4}, []int{2}) {
					name := fmt.Sprintf("estimate %d, real %d, %d workers, %d nodes on Redis, answers in %v: spent", g.estimate, g.real, workers, nodes, answer)
					spent := spentOnRedis(t, v, g, nodes, workers, answer)
					if g.estimate < g.real {
						rows = append(rows, within(name, spent, tokensLowLeast, tokensLowMost))
					} else {
						rows = append(rows, atLeast(name, spent, min(tokensHighLeast, timesPossible*g.possible(answer))).also("%s possible", percent(g.possible(answer))))
					}
				}
			}
		}
	}
	return rows
}

// spentOnRedis is spentTokens on Redis, by some nodes.
func spentOnRedis(t *testing.T, v virtual, g guess, nodes, workers int, answer time.Duration) (spent float64) {
	v.stage(t, near, 1, func(s stage, net *redissim.Network) {
		var limiters []*throttle.Limiter
		for _, n := range s.nodes(net, nodes) {
			limiters = append(limiters, n.limiter(store.PerMinute(tokensPerMinute)))
		}
		s.begin = time.Now()
		spent = spentBy(s, limiters, g, workers, answer)
	})
	return spent
}

// farAway has a server that is far away, with one node and with four. What is used depends on the phase in which the
// nodes find each other, so the figure is the mean over some seeds.
func farAway(t *testing.T, v virtual) (rows []row) {
	for _, c := range []struct {
		away  time.Duration
		n     int
		least float64
	}{{40 * ms, 40, usedNear40}, {150 * ms, 40, usedFar}, {300 * ms, 20, usedVeryFar}} {
		for _, nodes := range []int{1, 4} {
			var shares []float64
			for seed := range uint64(inFull(12, 4)) {
				v.stage(t, c.away, seed, func(s stage, net *redissim.Network) {
					all := s.nodes(net, nodes)
					s.begin = time.Now()
					end := inFull[time.Duration](60, 20) * time.Second
					var waiting sync.WaitGroup
					var mu sync.Mutex
					var starts []spend
					for _, n := range all {
						l := n.limiter(store.PerSecond(c.n))
						waiting.Go(func() {
							mine := spends(join(s.loop(32/nodes, end, s.limiter(l))...))
							mu.Lock()
							defer mu.Unlock()
							starts = append(starts, mine...)
						})
					}
					waiting.Wait()
					shares = append(shares, used(starts, 5*time.Second, end, c.n, time.Second))
				})
			}
			sum := 0.0
			for _, share := range shares {
				sum += share
			}
			mean := sum / float64(len(shares))
			rows = append(rows, atLeast(fmt.Sprintf("Redis %v away, %d/s, 32 callers, %d nodes: used of the quota", c.away, c.n, nodes), mean, c.least).
				also("%s to %s", percent(slices.Min(shares)), percent(slices.Max(shares))).knownIn("docs/internals/line.md", mean >= c.least-0.1))
		}
	}
	return rows
}
