package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/stat"
)

var (
	load     = flag.Duration("load", 1500*time.Millisecond, "how long each run with a limit that binds is")
	everyone = flag.Bool("everyone", false, "put limits that bind on all contenders, and not only on a few")
)

// A fleet in which 64 wait, wherever they run.
const (
	processes  = 4
	perProcess = 16
)

// starvedAfter is how long nobody should have to wait for a start.
const starvedAfter = 5 * time.Second

// hair is a second that is a little too short: what is above the limit in it is
// not there because somebody woke late.
const hair = 950 * time.Millisecond

// BenchmarkFleet is a limit that binds: how much of it is used, how many starts
// there are in any second, in what order they are and what they cost.
func BenchmarkFleet(b *testing.B) {
	for _, quota := range []int{40, 1000} {
		b.Run(fmt.Sprintf("%d-per-s", quota), func(b *testing.B) {
			eachContender(b, func(b *testing.B, c contender) {
				s := newServer(b)
				before := s.read(b)
				r := runFleet(b, c, fleet.Config{Redis: s.pooled(), Limit: fmt.Sprintf("%d/s", quota)})
				used := s.read(b).since(before)
				reportFleet(b, r, quota)
				b.ReportMetric(100*used.cpu/float64(load.Microseconds()), "redis-cpu-%")
			})
		})
	}
}

// eachContender runs a benchmark once for each, one after the other: one that
// polls would keep the others from waking in time.
func eachContender(b *testing.B, run func(*testing.B, contender)) {
	chosen := contenders()
	if !*everyone {
		chosen = chosen[:few]
	}
	for _, c := range chosen {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				run(b, c)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pooled is the server's URL for clients with enough connections.
func (s *server) pooled() string { return fmt.Sprintf("%s?pool_size=%d", s.URL(), poolSize) }

func runFleet(b *testing.B, c contender, config fleet.Config) fleet.Report {
	b.Helper()
	config.Name, config.Limiter, config.Jitter = "fleet", c.limiter(), c.jitter
	config.Processes, config.Workers, config.Load = processes, perProcess, *load
	r, err := fleet.Run(b.Context(), config)
	require.NoError(b, err)
	return r
}

// reportFleet reports what the workers saw. Where a limiter tells its starts by
// the store's clock, they are counted as well.
func reportFleet(b *testing.B, r fleet.Report, quota int) {
	b.Helper()
	var starts, waits []time.Duration
	starved := 0
	for _, s := range r.Samples {
		waits = append(waits, s.Served-s.Asked)
		if s.OK {
			starts = append(starts, s.Served)
		} else if s.Served-s.Asked > starvedAfter {
			starved++
		}
	}
	require.GreaterOrEqual(b, len(starts), quota, "premise: the limit was reached")
	slices.Sort(waits)
	begin := slices.MinFunc(r.Samples, func(a, b fleet.Sample) int { return int(a.Asked - b.Asked) }).Asked
	used := stat.Used(starts, begin+warmUp(), begin+*load, quota, time.Second)

	b.ReportMetric(100*used, "used-%")
	b.ReportMetric(float64(stat.Most(starts, time.Second)), "most/s")
	b.ReportMetric(float64(stat.Most(starts, hair)), "most/0.95s")
	b.ReportMetric(float64(r.Worst), "most-by-store/s")
	b.ReportMetric(r.Trips, "trips/start")
	b.ReportMetric(100*r.Inversions, "inversions-%")
	b.ReportMetric(r.Jain, "jain")
	b.ReportMetric(seconds(waits[len(waits)*99/100]), "p99-s")
	b.ReportMetric(seconds(r.Longest), "max-s")
	b.ReportMetric(float64(starved), "starved")
}

// warmUp is the part of a run in which what a full bucket gave is not counted
// as use.
func warmUp() time.Duration { return min(2*time.Second, *load/4) }

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// role is that of a member of a crew.
const role = "benchmarks"

func TestMain(m *testing.M) {
	fleet.Main(fleetLimiters())
	crew.Main(role, newMember().serve)
	os.Exit(m.Run())
}

// An order is what a crew is told to do: to take starts from a peer, in a
// closed loop for each worker.
type order struct {
	Peer    string
	Redis   string // the URL of the peer's own database
	Limit   limit
	Process int // which member this is
	Workers int
	Crowd   bool // many keys instead of one
	Load    time.Duration

	Patience time.Duration // how long calls may take after the load; 0: straggling
}

// A done is what a member reports.
type done struct {
	Calls  int
	Took   time.Duration
	Trips  int           // round trips to Redis
	Median time.Duration // of a worker's calls, if it was alone; 0: it was not
}

// A member is one process of a crew.
type member struct {
	open map[string]*opened // by peer and limit: later orders find it ready
}

// An opened peer has a client of its own.
type opened struct {
	ask   ask
	trips fleet.Trips
}

func newMember() *member { return &member{open: make(map[string]*opened)} }

// serve carries out orders until the program is gone. It prepares for an order, says so,
// waits for a word, works, and reports.
func (m *member) serve(program *crew.Link) error {
	var none struct{}
	if err := program.Hear(&none); err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	for {
		var o order
		if err := program.Hear(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		p, err := m.peer(o)
		if err != nil {
			return err
		}
		if err := program.Tell("ready"); err != nil {
			return err
		}
		var word string
		if err := program.Hear(&word); err != nil {
			return err
		}
		d, err := o.work(p)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Peer, err)
		}
		if err := program.Tell(d); err != nil {
			return err
		}
	}
}

// poolSize lets many workers have a connection of their own.
const poolSize = 64

// peer returns the peer that an order names, and opens it at the first order with the same limit and Redis.
func (m *member) peer(o order) (*opened, error) {
	name := fmt.Sprint(o.Peer, o.Limit, o.Redis)
	if p := m.open[name]; p != nil {
		return p, nil
	}
	p, ok := findPeer(o.Peer)
	if !ok {
		return nil, fmt.Errorf("unknown peer %q", o.Peer)
	}
	options, err := redis.ParseURL(o.Redis)
	if err != nil {
		return nil, err
	}
	options.PoolSize = poolSize
	client, got := redis.NewClient(options), &opened{}
	client.AddHook(&got.trips)
	got.ask, err = p.open(client, o.Limit)
	m.open[name] = got
	return got, err
}

// work carries out an order.
func (o order) work(p *opened) (done, error) {
	before := p.trips.Count()
	d, err := o.rush(p.ask)
	d.Trips = p.trips.Count() - before
	return d, err
}

// newCrew starts processes of this program that carry out orders together. They end with b.
func newCrew(b *testing.B, processes int) crew.Members {
	b.Helper()
	members, err := crew.Muster(context.Background(), role, make([]struct{}, processes))
	require.NoError(b, err)
	b.Cleanup(func() {
		for _, m := range members {
			m.Dismiss()
			require.Empty(b, m.Errors())
		}
	})
	return members
}

// do lets all members carry out the order at once and returns what they report.
// The time is that of the slowest.
func do(b *testing.B, members crew.Members, o order) done {
	b.Helper()
	var word string
	for i, m := range members {
		o.Process = i
		require.NoError(b, m.Tell(o))
		require.NoError(b, m.Hear(&word))
	}
	require.NoError(b, members.Tell("go"))
	var all done
	for _, m := range members {
		var d done
		require.NoError(b, m.Hear(&d))
		all.Calls += d.Calls
		all.Trips += d.Trips
		all.Took, all.Median = max(all.Took, d.Took), max(all.Median, d.Median)
	}
	return all
}

// A contender is a limiter that a fleet's transport obeys.
type contender struct {
	name   string
	jitter time.Duration // throttle's: -1 is none, 0 its default
	wrap   fleet.Limiter // nil: throttle's transport
}

// few contenders are enough to see that a benchmark works.
const few = 3

// contenders are all that a limit which binds is put on. What a split
// fleet and the even redis_rate do, only such a limit shows.
func contenders() []contender {
	all := []contender{{"throttle", 0, nil}, {"throttle_no_jitter", -1, nil}}
	for _, p := range peers[base:] {
		all = append(all, contender{name: p.name, wrap: wrapPeer(p.open)})
	}
	return append(all,
		contender{name: "redis_rate_burst_1", wrap: wrapPeer(openRedisRateEven)},
		contender{name: "split", wrap: wrapSplit})
}

// openRedisRateEven is redis_rate with the smallest burst.
func openRedisRateEven(c *redis.Client, l limit) (ask, error) {
	return askRedisRate(c, redis_rate.Limit{Rate: l.N, Burst: 1, Period: l.Per}), nil
}

// fleetLimiters are the contenders as the members of a fleet know them.
func fleetLimiters() map[string]fleet.Limiter {
	known := make(map[string]fleet.Limiter)
	for _, c := range contenders() {
		if c.wrap != nil {
			known[c.name] = c.wrap
		}
	}
	return known
}

// limiter names the contender in a [fleet.Config].
func (c contender) limiter() string {
	if c.wrap == nil {
		return ""
	}
	return c.name
}

// wrapPeer asks a peer before each request.
func wrapPeer(open func(*redis.Client, limit) (ask, error)) fleet.Limiter {
	return func(m fleet.Member) (http.RoundTripper, error) {
		a, err := open(m.Redis, limit{m.Limit.N(), m.Limit.Per()})
		if err != nil {
			return nil, err
		}
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := a.wait(r.Context(), "key"); err != nil {
				return nil, err
			}
			return m.Base.RoundTrip(r)
		}), nil
	}
}

// wrapSplit gives each process its share of the limit, in a bucket of its own,
// which is what is done by hand where there is no shared limit.
func wrapSplit(m fleet.Member) (http.RoundTripper, error) {
	share := limit{m.Limit.N() / m.Config.Processes, m.Limit.Per()}
	bucket := rate.NewLimiter(rate.Every(share.each()), share.N)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := bucket.Wait(r.Context()); err != nil {
			return nil, err
		}
		return m.Base.RoundTrip(r)
	}), nil
}

// roundTripper is a function that is an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// straggling is how long calls that began in time may take after the load, unless the
// order says how long. Those that take longer do not count.
const straggling = time.Second

// rush lets all workers of a member take starts as fast as they can.
func (o order) rush(a ask) (done, error) {
	keys := []string{"key"}
	if o.Crowd {
		keys = crowd()
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Load+cmp.Or(o.Patience, straggling))
	defer cancel()
	calls, errs := make([]int, o.Workers), make([]error, o.Workers)
	var times []time.Duration // of a worker that is alone
	begin := time.Now()
	var all sync.WaitGroup
	for w := range o.Workers {
		at := (o.Process*o.Workers + w) * apart
		all.Go(func() {
			for began := time.Since(begin); began < o.Load && errs[w] == nil; {
				err := a.take(ctx, keys[(at+calls[w])%len(keys)])
				ended := time.Since(begin)
				took := ended - began
				began = ended
				switch {
				case err == nil:
					calls[w]++
					if o.Workers == 1 {
						times = append(times, took)
					}
				case ctx.Err() == nil:
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	d := done{Took: time.Since(begin)}
	if len(times) > 0 {
		d.Median = median(times)
	}
	for _, n := range calls {
		d.Calls += n
	}
	return d, errors.Join(errs...)
}

// apart is how far from each other in the crowd two workers begin.
const apart = 251

var (
	rounds = flag.Int("rounds", 1, "how many turns each contestant of Shared has")
	turn   = flag.Duration("turn", 100*time.Millisecond, "how long one turn of Shared is")
)

// plentyShared is a limit for each second that no benchmark with Redis reaches.
const plentyShared = 10_000_000

// BenchmarkShared is a start that has room, in a fleet, for workers in one or
// several processes. All peers use the same server and take turns.
func BenchmarkShared(b *testing.B) {
	for _, shape := range []struct {
		processes, workers int
		crowd              bool
	}{
		{1, 1, false}, {1, 64, false}, {1, 512, false}, {4, 64, false}, {4, 64, true},
	} {
		keys := "1-key"
		if shape.crowd {
			keys = fmt.Sprintf("%d-keys", manyKeys)
		}
		b.Run(fmt.Sprintf("%s/%dx%d", keys, shape.processes, shape.workers), func(b *testing.B) {
			tallies := takeTurns(b, peers, shape.processes, order{
				Workers: shape.workers, Crowd: shape.crowd, Limit: limit{plentyShared, time.Second},
			})
			for i, p := range peers {
				b.Run(p.name, func(b *testing.B) { tallies[i].report(b, peers[base].name, &tallies[base]) })
			}
		})
	}
}

// base is the peer that others are compared with.
const base = 1

// takeTurns gives each peer a turn in each round, so that whatever else the
// machine does meets all of them.
func takeTurns(b *testing.B, peers []peer, processes int, o order) []tally {
	b.Helper()
	s, c := newServer(b), newCrew(b, processes)
	tallies := make([]tally, len(peers))
	play := func(i int, load time.Duration) (done, meter) {
		o.Peer, o.Redis, o.Load = peers[i].name, s.database(i), load
		before := s.read(b)
		d := do(b, c, o)
		return d, s.read(b).since(before)
	}
	for i := range peers {
		play(i, *turn/4) // opens connections and loads scripts
	}
	for round := range *rounds {
		for k := range peers {
			i := (round + k) % len(peers)
			d, m := play(i, *turn)
			tallies[i].add(d, m)
			requireKeys(b, peers[i].name, s.keys(b, i), o.Crowd)
		}
	}
	return tallies
}

// fewKeys are as many as one budget may need: the budget itself, and what each
// process notes of it.
const fewKeys = 8

// requireKeys checks that a peer keeps one budget, or many different ones.
func requireKeys(b *testing.B, name string, keys int, crowd bool) {
	b.Helper()
	if crowd {
		require.Greater(b, keys, 100, "premise: %s keeps many budgets", name)
		return
	}
	require.Positive(b, keys, "premise: %s keeps a budget", name)
	require.LessOrEqual(b, keys, fewKeys, "premise: %s keeps one budget", name)
}

// A tally is what one peer did in all its turns.
type tally struct {
	rates                       []float64 // starts a second, turn by turn
	medians                     []float64 // how long a call of a worker that was alone took, in microseconds
	calls, trips, cpu, commands float64
}

func (t *tally) add(d done, m meter) {
	t.rates = append(t.rates, float64(d.Calls)/d.Took.Seconds())
	t.medians = append(t.medians, float64(d.Median)/float64(time.Microsecond))
	t.calls += float64(d.Calls)
	t.trips += float64(d.Trips)
	t.cpu += m.cpu
	t.commands += m.commands
}

// report compares round by round.
func (t *tally) report(b *testing.B, name string, peer *tally) {
	times := make([]float64, len(t.rates))
	for i, r := range t.rates {
		times[i] = r / peer.rates[i]
	}
	require.Positive(b, t.calls, "premise: starts were taken")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(t.rates), "acquires/s")
	b.ReportMetric(median(times), "times-"+name)
	if t.medians[0] > 0 {
		for i, m := range t.medians {
			times[i] = m / peer.medians[i]
		}
		b.ReportMetric(median(t.medians), "median-us")
		b.ReportMetric(median(times), "median-times-"+name)
	}
	b.ReportMetric(t.trips/t.calls, "trips/acquire")
	b.ReportMetric(t.commands/t.calls, "commands/acquire")
	b.ReportMetric(t.cpu/t.calls, "redis-us/acquire")
}

// BenchmarkUpstream is an API that bans its callers for five seconds after one
// request too many in any second. Each request is up to 30 ms on its way
// there, so what is exact at the start need not be exact at the arrival.
func BenchmarkUpstream(b *testing.B) {
	eachContender(b, func(b *testing.B, c contender) {
		r := runFleet(b, c, fleet.Config{
			Redis: newServer(b).pooled(), Limit: "40/s",
			Delay: 30 * time.Millisecond, Ban: 5 * time.Second,
		})
		b.ReportMetric(float64(r.Bans), "bans")
		b.ReportMetric(100*r.Useful, "useful-%")
		b.ReportMetric(float64(r.ArrivalsWorst), "most-arrivals/s")
	})
}
